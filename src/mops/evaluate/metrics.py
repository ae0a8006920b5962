"""Scores over a whole split, never averaged over batches. numpy only.

Targets and predictions are class numbers for classes, values for a similarity.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mops.tasks import CORRELATIONS, Task

Values = NDArray[np.float64]
Metric = Callable[[Values, Values], float]  # of targets and predictions
TableMetric = Callable[[Values], float]  # of a confusion matrix: rows are targets
Weights = Mapping[str, float]  # what tasks count in an overall score; others count 1
EQUAL: Weights = {}
RESAMPLES = 500


def accuracy(targets: Values, predictions: Values) -> float:
    return float(np.mean(targets == predictions))


def of_confusion(metric: TableMetric, classes: int, targets: Values, predictions: Values) -> float:
    """The metric of the confusion matrix, which also has classes that do not occur."""
    flat = targets.astype(int) * classes + predictions.astype(int)
    counts = np.bincount(flat, minlength=classes**2)
    return metric(counts.reshape(classes, classes).astype(float))


def class_ratio(table: Values, whole: Values, times: int = 1) -> float:
    """Right answers by `whole`: of the second of two classes, or the mean over those that occur."""
    right: Values = times * np.diag(table)
    ratio = np.divide(right, whole, out=np.zeros_like(right), where=whole > 0)
    occurs = (table.sum(0) + table.sum(1)) > 0
    return float(ratio[1] if len(ratio) == 2 else ratio[occurs].mean())


def matthews(table: Values) -> float:
    """The correlation of two classifications (Gorodkin 2004); 0 when one of them is constant."""
    true, guessed, n = table.sum(1), table.sum(0), table.sum()
    covariance = np.trace(table) * n - true @ guessed
    spread = np.sqrt((n**2 - guessed @ guessed) * (n**2 - true @ true))
    return float(covariance / spread) if spread > 0 else 0.0


OF_CONFUSION: dict[str, TableMetric] = {
    "f1": lambda table: class_ratio(table, table.sum(0) + table.sum(1), times=2),
    "precision": lambda table: class_ratio(table, table.sum(0)),
    "recall": lambda table: class_ratio(table, table.sum(1)),
    "matthews": matthews,
}


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


def metrics_of(task: Task) -> dict[str, Metric]:
    if task.is_similarity:
        return {"pearson": pearson, "spearman": spearman}
    classes = len(task.labels)
    tables = {name: partial(of_confusion, table, classes) for name, table in OF_CONFUSION.items()}
    return {"accuracy": accuracy, **tables}


def score(task: Task, targets: Values, predictions: Values) -> dict[str, float]:
    """All scores that fit the task, and the number of rows they are over."""
    scores = {name: metric(targets, predictions) for name, metric in metrics_of(task).items()}
    return {**scores, "rows": len(targets)}


def standard_error(task: Task, targets: Values, predictions: Values) -> float:
    """Of the task's own score, by bootstrap over rows."""
    metric = metrics_of(task)[task.score_name]
    draw = np.random.default_rng(0)
    picks = (draw.integers(0, len(targets), len(targets)) for _ in range(RESAMPLES))
    return float(np.std([metric(targets[pick], predictions[pick]) for pick in picks], ddof=1))


OVERALL = ("overall", "overall_normalised")


def overall_scores(tasks: Mapping[str, Task], scores: Mapping[str, float]) -> dict[str, float]:
    """The mean of the tasks' own scores; and with (r + 1) / 2 in place of a correlation r."""
    known = {task: scores[name] for name, task in tasks.items() if name in scores}
    moved = [(r + 1) / 2 if task.score_name in CORRELATIONS else r for task, r in known.items()]
    means = float(np.mean([*known.values()])), float(np.mean(moved))
    return dict(zip(OVERALL, means, strict=True))


# A secondary score of a survey: the overall score with the mean probability of the right class in
# place of accuracies. It tells candidates apart with fewer rows.
SOFT = "overall_soft"


def soft_key(task: str) -> str:
    """The name of a task's soft score beside its main score."""
    return f"{task} soft"
