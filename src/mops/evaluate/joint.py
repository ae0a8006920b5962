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
from mops.evaluate.metrics import EQUAL, SOFT, Values, Weights, soft_key
from mops.evaluate.statistics import LEVEL, RowNoise, RunValues, run_noise
from mops.tasks import CORRELATIONS

DRAWS = 20_000
TINY = 1e-6  # a difference that is rounding


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


@dataclass(frozen=True)
class Estimate:
    """A score over seeds; with one seed its error is over rows alone."""

    mean: float
    stderr: float
    spread: float | None  # standard deviation over seeds; None with one
    seeds: int


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

    def estimate(self, name: str) -> Estimate:
        at = self.index(name)
        stderr = math.sqrt(max(0.0, self.covariance_CC[at, at]))
        return Estimate(float(self.mean_C[at]), stderr, self.spread[at], int(self.seeds_C[at]))

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
        return student_noise(draw, self.covariance_CC, self.freedom, DRAWS)

    def chance(self, at: int) -> Values:
        """Draws of studentised leads over one candidate, if all were equal; its own is 0."""
        return np.asarray((self.draws_DC - self.draws_DC[:, [at]]) / self.pooled_CC[at])

    def best_set(self) -> tuple[str, ...]:
        """The candidates that may be the best: 95 % of such sets contain it (Hsu 1984).

        A candidate stays unless another one leads by more than the 95 % quantile of the largest
        studentised lead that chance gives any other over it.
        """
        if not self.has_run_noise:
            return self.names
        kept = []
        for at, name in enumerate(self.names):
            lead_C = (self.mean_C - self.mean_C[at]) / self.errors_CC[at]
            if lead_C.max() <= np.quantile(self.chance(at).max(1), 1 - LEVEL):
                kept.append(name)
        return tuple(kept)

    def against(self, control: str) -> dict[str, Difference]:
        """All other candidates minus the control, as one family (Dunnett 1955)."""
        at = self.index(control)
        largest_D = np.abs(self.chance(at)).max(1)
        reach = float(np.quantile(largest_D, 1 - LEVEL))
        tested = {}
        for i in (i for i in range(len(self.names)) if i != at):
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
    """The symmetric square root of the covariance, without its negative eigenvalues.

    Eigenvectors differ between processors, in sign and where eigenvalues are equal; this root, and
    so every draw that is made with it, does not.
    """
    variances, axes_CC = np.linalg.eigh(covariance_CC)
    return np.asarray((axes_CC * np.sqrt(np.maximum(variances, 0.0))) @ axes_CC.T)


def student_noise(
    draw: np.random.Generator, covariance_CC: Values, freedom: float, count: int
) -> Values:
    """Draws of noise, scaled like Student's t, because the covariance is itself estimated."""
    noise_DC = draw.standard_normal((count, len(covariance_CC))) @ root(covariance_CC).T
    if math.isinf(freedom):
        return noise_DC
    return noise_DC / np.sqrt(draw.chisquare(freedom, (count, 1)) / freedom)


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


def joint_scores(
    metrics: Mapping[str, str],
    values: Mapping[str, RunValues],
    rows: Mapping[str, RowNoise],
    weights: Weights = EQUAL,
) -> dict[str, Joint]:
    """The joint estimate of each task and of the overall scores.

    `metrics` names the main metric of each task. `values` and `rows` may also have the soft score
    of a task (`soft_key`); then there is an overall score with these.
    """
    joint = {task: estimate_joint(values[task], *rows[task].scaled(1.0)) for task in metrics}
    total = sum(weights.get(task, 1.0) for task in metrics)
    part = {task: weights.get(task, 1.0) / total for task in metrics}
    halved = {task: part[task] / (2 if m in CORRELATIONS else 1) for task, m in metrics.items()}
    start = sum(part[task] - halved[task] for task in metrics)  # of (r + 1) / 2
    soft = {soft_key(task) if soft_key(task) in rows else task: part[task] for task in metrics}
    joint["overall"] = weighted_joint(part, 0.0, values, rows)
    joint["overall_normalised"] = weighted_joint(halved, start, values, rows)
    if soft != part:
        joint[SOFT] = weighted_joint(soft, 0.0, values, rows)
    return joint


def weighted_joint(
    weights: Weights, start: float, values: Mapping[str, RunValues], rows: Mapping[str, RowNoise]
) -> Joint:
    """Of a score that is linear in those of the tasks, whose rows are drawn independently."""
    first = next(iter(values.values()))
    runs = {
        name: {s: start + sum(weights[t] * values[t][name][s] for t in weights) for s in by_seed}
        for name, by_seed in first.items()
    }
    noise = [rows[task].scaled(weight) for task, weight in weights.items()]
    shared_CC, within_C = (np.sum(parts, axis=0) for parts in zip(*noise, strict=True))
    return estimate_joint(runs, shared_CC, within_C)
