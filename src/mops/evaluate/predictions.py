"""The reader of prediction files, predictions/TASK-SPLIT.csv. No torch.

    rows = read_predictions(run / "predictions" / "sentiment-validation.csv", task)
    report = rows.part("report")
    report.targets, report.values, report.columns["id"], report.numbers("loss")

`evaluate.write_predictions` writes them.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mops.errors import RunError
from mops.tasks import Task

Values = NDArray[np.float64]
Strings = NDArray[np.object_]
SPLIT_FILE = {"report": "validation", "test": "test"}  # the rows that are reported -> their file


@dataclass(frozen=True)
class PredictionRows:
    """The labelled rows of a file of predictions, in the order of the file."""

    task: Task
    columns: Mapping[str, Strings]  # as written: id, prediction, label, half, confidence, loss
    places: NDArray[np.int64]  # row numbers in the file, from 0
    values: Values  # the predictions: class indices or similarities
    targets: Values

    def part(self, name: str) -> PredictionRows:
        """The rows of one half; `validation` is both halves."""
        chosen = (self.columns["half"] == name) | (name == "validation")
        columns = {key: column[chosen] for key, column in self.columns.items()}
        return PredictionRows(
            self.task, columns, self.places[chosen], self.values[chosen], self.targets[chosen]
        )

    def numbers(self, name: str) -> Values | None:
        """A numeric column, NaN where a cell is empty; None if the file does not have it."""
        if name not in self.columns:
            return None
        return np.array([float(text or "nan") for text in self.columns[name]], np.float64)

    @cached_property
    def digest(self) -> str:
        """Identifies the rows and their targets, whatever was predicted."""
        ids = "\n".join(self.columns["id"]).encode()
        return hashlib.sha256(ids + self.targets.tobytes()).hexdigest()


def read_predictions(path: Path, task: Task) -> PredictionRows:
    """The rows of a file that have a label and, in a validation file, belong to a half."""
    try:
        columns = read_columns(path)
        split = path.stem.removeprefix(f"{task.name}-")
        columns.setdefault("half", np.full(len(columns["id"]), split, np.object_))
        scored = (columns["label"] != "") & (columns["half"] != "")
        columns = {name: column[scored] for name, column in columns.items()}
        indices = {label: float(index) for index, label in enumerate(task.labels)}
        to_number = float if task.is_similarity else indices.__getitem__
        values, targets = (
            np.array(list(map(to_number, columns[name])), np.float64)
            for name in ("prediction", "label")
        )
        return PredictionRows(task, columns, np.flatnonzero(scored), values, targets)
    except (OSError, ValueError, KeyError, IndexError) as cause:
        raise RunError(f"{path} cannot be read as predictions of {task.name}: {cause!r}") from cause


def read_columns(path: Path) -> dict[str, Strings]:
    """The columns of a CSV file; without the csv module where nothing is quoted: 5 x as fast."""
    text = path.read_text("utf-8")
    if '"' in text:
        names, *rows = csv.reader(io.StringIO(text, newline=""))
        cells = [cell for row in rows for cell in row]
    else:
        first, _, rest = text.partition("\n")
        names = first.split(",")
        cells = rest.rstrip("\n").replace("\n", ",").split(",") if rest else []
    if len(cells) % len(names):
        raise ValueError(f"a row does not have the {len(names)} cells of the first line")
    return {n: np.array(cells[i :: len(names)], np.object_) for i, n in enumerate(names)}
