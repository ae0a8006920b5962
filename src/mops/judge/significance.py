"""Is a mean below zero, and how many such means are chance? numpy only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def below_zero(mean: float, stderr: float, count: int) -> float:
    """The p-value of so low a mean of `count` values if the true one were 0: Student's test."""
    if stderr == 0:
        return 0.0 if mean < 0 else 1.0
    return student_tail(-mean / stderr, count - 1)


def student_tail(t: float, freedom: int) -> float:
    """P(T > t) of Student's distribution (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term, total = (cosine if is_odd else 1.0), 0.0
    for k in range(is_odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    inside = 2 / math.pi * (angle + sine * total) if is_odd else sine * total
    return max(0.0, (1 - inside) / 2)


def holm(p: Sequence[float]) -> Values:
    """Adjusted p-values of tests made at once (Holm 1979): a single false one is that rare."""
    given = np.asarray(p, dtype=float)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * (len(given) - np.arange(len(given))))
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
