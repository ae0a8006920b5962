"""How sure is how right: answers by their confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mops.reports.figures.answers import Answered
from mops.reports.figures.colours import INK, PALE, Look
from mops.reports.figures.figure import SMALL, set_scale
from mops.reports.figures.marks import draw_line, draw_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 10
DEEP = 0.45  # of the colour: names are written on it


@dataclass(frozen=True)
class Bin:
    """Answers that are about as sure."""

    low: float
    high: float
    count: int
    confidence: float  # mean
    right: float  # share


def bins_of(answered: Answered) -> list[Bin]:
    """Bins of equal width; empty ones are left out."""
    sure = answered.confidence
    if sure is None:
        return []
    is_right = answered.predictions == answered.targets
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    found = []
    for n in range(BINS):
        here = place == n
        if here.any():
            values = float(sure[here].mean()), float(is_right[here].mean())
            found.append(Bin(n / BINS, (n + 1) / BINS, int(here.sum()), *values))
    return found


def expected_error(bins: list[Bin]) -> float:
    """Expected calibration error: mean |right - confidence|, bins by their rows.

    Naeini et al. 2015, Obtaining Well Calibrated Probabilities Using Bayesian Binning.
    """
    rows = sum(one.count for one in bins)
    return sum(one.count * abs(one.right - one.confidence) for one in bins) / rows


def draw_reliability(axes: Axes, answered: Answered, look: Look) -> None:
    """A bar for each bin; the stroke across is where it would end if the model knew itself."""
    bins = bins_of(answered)
    small = {"ha": "center", "va": "bottom", "fontsize": SMALL - 2.5, "color": INK}
    for one in bins:
        middle = (one.low + one.high) / 2
        draw_line(
            axes, [middle, middle], [0, one.right], color=look.colour, alpha=DEEP,
            linewidth=0.84 * axes.bbox.width / BINS, solid_capstyle="butt",
        )  # fmt: skip
        draw_line(axes, [one.low, one.high], [one.confidence] * 2, color=PALE, linewidth=1.2)
        draw_words(axes, middle, 0.02, short_count(one.count), **small)
    draw_line(axes, [0, 1], [0, 1], color=PALE, linewidth=0.9, linestyle=(0, (4, 3)))
    words = f"error {expected_error(bins):.3f}"
    draw_words(axes, 0.03, 0.95, words, va="top", fontsize=SMALL, color=INK)
    set_scale(axes, "x", 0.0, 1.0, count=5)
    set_scale(axes, "y", 0.0, 1.0, count=5)


def short_count(count: int) -> str:
    return str(count) if count < 1000 else f"{count / 1000:.1f}k"
