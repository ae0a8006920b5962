"""How the scores of many runs would move together on other rows: the bootstrap. numpy only.

All runs meet the same resampled rows, so what is hard for all of them cancels in a difference.

Shapes: N rows, R runs (a candidate with a seed), B resamples at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mops.data.schedule import generator
from mops.judge.scores import scores_of
from mops.tasks import Task

Values = NDArray[np.float64]
RESAMPLES = 1000  # a standard error to about 2 %
AT_ONCE = 50  # resamples in memory
FLAT = 1e-12  # of the mean square: a smaller variance is rounding


def row_covariance(task: Task, targets_N: Values, predictions_RN: Values) -> Values:
    """R x R: of the task's own score between runs, over resampled rows (Efron 1979)."""
    name = task.score_name
    score_BR = BY_PRODUCTS.get(name) or partial(one_by_one, scores_of(task)[name])
    moved = [score_BR(c, targets_N, predictions_RN) for c in resamples(task.name, len(targets_N))]
    return np.atleast_2d(np.cov(np.concatenate(moved), rowvar=False))


def resamples(name: str, rows: int) -> Iterator[Values]:
    """B x N: how often each row was drawn. The same whenever the name and the rows are."""
    draw = generator(0, "resampled-rows", name)
    for _ in range(0, RESAMPLES, AT_ONCE):
        picks = draw.integers(0, rows, (AT_ONCE, rows)) + rows * np.arange(AT_ONCE)[:, None]
        counts = np.bincount(picks.ravel(), minlength=AT_ONCE * rows)
        yield counts.reshape(AT_ONCE, rows).astype(float)


def accuracies(counts_BN: Values, targets_N: Values, predictions_RN: Values) -> Values:
    is_right_RN = (predictions_RN == targets_N).astype(float)
    found_BR: Values = counts_BN @ is_right_RN.T / len(targets_N)
    return found_BR


def pearsons(counts_BN: Values, targets_N: Values, predictions_RN: Values) -> Values:
    """By weighted moments; 0 where a side is constant, as in `scores.pearson`."""
    rows = len(targets_N)
    x_N = targets_N - targets_N.mean()
    y_RN = predictions_RN - predictions_RN.mean(1, keepdims=True)
    x_B1, y_BR = counts_BN @ x_N[:, None] / rows, counts_BN @ y_RN.T / rows
    covariance_BR = counts_BN @ (x_N * y_RN).T / rows - x_B1 * y_BR
    spread_B1 = variance(counts_BN @ x_N[:, None] ** 2 / rows, x_B1)
    spread_BR = spread_B1 * variance(counts_BN @ (y_RN**2).T / rows, y_BR)
    found_BR: Values = np.zeros_like(covariance_BR)
    np.divide(covariance_BR, np.sqrt(spread_BR), out=found_BR, where=spread_BR > 0)
    return found_BR


def variance(mean_square: Values, mean: Values) -> Values:
    left = mean_square - mean**2
    return np.where(left > FLAT * mean_square, left, 0.0)


def one_by_one(
    of: Callable[[Values, Values], float],
    counts_BN: Values,
    targets_N: Values,
    predictions_RN: Values,
) -> Values:
    """Any score, resample by resample and run by run."""
    numbers = np.arange(len(targets_N))
    picks = [np.repeat(numbers, counts_N.astype(int)) for counts_N in counts_BN]
    return np.array([[of(targets_N[p], y_N[p]) for y_N in predictions_RN] for p in picks])


BY_PRODUCTS: dict[str, Callable[[Values, Values, Values], Values]] = {
    "accuracy": accuracies,
    "pearson": pearsons,
}
