"""Stored predictions of a task, scored again against what the record says of them."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mops.errors import RunError
from mops.evaluate.metrics import score
from mops.tasks import Task

Values = NDArray[np.float64]
Words = NDArray[np.str_]
SPLIT_OF = {"report": "validation", "test": "test"}  # the rows that judge -> the file they are in
PARTS_OF = {"report": ("validation", "selection", "report"), "test": ("test",)}  # in that file
TOLERANCE = 1e-6  # what is written is what was scored; the rest is summation order


@dataclass(frozen=True)
class Marked:
    """Predictions beside their targets: the rows of a file that can be scored."""

    ids: Words
    predictions: Values
    targets: Values
    half: Words  # selection or report; of a test file: test

    def part(self, name: str) -> Marked:
        """The rows of a half; `validation` is both."""
        where = (self.half == name) | (name == "validation")
        return Marked(
            self.ids[where], self.predictions[where], self.targets[where], self.half[where]
        )

    @property
    def key(self) -> str:
        """Names the rows and their targets, whatever was predicted."""
        return hashlib.sha256(self.ids.tobytes() + self.targets.tobytes()).hexdigest()


def read_predictions(path: Path, task: Task) -> Marked:
    """The rows of a file that have a label and belong to a half, where there are halves."""
    whole = path.stem.removeprefix(f"{task.name}-")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        answer, label = header.index("prediction"), header.index("label")
        half = header.index("half") if "half" in header else None
        kept = [row for row in rows if row[label] and (half is None or row[half])]
        number, own_id = number_of(task), header.index("id")
        return Marked(
            ids=np.array([row[own_id] for row in kept], np.str_),
            predictions=np.array([number(row[answer]) for row in kept], np.float64),
            targets=np.array([number(row[label]) for row in kept], np.float64),
            half=np.array([whole if half is None else row[half] for row in kept], np.str_),
        )
    except (OSError, ValueError, KeyError, IndexError) as cause:
        raise RunError(f"{path} cannot be read as predictions of {task.name}: {cause!r}") from cause


def number_of(task: Task) -> Callable[[str], float]:
    """A written answer as the number that is scored."""
    return float if task.is_similarity else {w: n for n, w in enumerate(task.labels)}.__getitem__


def mismatches(
    task: Task, rows: Marked, stored: Mapping[str, Mapping[str, Any]], on: str
) -> Iterator[str]:
    """Where the scores of stored predictions are not those of the record, one sentence each."""
    if on not in stored or on not in rows.half:
        yield f"there are no labelled rows of {on!r} to judge on"
    for part in PARTS_OF[on]:
        if part not in stored:
            continue
        here = rows.part(part)
        found = score(task, here.targets, here.predictions) if len(here.ids) else {"rows": 0}
        for key in (key for key in stored[part] if key != "stderr"):
            was, now = stored[part][key], found.get(key, np.nan)
            if not abs(now - was) <= TOLERANCE:
                yield f"{key} on {part} is {now:.6g}, recorded is {was:.6g}"
