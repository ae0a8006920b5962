"""Lines, and candidates as marks with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mops.report.figures.colours import GROUND, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pair = tuple[float, float]


def draw_line(axes: Axes, x: Sequence[float], y: Sequence[float], **look: Any) -> None:
    """Without the search for limits that `plot` would make; limits are wide enough for all."""
    from matplotlib.lines import Line2D

    axes.add_artist(Line2D(x, y, clip_on=False, **look))


def draw_mark(
    axes: Axes, at: Pair, bar: tuple[Pair, Pair], look: Look, *, is_full: bool, size: float
) -> None:
    """A mark in front of the line from one end of its error to the other; full or hollow."""
    (x0, y0), (x1, y1) = bar
    draw_line(axes, [x0, x1], [y0, y1], color=look.colour, linewidth=1.6, alpha=0.75, gid=look.gid)
    draw_line(
        axes,
        *([value] for value in at),
        linestyle="none",
        color=look.colour,
        marker=look.mark,
        markersize=size,
        markerfacecolor=look.colour if is_full else GROUND,
        markeredgecolor=look.colour,
        markeredgewidth=1.5,
        gid=look.gid,
    )
