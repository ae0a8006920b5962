"""The scores of tasks, their errors over rows, and the overall scores. numpy only."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from mops.kinds.metrics import Answers, Metric
from mops.tasks import CORRELATIONS, Task

Values = NDArray[np.float64]
Weights = Mapping[str, float]  # what tasks count in an overall score; others count 1
EQUAL: Weights = {}
RESAMPLES = 500
AT_ONCE = 50  # resamples in memory


def metrics_of(task: Task) -> dict[str, Metric]:
    return task.answer.metrics(task)


def score(task: Task, targets: Answers, predictions: Answers) -> dict[str, float]:
    """All scores that fit the task, and the number of rows they are over."""
    scores = {name: metric(targets, predictions) for name, metric in metrics_of(task).items()}
    return {**scores, "rows": len(targets)}


def standard_error(task: Task, targets: Answers, predictions: Answers) -> float:
    """Of the task's own score, by bootstrap over rows."""
    resample = metrics_of(task)[task.score_name].resampler(targets, predictions)
    return float(np.std(np.concatenate([*map(resample, resamples(len(targets)))]), ddof=1))


def resamples(rows: int) -> Iterator[Values]:
    """B x N: how often each row was drawn."""
    draw = np.random.default_rng(0)
    for _ in range(0, RESAMPLES, AT_ONCE):
        picks = (draw.integers(0, rows, rows) for _ in range(AT_ONCE))
        yield np.stack([np.bincount(pick, minlength=rows).astype(float) for pick in picks])


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
