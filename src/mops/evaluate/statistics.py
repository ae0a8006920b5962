"""Tests, and the bootstrap over rows. numpy and scipy only.

Shapes: N rows, R runs (a candidate with a seed), B resamples at once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mops.data.schedule import generator
from mops.evaluate.metrics import Metric, metrics_of
from mops.tasks import Task

Values = NDArray[np.float64]
LEVEL = 0.05  # of tests and intervals, over the family of a question
RESAMPLES = 1000  # a standard error to about 2 %
AT_ONCE = 50  # resamples in memory
FLAT = 1e-12  # of the mean square: a smaller variance is rounding


# ------------------------------------------------------------------ tests


def student_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's distribution; infinite freedom is the normal distribution."""
    from scipy.special import stdtr  # here: scipy takes longer to import than most commands run

    return float(stdtr(freedom, -t))


def student_quantile(tail: float, freedom: float) -> float:
    """The t with P(T > t) = tail."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, tail))


def below_zero(mean: float, stderr: float, count: int) -> float:
    """One-sided p-value of a mean of `count` values this low if the true mean is 0."""
    if stderr == 0:
        return 0.0 if mean < 0 else 1.0
    return student_tail(-mean / stderr, count - 1)


def off_zero(mean: float, stderr: float, freedom: float = math.inf) -> float:
    """Two-sided p-value of a mean this far from 0 if the true mean is 0."""
    if stderr == 0:
        return 0.0 if mean else 1.0
    return min(1.0, 2 * student_tail(abs(mean) / stderr, freedom))


def mcnemar(right: NDArray[np.bool_], baseline: NDArray[np.bool_]) -> float:
    """Exact two-sided p-value (McNemar 1947) that two models are equally often right."""
    from scipy.special import bdtr

    only, other = int(np.sum(right & ~baseline)), int(np.sum(baseline & ~right))
    return min(1.0, 2 * float(bdtr(min(only, other), only + other, 0.5)))


def holm(p: Sequence[float]) -> Values:
    """Adjusted p-values of a family of tests (Holm 1979)."""
    given = np.asarray(p, dtype=float)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * (len(given) - np.arange(len(given))))
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


# ------------------------------------------------------------------ the bootstrap over rows


def row_covariance(task: Task, targets_N: Values, predictions_RN: Values) -> Values:
    """R x R: covariance of the runs' scores over resampled rows (Efron 1979).

    All runs meet the same resampled rows, so what is hard for all cancels in a difference.
    """
    name = task.score_name
    score_BR = BY_PRODUCTS.get(name) or partial(one_by_one, metrics_of(task)[name])
    moved = [score_BR(c, targets_N, predictions_RN) for c in resamples(task.name, len(targets_N))]
    return np.atleast_2d(np.cov(np.concatenate(moved), rowvar=False))


def resamples(name: str, rows: int) -> Iterator[Values]:
    """B x N: how often each row was drawn; follows from the task's name and the number of rows."""
    draw = generator(0, "resampled-rows", name)
    for _ in range(0, RESAMPLES, AT_ONCE):
        picks = draw.integers(0, rows, (AT_ONCE, rows)) + rows * np.arange(AT_ONCE)[:, None]
        counts = np.bincount(picks.ravel(), minlength=AT_ONCE * rows)
        yield counts.reshape(AT_ONCE, rows).astype(float)


def accuracies(counts_BN: Values, targets_N: Values, predictions_RN: Values) -> Values:
    is_right_RN = (predictions_RN == targets_N).astype(float)
    score_BR: Values = counts_BN @ is_right_RN.T / len(targets_N)
    return score_BR


def pearsons(counts_BN: Values, targets_N: Values, predictions_RN: Values) -> Values:
    """By weighted moments; 0 where a side is constant, as in `metrics.pearson`."""
    rows = len(targets_N)
    x_N = targets_N - targets_N.mean()
    y_RN = predictions_RN - predictions_RN.mean(1, keepdims=True)
    x_B1, y_BR = counts_BN @ x_N[:, None] / rows, counts_BN @ y_RN.T / rows
    covariance_BR = counts_BN @ (x_N * y_RN).T / rows - x_B1 * y_BR
    spread_B1 = variance(counts_BN @ x_N[:, None] ** 2 / rows, x_B1)
    spread_BR = spread_B1 * variance(counts_BN @ (y_RN**2).T / rows, y_BR)
    score_BR: Values = np.zeros_like(covariance_BR)
    np.divide(covariance_BR, np.sqrt(spread_BR), out=score_BR, where=spread_BR > 0)
    return score_BR


def variance(mean_square: Values, mean: Values) -> Values:
    left = mean_square - mean**2
    return np.where(left > FLAT * mean_square, left, 0.0)


def one_by_one(
    metric: Metric,
    counts_BN: Values,
    targets_N: Values,
    predictions_RN: Values,
) -> Values:
    """Any score, resample by resample and run by run."""
    numbers = np.arange(len(targets_N))
    picks = [np.repeat(numbers, counts_N.astype(int)) for counts_N in counts_BN]
    return np.array([[metric(targets_N[p], y_N[p]) for y_N in predictions_RN] for p in picks])


BY_PRODUCTS: dict[str, Callable[[Values, Values, Values], Values]] = {
    "accuracy": accuracies,
    "pearson": pearsons,
}
