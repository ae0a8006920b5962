"""Tables in memory: DataFrames of pandas or polars, a `datasets.Dataset`, lists of dicts.

A recipe names files, so that a run can be repeated from its recipe alone, in other processes too.
The tables that a recipe is made from are therefore written once, as JSON lines, into a folder with
the name of their content, with a mops.yaml that says what was decided about them and why.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mops.config.training import TaskEntry
from mops.data.columns import SPLIT_WORDS
from mops.data.dataset import SPLITS
from mops.data.decisions import LABEL_ROLES, Entry
from mops.data.folders import free_name
from mops.data.inference import Proposal, infer_set, read_sample, to_name
from mops.data.starter import starter
from mops.data.tables import HUB
from mops.errors import DataError, RecipeError, nearest
from mops.files import atomic_write, file_digest, write_text
from mops.tasks import NAME

FOLDER = "mops-data"  # in the current folder
DIGEST_LENGTH = 12
MISSING_TYPES = ("NAType", "NaTType")  # of pandas
Frame = Any  # what `read_frame` reads


def frame_columns(frame: Frame) -> tuple[str, ...]:
    """The columns of a DataFrame or a Dataset, which has them without a row; else none."""
    names = getattr(frame, "columns", getattr(frame, "column_names", ()))
    return tuple(map(str, names))


def read_frame(frame: Frame, what: str = "the table") -> list[dict[str, Any]]:
    """The rows of a table in memory; a missing value is None. No library is imported for it."""
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas
        if not frame.columns.is_unique:
            found = ", ".join(map(str, frame.columns))
            raise DataError(f"{what} has several columns of one name ({found}); rename them")
        records = frame.to_dict("records")
    elif hasattr(frame, "to_dicts"):  # polars
        records = frame.to_dicts()
    elif isinstance(frame, list | tuple) or hasattr(frame, "column_names"):  # datasets
        records = list(frame)
    else:
        records = []
    if not records or not all(isinstance(record, Mapping) for record in records):
        is_empty = hasattr(frame, "__len__") and not len(frame)
        raise DataError(
            f"{what} {'has no rows' if is_empty else f'is a {type(frame).__name__}'}; allowed: a "
            "pandas or polars DataFrame, a datasets.Dataset or a list of dicts, with at least one "
            "row, or the name of a file"
        )
    names = dict.fromkeys(name for record in records for name in record)
    return [{str(name): to_plain(record.get(name)) for name in names} for record in records]


def to_plain(value: Any) -> Any:
    """A value as JSON has it."""
    is_missing = value is None or type(value).__name__ in MISSING_TYPES
    if is_missing or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "tolist"):  # of numpy
        return to_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):  # in one order, so that equal tables are equal files
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value)


def like_frame(frame: Frame, columns: Mapping[str, Sequence[Any]]) -> Any:
    """Columns as a table of the same library, with the same index; else a list of dicts."""
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        return sys.modules[library].DataFrame(dict(columns), index=frame.index)
    if library == "polars":
        return sys.modules[library].DataFrame(dict(columns))
    if library == "datasets":
        return sys.modules[library].Dataset.from_dict(dict(columns))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def is_name(value: object) -> bool:
    """Whether a value names a file or a folder."""
    return isinstance(value, str | os.PathLike)


def frame_tasks(data: Any, folder: str | Path = FOLDER) -> dict[str, Entry]:
    """The tasks of tables in memory, which are written into the folder.

    `data` is a table; or the keys of an entry in a recipe with tables in place of files (`train`,
    `validation`, `test`, and what else is to be said: `type`, `text`, `label`, ...); or several of
    either by the name of their task. The columns decide about what is not said.
    """
    entries, place = write_frames(to_entries(data), Path(folder))
    tasks: dict[str, Proposal] = {}
    skipped: list[str] = []
    for name, entry in entries.items():
        proposals, reasons = propose(name, entry)
        skipped += reasons
        tasks |= {free_name(own, tasks): proposal for own, proposal in proposals}
    refuse_twins(tasks)
    if place:
        write_text(place / "mops.yaml", starter(tasks, skipped, place))
    return {name: proposal.entry for name, proposal in tasks.items()}


def refuse_twins(tasks: Mapping[str, Proposal]) -> None:
    """Refuse two tasks whose entries are equal: the label would be learnt twice."""
    names: dict[str, str] = {}
    for name, proposal in tasks.items():
        other = names.setdefault(repr(sorted(proposal.entry.items())), name)
        if other != name:
            label = label_name(proposal.entry)
            raise DataError(
                f"tasks {other!r} and {name!r} both learn the column {label!r} of the same table; "
                "leave out one, or name another column as its `label`"
            )


def to_entries(data: Any) -> dict[str, Entry]:
    """Task -> its entry, with tables in it; "" is the name of tasks that are named by a column."""

    def entry(value: Any) -> Entry:
        keys = value if isinstance(value, Mapping) else {"train": value}
        return {SPLIT_WORDS.get(str(key).lower(), str(key)): own for key, own in keys.items()}

    if not isinstance(data, Mapping) or "train" in data:
        return {"": entry(data)}
    entries = {str(name): entry(value) for name, value in data.items()}
    for name, own in entries.items():
        if not NAME.fullmatch(name):
            allowed = "small letters, digits, '_' and '-'"
            raise RecipeError(f"task {name!r}: a name may contain only {allowed}; rename it")
        if "train" not in own:
            raise RecipeError(
                f"task {name!r} has no training rows; found {', '.join(own) or 'nothing'}; give a "
                "table, or `train` with a table or the name of a file"
            )
    return entries


def write_frames(
    entries: Mapping[str, Entry], folder: Path
) -> tuple[dict[str, Entry], Path | None]:
    """The entries with files in place of tables, and the folder of these files, if there are any.

    Equal tables are one file, so that their tasks share its rows.
    """
    files: dict[bytes, str] = {}  # content -> name
    named = {name: dict(entry) for name, entry in entries.items()}
    for name, entry in named.items():
        for split in (split for split in SPLITS if split in entry):
            if is_name(value := entry[split]):
                is_hub = str(value).startswith(HUB)
                entry[split] = str(value) if is_hub else str(Path(str(value)).resolve())
            elif split != "train" or not isinstance(value, Mapping):  # else files with weights
                rows = read_frame(value, f"{split} of {name!r}" if name else split)
                lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
                own = f"{name or 'data'}.{split}.jsonl"
                entry[split] = files.setdefault(lines.encode("utf-8", "replace"), own)
    content = hashlib.sha256()
    for data, file in files.items():
        content.update(f"{file}:{hashlib.sha256(data).hexdigest()}\n".encode())
    place = folder.resolve() / content.hexdigest()[:DIGEST_LENGTH]
    for data, file in files.items():
        write_once(place / file, data)
    for entry in named.values():
        written = [split for split in SPLITS if entry.get(split) in files.values()]
        entry.update({split: str(place / str(entry[split])) for split in written})
    return named, place if files else None


def write_once(path: Path, data: bytes) -> None:
    """Write a file, unless it is there with this content."""
    if not (path.is_file() and file_digest(path) == hashlib.sha256(data).hexdigest()):
        with atomic_write(path) as draft:
            draft.write_bytes(data)


def propose(name: str, entry: Entry) -> tuple[list[tuple[str, Proposal]], list[str]]:
    """The tasks of an entry by name, and what is left out: as `mops init` decides about files."""
    given = {key: value for key, value in entry.items() if key not in SPLITS}
    for key in (key for key in given if key not in TaskEntry.model_fields):
        raise RecipeError(
            f"{where(name)}: unknown key {key!r}; allowed: "
            f"{', '.join(TaskEntry.model_fields)}.{nearest(key, TaskEntry.model_fields)}"
        )
    if {"type", "text", "label"} <= given.keys():
        split = {} if {"validation", "split"} & entry.keys() else {"split": 0.1}
        return [(name or label_name(entry), Proposal({**entry, **split}))], []
    files = {split: str(entry[split]) for split in SPLITS if split in entry}
    if isinstance(weights := entry["train"], Mapping):
        files["train"], given = next(iter(weights)), {**given, "train": weights}
    try:
        if column := find_label(name, files["train"]):
            given = {"label": column, **given}
        proposals, reasons = infer_set(name, files, {}, given)
    except DataError as error:
        raise DataError(f"{where(name)}: {error}; say `type`, `text` and `label`") from error
    left_out = [f"{Path(file).name}: {reason}" for file, reason in reasons]
    if not proposals or any(file != files["train"] for file, _ in reasons):
        raise DataError(f"{where(name)}: {'; '.join(left_out)}")
    named = [(label_name(proposal.entry), proposal) for _, proposal in proposals]
    return ([(name, one_of(name, named))] if name else named), left_out


def one_of(name: str, named: Sequence[tuple[str, Proposal]]) -> Proposal:
    """The task whose label column has the name, or the only one."""
    for label, proposal in named:
        if to_name(label) == name or len(named) == 1:
            return proposal
    labels = [label for label, _ in named]
    raise DataError(
        f"task {name!r}: no label column has this name; found {', '.join(labels)}."
        f"{nearest(name, labels)} Name the task as its column, say `label`, or give the table "
        "without a name to predict all of them"
    )


def where(name: str) -> str:
    """The task in a message."""
    return f"task {name!r}" if name else "the table"


def find_label(name: str, file: str) -> str:
    """The column that has the name of the task, if it can be a label."""
    columns = read_sample(file).columns
    own = (c.name for c in columns if to_name(c.name) == name and c.role in LABEL_ROLES)
    return next(own, "")


def label_name(entry: Entry) -> str:
    return label if isinstance(label := entry["label"], str) else "labels"
