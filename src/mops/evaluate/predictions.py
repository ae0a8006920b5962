"""The reader of prediction files, predictions/TASK-SPLIT.csv. No torch.

    rows = read_predictions(run / "predictions" / "sentiment-report.csv", task)
    rows.targets, rows.values, rows.columns["id"], rows.numbers("loss")

`evaluate.write_predictions` writes them.
"""

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
JUDGING = ("report", "test")  # the files whose rows judge: validation rows cross-fitted, test rows


@dataclass(frozen=True)
class PredictionRows:
    """The labelled rows of a file of predictions, in the order of the file."""

    task: Task
    columns: Mapping[str, Strings]  # as written: id, prediction, label, confidence, loss
    places: NDArray[np.int64]  # row numbers in the file, from 0
    values: Values  # the predictions: class indices or similarities
    targets: Values

    def numbers(self, name: str) -> Values:
        """A numeric column, NaN where a cell is empty."""
        return np.array([float(text or "nan") for text in self.columns[name]], np.float64)

    @cached_property
    def digest(self) -> str:
        """Identifies the rows and their targets, whatever was predicted."""
        ids = "\n".join(self.columns["id"]).encode()
        return hashlib.sha256(ids + self.targets.tobytes()).hexdigest()


def read_predictions(path: Path, task: Task) -> PredictionRows:
    """The rows of a file that have a label."""
    try:
        columns = read_columns(path)
        scored = columns["label"] != ""
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
