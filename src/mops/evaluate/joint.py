"""The joint estimate of a survey: means of all candidates, their covariance, degrees of freedom.

The noise model. The score of candidate c, trained with seed s, is its true mean plus

    run      a_cs    the run: initial weights, order of rows, dropout
    block    b_s     the seed, if it moves all candidates alike
    rows     r_c     these rows suit this candidate, whatever the seed
             e_cs    these rows suit this one run

What the rows do to all runs alike is a part of r_c and cancels in a difference. The covariance of
the means over S_c and S_d seeds is

    cov(r_c, r_d)  +  [c = d] (V(a) + V(e)) / S_c  +  V(b) |seeds of both| / (S_c S_d)

Resampled rows move two runs of different seeds by cov(r_c, r_d) (`row_noise`), and a single run by
V(e) more. The variance over seeds, where r_c is constant, is V(a) + V(e). So every term counts
once. Two to five seeds say little about V(a) + V(e): it is pooled over candidates, as the residual
of a two-way analysis of variance (candidates x seeds). Three guards: a candidate that scatters
clearly more (Fisher's test against the median) is left out of the pool; no candidate has less than
V(e); and no difference is tested with less than the own variances of its two candidates.

Questions that have several answers are answered as one family, from draws of N(0, covariance):
the set that contains the best candidate (Hsu 1984, Constrained simultaneous confidence intervals
for multiple comparisons with the best) and differences from one candidate (Dunnett 1955).

Why seeds matter: Bouthillier et al. 2021, Accounting for variance in machine learning benchmarks.

Shapes: C candidates, R runs (a candidate with a seed), N rows, D draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mops.data.schedule import generator
from mops.evaluate.statistics import LEVEL, row_covariance, student_quantile
from mops.tasks import Task

Values = NDArray[np.float64]
RunValues = Mapping[str, Mapping[int, float]]  # candidate -> seed -> score
DRAWS = 20_000
TINY = 1e-6  # a difference that is rounding
# The leader of more candidates than this is likely to be one whose runs scatter more than they seem
# to; then no candidate has less than its own variance.
MANY = 12
ODD = 0.01  # level of the test for a candidate that scatters more, over all candidates


@dataclass(frozen=True)
class RowNoise:
    """What finite rows add to the noise of a score; candidates in the order of the survey."""

    shared: tuple[tuple[float, ...], ...]  # C x C: covariance between runs of different seeds
    within: tuple[float, ...]  # C: variance of a single run beyond that

    def scaled(self, factor: float) -> tuple[Values, Values]:
        """Both parts of a score that is `factor` times as large."""
        return factor**2 * np.array(self.shared), factor**2 * np.array(self.within)


def row_noise(
    task: Task, targets_N: Values, answers: Mapping[str, Mapping[int, Values]]
) -> RowNoise:
    """From the predictions of all runs on the same rows: candidate -> seed -> predictions."""
    seeds_R = np.array([seed for by_seed in answers.values() for seed in by_seed])
    member_RC = np.repeat(np.eye(len(answers)), [len(seeds) for seeds in answers.values()], axis=0)
    runs_RN = np.stack([y_N for by_seed in answers.values() for y_N in by_seed.values()])
    covariance_RR = row_covariance(task, targets_N, runs_RN)
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


# ------------------------------------------------------------------ runs


@dataclass(frozen=True)
class RunNoise:
    """How far single runs scatter."""

    variance_C: Values  # of one run of each candidate
    own_C: Values  # the same from its own seeds alone; 0 with one
    block: float  # variance of the effect that a seed has on all candidates
    freedom: int  # degrees of freedom of the pooled variance; 0: one seed each


def run_noise(values: RunValues, within_C: Values) -> RunNoise:
    """Variances over seeds: pooled over candidates that scatter alike, but at least of rows."""
    own = {c: float(np.var(list(v.values()), ddof=1)) for c, v in values.items() if len(v) > 1}
    odd = scattered(own, {name: len(values[name]) - 1 for name in own})
    alike = {name: by_seed for name, by_seed in values.items() if name not in odd}
    pooled, block, freedom, adjusted = two_way(alike)
    own |= {name: variance for name, variance in adjusted.items() if name in own}
    if freedom:  # so few runs tell little about their own variance
        quantile = student_quantile(LEVEL / 2, freedom)
        for name in odd:
            own[name] *= (student_quantile(LEVEL / 2, len(values[name]) - 1) / quantile) ** 2
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
    candidates_R, seeds_R, values_R = np.array(runs).T if runs else np.zeros((3, 0))
    by_candidate = np.equal.outer(candidates_R, np.arange(len(values))).astype(float)
    by_seed = np.equal.outer(seeds_R, np.unique(seeds_R)).astype(float)
    counts_C = np.maximum(1, by_candidate.sum(0))
    without_R = values_R - by_candidate @ (by_candidate.T @ values_R / counts_C)
    left_R, freedom, block = without_R, len(runs) - len(values), 0.0
    design = np.hstack([by_candidate, by_seed])
    rank = int(np.linalg.matrix_rank(design)) if runs else 0
    if len(runs) > rank:
        left_R = values_R - design @ np.linalg.lstsq(design, values_R, rcond=None)[0]
        freedom = len(runs) - rank
        gained = float(without_R @ without_R - left_R @ left_R) / max(1, rank - len(values))
        residual = float(left_R @ left_R) / freedom
        block = max(0.0, gained - residual) * by_seed.shape[1] / len(runs)
    if not freedom:
        return 0.0, 0.0, 0, {}
    own_C = by_candidate.T @ left_R**2 * len(runs) / freedom / counts_C
    residual = float(left_R @ left_R) / freedom
    return residual, block, freedom, dict(zip(values, own_C.tolist(), strict=True))


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


# ------------------------------------------------------------------ the estimate


@dataclass(frozen=True)
class Difference:
    """One candidate minus another, or another contrast; the interval belongs to its family.

    With one seed the noise between runs is unknown: error, interval and p are over rows, which
    compares two trained models but not the two plans. So it is never significant.
    """

    mean: float
    stderr: float
    low: float  # 95 % interval, simultaneous over the family
    high: float
    p: float  # two-sided, adjusted for the family
    is_significant: bool
    seeds: int  # the smaller number of the two

    @property
    def in_words(self) -> str:
        return f"{self.mean:+.3f}, 95 % interval {self.low:+.3f} to {self.high:+.3f}"


@dataclass(frozen=True, eq=False)
class Joint:
    """One score of all candidates."""

    names: tuple[str, ...]
    mean_C: Values
    covariance_CC: Values  # of the means
    freedom: float  # of the estimated part of the covariance; infinite: rows alone, one seed each
    run_C: Values  # variance of a single run
    own_C: Values  # the same from the candidate's own seeds alone
    seeds_C: NDArray[np.int64]
    spread: tuple[float | None, ...]  # standard deviation over seeds; None with one

    @property
    def has_run_noise(self) -> bool:
        """Whether several seeds tell how far runs scatter."""
        return bool((self.seeds_C > 1).any() or self.run_C.any())

    def index(self, name: str) -> int:
        return self.names.index(name)

    def among(self, names: Sequence[str]) -> Joint:
        """The same estimate of some of the candidates."""
        chosen = [self.index(name) for name in names]
        return replace(
            self,
            names=tuple(names),
            mean_C=self.mean_C[chosen],
            covariance_CC=self.covariance_CC[np.ix_(chosen, chosen)],
            run_C=self.run_C[chosen],
            own_C=self.own_C[chosen],
            seeds_C=self.seeds_C[chosen],
            spread=tuple(self.spread[at] for at in chosen),
        )

    def contrast(self, weights: Mapping[str, float]) -> tuple[float, float]:
        """The weighted sum of the candidates' means, and its standard error."""
        weight_C = np.array([weights.get(name, 0.0) for name in self.names])
        variance = float(weight_C @ self.covariance_CC @ weight_C)
        return float(weight_C @ self.mean_C), math.sqrt(max(0.0, variance))

    @cached_property
    def pooled_CC(self) -> Values:
        """The standard error of each difference by the covariance; never 0, so that it divides."""
        variance_C = np.diag(self.covariance_CC)
        squares_CC = variance_C[:, None] + variance_C - 2 * self.covariance_CC
        return np.sqrt(np.maximum(squares_CC, TINY**2))

    @cached_property
    def errors_CC(self) -> Values:
        """The same, but not less than by the own variances of the two candidates."""
        more_C = (self.own_C - self.run_C) / self.seeds_C
        return np.sqrt(self.pooled_CC**2 + np.maximum(0.0, more_C[:, None] + more_C))

    @cached_property
    def draws_DC(self) -> Values:
        """Studentised noise of the means: what they would be if all candidates were equal."""
        draw = generator(0, "joint", *self.names)
        noise_DC = draw.standard_normal((DRAWS, len(self.names))) @ root(self.covariance_CC).T
        if math.isinf(self.freedom):
            return noise_DC
        return noise_DC / np.sqrt(draw.chisquare(self.freedom, (DRAWS, 1)) / self.freedom)

    def chance(self, at: int, others: Sequence[int]) -> Values:
        """Draws of studentised leads of other candidates over one, if all were equal."""
        leads_DJ = self.draws_DC[:, others] - self.draws_DC[:, [at]]
        return np.asarray(leads_DJ / self.pooled_CC[at, others])

    def best_set(self) -> tuple[str, ...]:
        """The candidates that may be the best: 95 % of such sets contain it (Hsu 1984).

        A candidate stays unless another one leads by more than the 95 % quantile of the largest
        studentised lead that chance gives any other over it.
        """
        if not self.has_run_noise:
            return self.names
        kept = []
        for at, name in enumerate(self.names):
            others = [other for other in range(len(self.names)) if other != at]
            leads = (self.mean_C[others] - self.mean_C[at]) / self.errors_CC[at, others]
            by_chance_D = self.chance(at, others).max(1, initial=0.0)
            if leads.max(initial=0.0) <= np.quantile(by_chance_D, 1 - LEVEL):
                kept.append(name)
        return tuple(kept)

    def against(self, control: str) -> dict[str, Difference]:
        """All other candidates minus the control, as one family (Dunnett 1955)."""
        at = self.index(control)
        others = [i for i in range(len(self.names)) if i != at]
        if not others:
            return {}
        largest_D = np.abs(self.chance(at, others)).max(1)
        reach = float(np.quantile(largest_D, 1 - LEVEL))
        tested = {}
        for i in others:
            mean, stderr = float(self.mean_C[i] - self.mean_C[at]), float(self.errors_CC[at, i])
            tested[self.names[i]] = Difference(
                mean=mean,
                stderr=stderr,
                low=mean - reach * stderr,
                high=mean + reach * stderr,
                p=float(np.mean(largest_D * stderr >= abs(mean))),
                is_significant=self.has_run_noise and abs(mean) > reach * stderr,
                seeds=int(min(self.seeds_C[i], self.seeds_C[at])),
            )
        return tested


def root(covariance_CC: Values) -> Values:
    """A matrix whose square is the covariance, without its negative eigenvalues."""
    variances, axes_CC = np.linalg.eigh(covariance_CC)
    return np.asarray(axes_CC * np.sqrt(np.maximum(variances, 0.0)))


def estimate_joint(values: RunValues, shared_CC: Values, within_C: Values) -> Joint:
    """The joint estimate of a score from the values of all runs and the noise of their rows."""
    names, runs = tuple(values), run_noise(values, within_C)
    seeds = [set(by_seed) for by_seed in values.values()]
    sizes_C = np.array([len(own) for own in seeds])
    overlap_CC = np.array([[len(a & b) for b in seeds] for a in seeds]) / np.outer(sizes_C, sizes_C)
    runs_CC = np.diag(runs.variance_C / sizes_C)
    # The noise of rows is estimated pair by pair, so the sum may have negative eigenvalues.
    root_CC = root(shared_CC + runs_CC + runs.block * overlap_CC)
    covariance_CC = root_CC @ root_CC.T
    scores = [list(by_seed.values()) for by_seed in values.values()]
    freedom = math.inf
    if runs.freedom:  # Satterthwaite (1946): the part of the rows is known
        estimated = max(float(np.trace(centred(runs_CC))), TINY**2)
        ratio = min(max(1.0, float(np.trace(centred(covariance_CC))) / estimated), 1e6)
        freedom = runs.freedom * ratio**2
    return Joint(
        names=names,
        mean_C=np.array([float(np.mean(own)) for own in scores]),
        covariance_CC=covariance_CC,
        freedom=freedom,
        run_C=runs.variance_C,
        own_C=runs.own_C,
        seeds_C=sizes_C,
        spread=tuple(float(np.std(own, ddof=1)) if len(own) > 1 else None for own in scores),
    )


def centred(covariance_CC: Values) -> Values:
    """The covariance of deviations from the mean over candidates."""
    by_row = covariance_CC - covariance_CC.mean(0)
    return np.asarray(by_row - by_row.mean(1, keepdims=True))
