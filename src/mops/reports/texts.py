"""The texts of the rows that judge, out of the data files that a record names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mops.data.dataset import read_split, read_task
from mops.data.tables import HUB
from mops.errors import MopsError
from mops.files import file_digest
from mops.reports.compared import Side
from mops.surveys.results.rescoring import SPLIT_OF

Texts = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The texts of each row, or why there are none."""

    texts: Sequence[Texts] = ()
    why_not: str = ""


def find_texts(side: Side, on: str) -> Found:
    """The rows as training read them, if their file is still what it was."""
    trial = side.first
    entry, split = trial.recipe.tasks[side.task.name], SPLIT_OF[on]
    file = entry.files().get(split) or entry.train or ""
    if reason := changed(file, trial.record.meta_info.data_sha256.get(file)):
        return Found(why_not=reason)
    try:
        if split in entry.files():
            read = read_split(entry, side.task, file, needs_label=split == "validation")
        else:  # validation was taken out of the training rows
            read = read_task(entry, side.task, (split,))[1][split]
        rows = [read.rows[place] for place in side.places]
    except (MopsError, IndexError) as cause:
        return Found(why_not=f"{file} cannot be read as it was: {cause}")
    if [row.id for row in rows] != list(side.ids):
        return Found(why_not=f"the rows of {file} are not those that were answered")
    return Found([row.texts for row in rows])


def changed(file: str, known: str | None) -> str:
    """Why a data file is not the one that was trained with; empty when it is."""
    if file.startswith(HUB):
        return f"{file} is on a hub, which a report does not ask"
    if not Path(file).is_file():
        return f"{file} is not there any more"
    if known and file_digest(file) != known:
        return f"{file} has changed since the training"
    return ""
