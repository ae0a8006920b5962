"""Scores over a whole split, never averaged over batches. numpy only.

Targets and predictions are class numbers for classes, values for a similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mops.tasks import CORRELATIONS, Task

Values = NDArray[np.float64]
RESAMPLES = 500


def accuracy(targets: Values, predictions: Values) -> float:
    return float(np.mean(targets == predictions))


def confusion(targets: Values, predictions: Values, classes: int) -> Values:
    """Rows: targets; columns: predictions; also for classes that do not occur here."""
    flat = targets.astype(int) * classes + predictions.astype(int)
    return np.bincount(flat, minlength=classes**2).reshape(classes, classes).astype(float)


def of_classes(part: Values, whole: Values, table: Values) -> float:
    """The second of two classes alone, or the plain mean over more of them that occur."""
    ratio = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    occurs = (table.sum(0) + table.sum(1)) > 0
    return float(ratio[1] if len(ratio) == 2 else ratio[occurs].mean())


def precision(targets: Values, predictions: Values, classes: int) -> float:
    table = confusion(targets, predictions, classes)
    return of_classes(np.diag(table).copy(), table.sum(0), table)


def recall(targets: Values, predictions: Values, classes: int) -> float:
    table = confusion(targets, predictions, classes)
    return of_classes(np.diag(table).copy(), table.sum(1), table)


def f1(targets: Values, predictions: Values, classes: int) -> float:
    table = confusion(targets, predictions, classes)
    return of_classes(2 * np.diag(table), table.sum(0) + table.sum(1), table)


def matthews(targets: Values, predictions: Values, classes: int) -> float:
    """The correlation of two classifications (Gorodkin 2004); 0 when one of them is constant."""
    table = confusion(targets, predictions, classes)
    true, guessed, n = table.sum(1), table.sum(0), table.sum()
    covariance = np.trace(table) * n - true @ guessed
    spread = np.sqrt((n**2 - guessed @ guessed) * (n**2 - true @ true))
    return float(covariance / spread) if spread > 0 else 0.0


def pearson(targets: Values, predictions: Values) -> float:
    """The linear correlation; 0 when one side is constant, where it is not defined."""
    x, y = targets - targets.mean(), predictions - predictions.mean()
    spread = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / spread) if spread > 0 else 0.0


def spearman(targets: Values, predictions: Values) -> float:
    return pearson(ranks(targets), ranks(predictions))


def ranks(values: Values) -> Values:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Values = (last - counts + last - 1) / 2
    return means[inverse]


OF_TABLES: dict[str, Callable[..., float]] = {
    "f1": f1,
    "precision": precision,
    "recall": recall,
    "matthews": matthews,
}
OF_VALUES: dict[str, Callable[[Values, Values], float]] = {
    "pearson": pearson,
    "spearman": spearman,
}


def scores_of(task: Task) -> dict[str, Callable[[Values, Values], float]]:
    if task.is_similarity:
        return OF_VALUES
    tables = {name: partial(of, classes=len(task.labels)) for name, of in OF_TABLES.items()}
    return {"accuracy": accuracy, **tables}


def score(task: Task, targets: Values, predictions: Values) -> dict[str, float]:
    """All scores that fit the task, and the number of rows they are over."""
    found = {name: of(targets, predictions) for name, of in scores_of(task).items()}
    return {**found, "rows": len(targets)}


def standard_error(task: Task, targets: Values, predictions: Values, seed: int = 0) -> float:
    """Of the task's own score, by bootstrap over rows."""
    of = scores_of(task)[task.score_name]
    draw = np.random.default_rng(seed)
    picks = (draw.integers(0, len(targets), len(targets)) for _ in range(RESAMPLES))
    return float(np.std([of(targets[pick], predictions[pick]) for pick in picks], ddof=1))


Weights = Mapping[str, float]  # what tasks count in an overall score; others count 1
EQUAL: Weights = {}


def overall(
    tasks: Mapping[str, Task], scores: Mapping[str, float], weights: Weights = EQUAL
) -> float:
    """The mean of the tasks' own scores."""
    return mean_of({name: scores[name] for name in tasks if name in scores}, weights)


def overall_normalised(
    tasks: Mapping[str, Task], scores: Mapping[str, float], weights: Weights = EQUAL
) -> float:
    """The mean with (r + 1) / 2 in place of a correlation r."""
    moved = {
        name: (scores[name] + 1) / 2 if task.score_name in CORRELATIONS else scores[name]
        for name, task in tasks.items()
        if name in scores
    }
    return mean_of(moved, weights)


def mean_of(scores: Mapping[str, float], weights: Weights) -> float:
    """Plain unless there are weights: the same bits as ever."""
    counted = [weights.get(name, 1.0) for name in scores] if weights else None
    return float(np.average(list(scores.values()), weights=counted))


OVERALL = {"overall": overall, "overall_normalised": overall_normalised}
