"""Answered values against true ones, as a map of how many rows lie where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mops.reports.figures.answers import Answered
from mops.reports.figures.colours import PALE, Look
from mops.reports.figures.figure import set_scale
from mops.reports.figures.marks import draw_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = 24  # of the range, each way: thousands of rows stay a small drawing
LEVELS = (0.18, 0.34, 0.5, 0.68, 0.9)  # depths of the colour
Run = tuple[int, int, int]  # row of cells, first cell, one after the last


def density(answered: Answered) -> NDArray[np.float64]:
    """Rows in each cell: first the cell of the answer, then that of the truth."""
    low, high = answered.task.range or (0.0, 1.0)
    edges = np.linspace(low, high, CELLS + 1)
    counts, *_ = np.histogram2d(answered.predictions, answered.targets, bins=[edges, edges])
    return counts


def draw_agreement(axes: Axes, answered: Answered, look: Look) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    low, high = answered.task.range or (0.0, 1.0)
    step = (high - low) / CELLS
    levels = level_of(density(answered))
    for number, depth in enumerate(LEVELS, start=1):
        boxes = [box(run, low, step) for run in runs_of(levels == number)]
        if boxes:
            whole = Path.make_compound_path(*(Path(corners, closed=True) for corners in boxes))
            shape = PathPatch(whole, facecolor=look.colour, alpha=depth, linewidth=0)
            shape.set_transform(axes.transData)
            axes.figure.add_artist(shape)
    draw_line(axes, [low, high], [low, high], color=PALE, linewidth=0.9)
    set_scale(axes, "x", low, high, count=5)
    set_scale(axes, "y", low, high, count=5)


def level_of(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for an empty cell, then by the logarithm of its rows."""
    most = max(float(counts.max()), 2.0)
    share = np.log1p(counts) / np.log1p(most)
    found: NDArray[np.int64] = np.ceil(share * len(LEVELS)).astype(np.int64)
    return found


def runs_of(cells: NDArray[np.bool_]) -> Iterator[Run]:
    """Cells side by side are one box."""
    for row, line in enumerate(cells):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]).astype(int)))
        for first, after in zip(edges[::2], edges[1::2], strict=True):
            yield row, int(first), int(after)


def box(run: Run, low: float, step: float) -> list[tuple[float, float]]:
    row, first, after = run
    left, right = low + first * step, low + after * step
    bottom, top = low + row * step, low + (row + 1) * step
    return [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
