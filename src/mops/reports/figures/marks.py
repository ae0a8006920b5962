"""Lines, and candidates as marks with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mops.reports.figures.colours import GROUND, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pair = tuple[float, float]


def draw_line(axes: Axes, x: Sequence[float], y: Sequence[float], **look: Any) -> None:
    """A line at these values; of the figure and not of the chart, which would clip each anew."""
    from matplotlib.lines import Line2D

    axes.figure.add_artist(Line2D(x, y, transform=axes.transData, **look))


def draw_mark(
    axes: Axes, at: Pair, bar: tuple[Pair, Pair], look: Look, *, is_full: bool, size: float
) -> None:
    """A mark in the middle of the line from one end of its error to the other; full or hollow."""
    x, y = zip(bar[0], at, bar[1], strict=True)
    draw_line(
        axes,
        x,
        y,
        color=look.colour,
        linewidth=1.5,
        marker=look.mark,
        markevery=[1],
        markersize=size,
        markerfacecolor=look.colour if is_full else GROUND,
        markeredgewidth=1.5,
        gid=look.gid,
    )


def draw_words(axes: Axes, x: float, y: float, words: str, **look: Any) -> None:
    """Words at these values."""
    axes.figure.text(x, y, words, **{"transform": axes.transData} | look)
