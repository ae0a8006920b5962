"""Is a mean other than zero, and how many such means are chance? numpy only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
LEVEL = 0.05  # of the tests, after Holm's correction
ENDLESS = 1e6  # degrees of freedom from which on Student's distribution is the normal one
CLOSE = 1e-15  # the continued fraction has converged


# ------------------------------------------------------------------ tests of one mean


def below_zero(mean: float, stderr: float, count: int) -> float:
    """The p-value of so low a mean of `count` values if the true one were 0: Student's test."""
    if stderr == 0:
        return 0.0 if mean < 0 else 1.0
    return student_tail(-mean / stderr, count - 1)


def off_zero(mean: float, stderr: float, freedom: float) -> float:
    """The p-value of a mean so far from 0, on either side, if the true one were 0."""
    if stderr == 0:
        return 0.0 if mean else 1.0
    return min(1.0, 2 * student_tail(abs(mean) / stderr, freedom))


def mcnemar(right: NDArray[np.bool_], baseline: NDArray[np.bool_]) -> float:
    """Exact two-sided p-value (McNemar 1947) that two models are equally often right.

    Of the rows that only one has right, each is the one's or the other's like the toss of a coin.
    """
    only = int(np.sum(right & ~baseline)), int(np.sum(baseline & ~right))
    tosses, ways, total = sum(only), 1, 0
    for heads in range(min(only) + 1):
        total += ways
        ways = ways * (tosses - heads) // (heads + 1)
    return min(1.0, 2 * total / (1 << tosses))


# ------------------------------------------------------------------ many tests at once


def holm(p: Sequence[float]) -> Values:
    """Adjusted p-values of tests made at once (Holm 1979): a single false one is that rare."""
    given = np.asarray(p, dtype=float)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * (len(given) - np.arange(len(given))))
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


# ------------------------------------------------------------------ distributions


def student_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's distribution, also for broken or endless degrees of freedom."""
    if freedom > ENDLESS:
        return math.erfc(t / math.sqrt(2)) / 2
    beyond = beta_share(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return beyond if t > 0 else 1 - beyond


def student_quantile(tail: float, freedom: float) -> float:
    """The t with P(T > t) = tail, for a tail below a half.

    By Newton's method: it starts at the normal quantile, which lies below, and the tail falls and
    is convex, so that each step goes up and none too far.
    """
    t = NormalDist().inv_cdf(1 - tail)
    if freedom > ENDLESS:
        return t
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    peak = math.exp(scale) / math.sqrt(freedom * math.pi)
    for _ in range(100):
        density = peak * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (student_tail(t, freedom) - tail) / density
        t += step
        if step < 1e-12 * t:
            break
    return t


def fisher_tail(ratio: float, upper: float, lower: float) -> float:
    """P(F > ratio) of Fisher's distribution: two variances, each with its degrees of freedom."""
    return beta_share(lower / (lower + upper * ratio), lower / 2, upper / 2)


def beta_share(x: float, a: float, b: float) -> float:
    """The incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):  # beyond, the fraction of the other side converges faster
        return 1 - beta_share(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    above, below, value = 1.0, 0.0, 1.0  # Lentz's method: ratios of neighbouring convergents
    for d in beta_terms(x, a, b):
        below, above = 1 / (1 + d * below), 1 + d / above
        value *= above * below
        if abs(above * below - 1) < CLOSE:
            break
    return front / value


def beta_terms(x: float, a: float, b: float) -> Iterator[float]:
    for m in itertools.count():
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        yield (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2))
