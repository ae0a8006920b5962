"""Tests, and the noise of rows and of runs; `joint.py` has the model. numpy and scipy only.

Shapes: N rows, R runs (a candidate with a seed), C candidates, B resamples at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mops.data.schedule import generator
from mops.evaluate.metrics import AT_ONCE, Values, metrics_of
from mops.kinds.metrics import Answers
from mops.tasks import Task

RunAnswers = Mapping[int, Mapping[str, Answers]]  # seed -> task -> predictions
RunValues = Mapping[str, Mapping[int, float]]  # candidate -> seed -> score
LEVEL = 0.05  # of tests and intervals, over the family of a question
RESAMPLES = 1000  # a standard error to about 2 %
# The leader of more candidates than this is likely to be one whose runs scatter more than they seem
# to; then no candidate has less than its own variance.
MANY = 12
ODD = 0.01  # level of the test for a candidate that scatters more, over all candidates


def below_zero(mean: float, stderr: float, count: int) -> float:
    """One-sided p-value of a mean of `count` values this low if the true mean is 0."""
    from scipy.special import stdtr  # here: scipy takes longer to import than most commands run

    if stderr == 0:
        return 0.0 if mean < 0 else 1.0
    return float(stdtr(count - 1, mean / stderr))  # Student's distribution


def mcnemar(right: NDArray[np.bool_], baseline: NDArray[np.bool_]) -> float:
    """Exact two-sided p-value (McNemar 1947) that two models are equally often right."""
    from scipy.special import bdtr

    only, other = int(np.sum(right & ~baseline)), int(np.sum(baseline & ~right))
    return min(1.0, 2 * float(bdtr(min(only, other), only + other, 0.5)))


def mcnemar_by_task(
    tasks: Mapping[str, Task], targets: Mapping[str, Answers], own: RunAnswers, baseline: RunAnswers
) -> dict[str, tuple[float, ...]]:
    """For each task that is scored by accuracy; nothing for the baseline itself."""
    seeds = sorted(own.keys() & baseline.keys()) if own is not baseline else []
    return {
        name: tuple(
            mcnemar(own[seed][name] == targets[name], baseline[seed][name] == targets[name])
            for seed in seeds
        )
        for name, task in tasks.items()
        if seeds and task.score_name == "accuracy"
    }


def holm(p: Sequence[float]) -> Values:
    """Adjusted p-values of a family of tests (Holm 1979)."""
    given = np.asarray(p, dtype=float)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * (len(given) - np.arange(len(given))))
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


@dataclass(frozen=True)
class RowNoise:
    """What finite rows add to the noise of a score; candidates in the order of the survey."""

    shared: tuple[tuple[float, ...], ...]  # C x C: covariance between runs of different seeds
    within: tuple[float, ...]  # C: variance of a single run beyond that

    def scaled(self, factor: float) -> tuple[Values, Values]:
        """Both parts of a score that is `factor` times as large."""
        return factor**2 * np.array(self.shared), factor**2 * np.array(self.within)


def row_noise(
    covariance: Callable[[Values], Values], answers: Mapping[str, Mapping[int, Values]]
) -> RowNoise:
    """From a value of each row in all runs: candidate -> seed -> N predictions or probabilities.

    `covariance` is that of the runs' scores over rows: `row_covariance`, `mean_covariance`.
    """
    seeds_R = np.array([seed for by_seed in answers.values() for seed in by_seed])
    member_RC = np.repeat(np.eye(len(answers)), [len(seeds) for seeds in answers.values()], axis=0)
    runs_RN = np.stack([y_N for by_seed in answers.values() for y_N in by_seed.values()])
    covariance_RR = covariance(runs_RN)
    is_apart_RR = seeds_R[:, None] != seeds_R
    pairs_CC = member_RC.T @ is_apart_RR @ member_RC
    shared_CC = member_RC.T @ (covariance_RR * is_apart_RR) @ member_RC / np.maximum(pairs_CC, 1)
    sizes_C = member_RC.sum(0)
    all_CC = member_RC.T @ covariance_RR @ member_RC / np.outer(sizes_C, sizes_C)
    shared_CC = np.where(pairs_CC > 0, shared_CC, all_CC)  # two candidates with one common seed
    total_C = np.diag(covariance_RR) @ member_RC / sizes_C
    within_C = np.maximum(0.0, total_C - np.diag(shared_CC))
    if (is_several_C := sizes_C > 1).any():  # one run cannot tell both parts apart
        within_C = np.where(is_several_C, within_C, within_C[is_several_C].mean())
    np.fill_diagonal(shared_CC, np.maximum(0.0, total_C - within_C))
    return RowNoise(tuple(map(tuple, shared_CC.tolist())), tuple(within_C.tolist()))


def row_covariance(task: Task, targets: Answers, predictions: Sequence[Answers]) -> Values:
    """R x R: covariance of the runs' scores over resampled rows (Efron 1979).

    All runs meet the same resampled rows, so what is hard for all cancels in a difference.
    """
    metric = metrics_of(task)[task.score_name]
    runs = [metric.resampler(targets, own) for own in predictions]
    moved = [
        np.stack([resample(counts_BN) for resample in runs], axis=1)
        for counts_BN in resamples(task.name, len(targets))
    ]
    return np.atleast_2d(np.cov(np.concatenate(moved), rowvar=False))


def mean_covariance(values_RN: Values) -> Values:
    """R x R: the same for means over rows, where no resampling is needed."""
    return np.asarray(np.atleast_2d(np.cov(values_RN)) / values_RN.shape[1])


def resamples(name: str, rows: int) -> Iterator[Values]:
    """B x N: how often each row was drawn; follows from the task's name and the number of rows."""
    draw = generator(0, "resampled-rows", name)
    for _ in range(0, RESAMPLES, AT_ONCE):
        picks = draw.integers(0, rows, (AT_ONCE, rows)) + rows * np.arange(AT_ONCE)[:, None]
        counts = np.bincount(picks.ravel(), minlength=AT_ONCE * rows)
        yield counts.reshape(AT_ONCE, rows).astype(float)


@dataclass(frozen=True)
class RunNoise:
    """How far single runs scatter."""

    variance_C: Values  # of one run of each candidate
    own_C: Values  # the same from its own seeds alone; 0 with one
    block: float  # variance of the effect that a seed has on all candidates
    freedom: int  # degrees of freedom of the pooled variance; 0: one seed each


def run_noise(values: RunValues, within_C: Values) -> RunNoise:
    """Variances over seeds: pooled over candidates that scatter alike, but at least of rows."""
    from scipy.special import stdtrit  # the quantile of Student's distribution

    own = {c: float(np.var(list(v.values()), ddof=1)) for c, v in values.items() if len(v) > 1}
    odd = scattered(own, {name: len(values[name]) - 1 for name in own})
    alike = {name: by_seed for name, by_seed in values.items() if name not in odd}
    pooled, block, freedom, adjusted = two_way(alike)
    own |= {name: variance for name, variance in adjusted.items() if name in own}
    if freedom:  # so few runs tell little about their own variance
        quantile = float(stdtrit(freedom, LEVEL / 2))
        for name in odd:
            own[name] *= (float(stdtrit(len(values[name]) - 1, LEVEL / 2)) / quantile) ** 2
    own_C = np.array([own.get(name, 0.0) for name in values])
    is_own_C = np.array([name in odd or len(values) > MANY for name in values])
    variance_C = np.maximum(np.where(is_own_C, np.maximum(pooled, own_C), pooled), within_C)
    return RunNoise(variance_C if own else own_C, own_C, block, freedom)


def two_way(values: RunValues) -> tuple[float, float, int, dict[str, float]]:
    """The analysis of variance of candidates x seeds, where cells may be missing.

    Returns the residual variance, the variance of the seeds' effects, the degrees of freedom of
    the residual, and each candidate's own variance around the seeds' effects. Where seeds and runs
    are confounded (one candidate, or no seed in common), seeds have no effect.
    """
    runs = [(n, seed, v) for n, own in enumerate(values.values()) for seed, v in own.items()]
    candidates_R, seeds_R, values_R = np.array(runs).T
    by_candidate = np.equal.outer(candidates_R, np.arange(len(values))).astype(float)
    by_seed = np.equal.outer(seeds_R, np.unique(seeds_R)).astype(float)
    counts_C = by_candidate.sum(0)
    without_R = values_R - by_candidate @ (by_candidate.T @ values_R / counts_C)
    left_R, freedom, block = without_R, len(runs) - len(values), 0.0
    design = np.hstack([by_candidate, by_seed])
    rank = int(np.linalg.matrix_rank(design))
    if len(runs) > rank:
        left_R = values_R - design @ np.linalg.lstsq(design, values_R, rcond=None)[0]
        freedom = len(runs) - rank
        gained = float(without_R @ without_R - left_R @ left_R) / max(1, rank - len(values))
        block = max(0.0, gained - float(left_R @ left_R) / freedom) * by_seed.shape[1] / len(runs)
    if not freedom:
        return 0.0, 0.0, 0, {}
    own_C = by_candidate.T @ left_R**2 * len(runs) / freedom / counts_C
    own = dict(zip(values, own_C.tolist(), strict=True))
    return float(left_R @ left_R) / freedom, block, freedom, own


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
