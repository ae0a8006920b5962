"""Several small charts in one figure, two to a row, under the names of their lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mops.reports.figures.colours import INK
from mops.reports.figures.figure import SIZE, WIDTH, blank, panel, write
from mops.reports.figures.labels import LINE, Entry, rows_of, write_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TALL, HEAD, FOOT = 130.0, 26.0, 38.0  # of a chart, above it, below it
LEFT, RIGHT = 38.0, 8.0
COLUMNS = 2


def draw_tiles(
    titles: Sequence[str],
    draw: Callable[[Axes, int], None],
    *,
    legend: Sequence[Entry] = (),
    unit: str = "",
    notes: Sequence[str] = (),
    tall: float = TALL,
    left: float = LEFT,
) -> Figure:
    """`draw` fills the chart of each number; `unit` says what goes from left to right.

    `notes` stand under the charts, one for each; `left` is room for the names of heights.
    """
    names = rows_of(legend, WIDTH - 8) if legend else []
    above = 8 + LINE * len(names) if names else 0.0
    high = HEAD + tall + FOOT
    figure = blank(above + high * -(-len(titles) // COLUMNS))
    write_legend(figure, names, 4, 12)
    wide = (WIDTH - COLUMNS * (left + RIGHT)) / COLUMNS
    for n, title in enumerate(titles):
        row, column = divmod(n, COLUMNS)
        x, y = left + column * (wide + left + RIGHT), above + row * high + HEAD
        draw(panel(figure, x, y, wide, tall), n)
        write(figure, x - 6, y - 7, title, color=INK, fontsize=SIZE, weight="bold")
        write(figure, x + wide, y + tall + 29, unit, ha="right")
        if notes:
            write(figure, x, y + tall + 29, notes[n])
    return figure
