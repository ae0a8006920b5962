"""Tests, the bootstrap over rows, and the noise of scores over seeds. numpy and scipy only.

The noise model. A score of candidate c, trained with seed s, is its true mean plus four terms:

    run      a_cs    the run: initial weights, order, dropout
    rows     r       these rows suit all models
             r_c     these rows suit this candidate, whatever the seed
             e_cs    these rows suit this one run

The difference d_s of two candidates on the same rows has lost r. Its mean over S seeds has

    variance = V(r_c - r_b) + [ V(a_c) + V(e_c) + V(a_b) + V(e_b) ] / S

Resampled rows (`row_covariance`) move d_s by r_c - r_b + e_cs - e_bs: the covariance between two
seeds is the first term. The variance of a score over seeds, where r_c is constant, is V(a) + V(e).
So their sum counts each term once. (Rows resampled for the mean over seeds contain V(e) / S too;
added to the variance over seeds, it would count twice.) The variance over rows alone is a floor.

The row part is well known; the variance over two to five seeds is not. So it is pooled over the
candidates of the survey, as in an analysis of variance, and the sum has the degrees of freedom of
Satterthwaite (1946):

    freedom = freedom of the runs x (variance / run part)^2

Pooling assumes that the runs of all candidates scatter alike. There are two guards: a candidate
that scatters clearly more (Fisher's test against the median) is left out of the pool and keeps its
own variance, and no pair has less than its own two variances. The runs of two candidates are taken
as independent: if a seed moves both the same way, the true error is smaller.

Why seeds matter: Bouthillier et al. 2021, Accounting for variance in machine learning benchmarks.

Shapes: N rows, R runs (a candidate with a seed), B resamples at once, C candidates, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from mops.data.schedule import generator
from mops.evaluate.metrics import Metric, metrics_of
from mops.tasks import Task

Values = NDArray[np.float64]
LEVEL = 0.05  # of the tests, after Holm's correction
RESAMPLES = 1000  # a standard error to about 2 %
AT_ONCE = 50  # resamples in memory
FLAT = 1e-12  # of the mean square: a smaller variance is rounding
ODD = 0.01  # level of the test for a candidate that scatters more, over all candidates


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
    found_BR: Values = counts_BN @ is_right_RN.T / len(targets_N)
    return found_BR


def pearsons(counts_BN: Values, targets_N: Values, predictions_RN: Values) -> Values:
    """By weighted moments; 0 where a side is constant, as in `metrics.pearson`."""
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


# ------------------------------------------------------------------ the noise over seeds


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, of a score or of a difference."""

    value: float
    stderr: float
    freedom: float  # degrees of freedom of the error
    seeds: int


@dataclass(frozen=True)
class RunNoise:
    """How far the scores of a candidate scatter over seeds, as variances."""

    own: Mapping[str, float]  # of candidates that scatter clearly more
    own_freedom: Mapping[str, int]
    pooled: float  # of each of the others
    pooled_freedom: int

    def sum_variances(self, names: Collection[str]) -> tuple[float, float]:
        """The sum of the candidates' variances, and its degrees of freedom."""
        odd = [name for name in names if name in self.own]
        pooled = (len(names) - len(odd)) * self.pooled
        total = sum(self.own[name] for name in odd) + pooled
        doubt = sum(self.own[name] ** 2 / self.own_freedom[name] for name in odd)
        doubt += pooled**2 / self.pooled_freedom
        return total, (total**2 / doubt if doubt else math.inf)


@dataclass(frozen=True)
class ScoredRuns:
    """One score of every run on the same rows."""

    at: Mapping[str, Mapping[int, int]]  # candidate -> seed -> index of that run
    values_R: Values
    covariance_RR: Values  # over resampled rows

    def seeds(self, *names: str) -> list[int]:
        """The seeds that all of these candidates have."""
        return sorted(set.intersection(*(set(self.at[name]) for name in names)))

    def values(self, name: str) -> Values:
        return self.values_R[list(self.at[name].values())]

    @cached_property
    def noise(self) -> RunNoise:
        return run_noise({name: self.values(name) for name in self.at})

    def mean(self, name: str, minus: str | None = None) -> Mean | None:
        """The mean over a candidate's seeds, or of its difference over common seeds."""
        names = [name, minus] if minus else [name]
        seeds = self.seeds(*names)
        if not seeds:
            return None
        at_CS = np.array([[self.at[name][seed] for seed in seeds] for name in names])
        sign_C = np.array([1.0, -1.0])[: len(names)]
        moved_CSCS = self.covariance_RR[at_CS[:, :, None, None], at_CS]
        rows_SS = np.einsum("c,csdt,d->st", sign_C, moved_CSCS, sign_C)
        stderr, freedom = error(rows_SS, self.values_R[at_CS], *self.noise.sum_variances(names))
        return Mean(float(sign_C @ self.values_R[at_CS].mean(1)), stderr, freedom, len(seeds))


def error(rows_SS: Values, values_CS: Values, noise: float, freedom: float) -> tuple[float, float]:
    """Standard error of a mean over seeds and its degrees of freedom; with one seed, over rows."""
    count = len(rows_SS)
    floor = max(0.0, float(rows_SS.mean()))
    if count == 1:
        return math.sqrt(floor), math.inf
    shared = max(0.0, float(rows_SS.sum() - rows_SS.trace()) / (count * (count - 1)))
    runs = max(noise, float(values_CS.var(1, ddof=1).sum())) / count
    total = max(floor, shared + runs)
    ratio = total / runs if runs else math.inf
    return math.sqrt(total), freedom * ratio * ratio


def run_noise(values: Mapping[str, Values]) -> RunNoise:
    """Variances over seeds, pooled over the candidates that scatter alike."""
    several = {name: scores for name, scores in values.items() if len(scores) > 1}
    own = {name: float(scores.var(ddof=1)) for name, scores in several.items()}
    freedom = {name: len(scores) - 1 for name, scores in several.items()}
    odd = scattered(own, freedom)
    alike = [name for name in own if name not in odd]
    pooled_freedom = sum(freedom[name] for name in alike)
    total = sum(own[name] * freedom[name] for name in alike)
    return RunNoise(
        own={name: own[name] for name in odd},
        own_freedom=freedom,
        pooled=total / max(1, pooled_freedom),
        pooled_freedom=max(1, pooled_freedom),
    )


def scattered(own: Mapping[str, float], freedom: Mapping[str, int]) -> set[str]:
    """Candidates whose variance is clearly above the common one that the median suggests.

    The median, because a learning rate that is too high may wreck several candidates; it is
    corrected by that of chi-squared, about k (1 - 2/9k)^3 (Wilson and Hilferty 1931).
    """
    from scipy.special import fdtrc

    if not own:
        return set()
    usual = float(np.median([v / (1 - 2 / (9 * freedom[name])) ** 3 for name, v in own.items()]))
    if usual == 0:
        return {name for name, variance in own.items() if variance > 0}
    all_freedom, level = sum(freedom.values()), ODD / len(own)
    return {
        name
        for name, variance in own.items()
        if fdtrc(freedom[name], all_freedom, variance / usual) < level
    }
