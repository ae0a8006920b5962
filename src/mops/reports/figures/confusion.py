"""The confusion matrix: rows are true classes, columns what was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mops.reports.figures.answers import Answered
from mops.reports.figures.colours import INK, Look, shortened
from mops.reports.figures.figure import SMALL, name_ticks
from mops.reports.figures.marks import draw_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW, MOST = 6, 12  # classes with shares and counts; with shares alone
DEEPEST = 0.6  # of the colour: ink stays legible on it
LONGEST = 9  # letters of a class
LIFT = 5.0  # points from the middle of a cell to its share


def confusion(answered: Answered) -> NDArray[np.int64]:
    """Rows of each true class by what was answered."""
    classes = len(answered.task.labels)
    pairs = answered.targets.astype(int) * classes + answered.predictions.astype(int)
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def draw_confusion(axes: Axes, answered: Answered, look: Look) -> None:
    counts = confusion(answered)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    classes = len(counts)
    draw_cells(axes, shares, look.colour)
    names = [shortened(label, LONGEST) for label in answered.task.labels]
    middles = [n + 0.5 for n in range(classes)] if classes <= MOST else []
    name_ticks(axes, "x", 0, classes, middles, names if middles else [])
    name_ticks(axes, "y", classes, 0, middles, names if middles else [])
    if classes <= MOST:
        for place in np.ndindex(*counts.shape):
            share, count = float(shares[place]), int(counts[place])
            write_cell(axes, place, share, count, has_count=classes <= FEW)


def draw_cells(axes: Axes, shares: NDArray[np.float64], colour: str) -> None:
    """Coloured by share; empty cells are not drawn."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    gap = 0.03
    corners, shades = [], []
    for row, column in zip(*np.nonzero(shares), strict=True):
        left, right, top, bottom = column + gap, column + 1 - gap, row + gap, row + 1 - gap
        corners.append([(left, top), (right, top), (right, bottom), (left, bottom)])
        shades.append((*to_rgb(colour), 0.04 + (DEEPEST - 0.04) * shares[row, column]))
    cells = PolyCollection(corners, facecolors=shades, linewidths=0, transform=axes.transData)
    axes.figure.add_artist(cells)


def write_cell(
    axes: Axes, place: tuple[int, ...], share: float, count: int, *, has_count: bool
) -> None:
    row, column = place
    if not count:
        return
    x, y = column + 0.5, row + 0.5
    lift = LIFT * abs(axes.get_ylim()[0]) / axes.bbox.height if has_count else 0.0
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
    weight = "bold" if row == column else "normal"
    draw_words(axes, x, y - lift, f"{share:.0%}", fontsize=SMALL, weight=weight, **look)
    if has_count:
        draw_words(axes, x, y + 1.4 * lift, f"{count:,}", fontsize=SMALL - 2, **look)
