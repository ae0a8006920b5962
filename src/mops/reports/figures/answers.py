"""What a candidate answered to the rows that judge, read from its predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mops.reports.figures.colours import heads
from mops.reports.figures.curves import first_trials
from mops.reports.material import Material, TrialFiles
from mops.surveys.results.rescoring import number_of
from mops.tasks import Task

Values = NDArray[np.float64]
COMPARED = 2


@dataclass(frozen=True)
class Answered:
    """The answers of one training to the rows of a task; classes as their numbers."""

    trial: TrialFiles
    task: Task
    targets: Values
    predictions: Values
    confidence: Values | None  # in the answered class; older files do not have it

    @property
    def scored(self) -> str:
        """Its score, as the summary has it."""
        found = self.trial.facts.scores.get(self.task.name)
        return "" if found is None else f"{self.task.score_name} {found:.3f}"


def answers_of(material: Material) -> Iterator[list[Answered]]:
    """For each task the recommended candidate and the baseline; if it is that, a model per task."""
    trials = first_trials(material)
    shown = [trials[name] for name in heads(material) if name in trials][:COMPARED]
    for name in material.summary.tasks:
        found = [read_answers(trial, name, material.summary.on) for trial in shown]
        known = [one for one in found if one is not None]
        if known:
            yield known


def read_answers(trial: TrialFiles, name: str, on: str) -> Answered | None:
    """None where the file is not there, is empty, or says something else than the task."""
    try:
        task = trial.recipe.task_values()[name]
        columns = read_columns(trial.predictions(name, on), on)
        number = number_of(task)
        targets, predictions = (
            np.array([number(word) for word in columns[key]], np.float64)
            for key in ("label", "prediction")
        )
        sure = columns.get("confidence", [""])
        has_it = all(sure) and not task.is_similarity
        confidence = np.array(sure, np.float64) if has_it else None
        return Answered(trial, task, targets, predictions, confidence) if len(targets) else None
    except (OSError, ValueError, KeyError, IndexError):
        return None


def read_columns(path: Path, on: str) -> dict[str, list[str]]:
    """The rows with a label, of the half that judges where there are halves."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    label, half = header.index("label"), header.index("half") if "half" in header else None
    kept = [row for row in rows if row[label] and (half is None or row[half] == on)]
    return dict(zip(header, map(list, zip(*kept, strict=True)), strict=True)) if kept else {}
