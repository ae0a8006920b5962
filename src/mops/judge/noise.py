"""What rows and runs add to the error of a mean over seeds, and of a difference of two. numpy only.

A score of candidate c, trained with seed s, is its true mean plus four kinds of noise:

    run      a_cs    the run: first weights, order, dropout
    rows     r       these rows suit all models
             r_c     these rows suit this candidate, whatever the seed
             e_cs    these rows suit this one run

The difference d_s of two candidates on the same rows has lost r. Its mean over S seeds has

    variance = V(r_c - r_b) + [ V(a_c) + V(e_c) + V(a_b) + V(e_b) ] / S

Resampled rows (`resampling.py`) move d_s by r_c - r_b + e_cs - e_bs: the covariance between two
seeds is the first term. The variance of a score over seeds, where r_c is constant, is V(a) + V(e).
So their sum counts each noise once. (Rows resampled for the mean over seeds hold V(e) / S too;
added to the variance over seeds, it would count twice.) What rows alone move it by is a floor.

The part of the rows is well known; the variance over two to five seeds is not. So it is pooled over
the candidates of the survey, as in an analysis of variance, and the sum has the degrees of freedom
of Satterthwaite (1946):

    freedom = freedom of the runs x (variance / part of the runs)^2

Pooling assumes that the runs of all candidates scatter alike. Two guards: one that scatters clearly
more (Fisher's test against the median) is left out of the pool and has its own variance, and no
pair has less than its own two variances. The runs of two candidates are taken as independent: if a
seed moves both the same way, the true error is smaller than what is said here.

Why seeds matter: Bouthillier et al. 2021, Accounting for variance in machine learning benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mops.judge.significance import fisher_tail

Values = NDArray[np.float64]
ODD = 0.01  # level of the test for a candidate that scatters more, over all candidates


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

    def together(self, names: Collection[str]) -> tuple[float, float]:
        """The sum of the candidates' variances, and its degrees of freedom."""
        odd = [name for name in names if name in self.own]
        pooled = (len(names) - len(odd)) * self.pooled
        total = sum(self.own[name] for name in odd) + pooled
        doubt = sum(self.own[name] ** 2 / self.own_freedom[name] for name in odd)
        doubt += pooled**2 / self.pooled_freedom
        return total, (total**2 / doubt if doubt else math.inf)


@dataclass(frozen=True)
class Scored:
    """One score of every run on the same rows."""

    at: Mapping[str, Mapping[int, int]]  # candidate -> seed -> where that run stands
    values_R: Values
    covariance_RR: Values  # over resampled rows

    def seeds(self, *names: str) -> list[int]:
        """Those that all of these candidates were trained with."""
        return sorted(set.intersection(*(set(self.at.get(name, ())) for name in names)))

    def values(self, name: str) -> Values:
        return self.values_R[list(self.at[name].values())]

    @cached_property
    def noise(self) -> RunNoise:
        return run_noise({name: self.values(name) for name in self.at})

    def mean(self, name: str, minus: str = "") -> Mean | None:
        """Over the seeds of a candidate, or those it shares with another; none without any."""
        names = [name, minus] if minus else [name]
        seeds = self.seeds(*names)
        if not seeds:
            return None
        at_CS = np.array([[self.at[name][seed] for seed in seeds] for name in names])
        sign_C = np.array([1.0, -1.0])[: len(names)]
        moved_CSCS = self.covariance_RR[at_CS[:, :, None, None], at_CS]
        rows_SS = np.einsum("c,csdt,d->st", sign_C, moved_CSCS, sign_C)
        stderr, freedom = error(rows_SS, self.values_R[at_CS], *self.noise.together(names))
        return Mean(float(sign_C @ self.values_R[at_CS].mean(1)), stderr, freedom, len(seeds))


def error(rows_SS: Values, values_CS: Values, noise: float, freedom: float) -> tuple[float, float]:
    """Standard error of a mean over seeds and its degrees of freedom; of one seed, over rows."""
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
    several = {name: of for name, of in values.items() if len(of) > 1}
    own = {name: float(of.var(ddof=1)) for name, of in several.items()}
    freedom = {name: len(of) - 1 for name, of in several.items()}
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
    """Candidates whose variance is clearly above what the median of all says of a common one.

    The median, since a learning rate that is too high may wreck several candidates; it is set right
    by that of chi-squared, about k (1 - 2/9k)^3 (Wilson and Hilferty 1931).
    """
    if not own:
        return set()
    usual = float(np.median([v / (1 - 2 / (9 * freedom[name])) ** 3 for name, v in own.items()]))
    if usual == 0:
        return {name for name, variance in own.items() if variance > 0}
    all_freedom, level = sum(freedom.values()), ODD / len(own)
    return {
        name
        for name, variance in own.items()
        if fisher_tail(variance / usual, freedom[name], all_freedom) < level
    }
