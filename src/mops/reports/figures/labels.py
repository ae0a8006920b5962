"""Names beside points, where they cover least; names of lines in rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mops.reports.figures.colours import INK, PALE, Look
from mops.reports.figures.figure import SMALL, width_of, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOUBT = 150.0  # square points that a name may cover rather than seem another's
SLIGHT = 2.0  # points of its height by which a name may lie over another's room
AWAY = 7.0  # points from the middle of a mark to its name
LINE = 16.0  # height of a row of names
BOLD = 1.12  # times as wide
Pair = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top


@dataclass(frozen=True)
class Spot:
    """A point with its name and what it is beside that, in points of the figure."""

    x: float
    y: float
    text: str
    role: str = ""  # on a second line; the name is then bold

    @property
    def width(self) -> float:
        return max(width_of(self.text) * (BOLD if self.role else 1.0), width_of(self.role))

    @property
    def height(self) -> float:
        return (2.2 if self.role else 1.15) * SMALL


def place_names(spots: Sequence[Spot], taken: Iterable[Box], area: Box) -> list[Pair | None]:
    """The left end and the middle line of each name; the first ones choose first.

    None for a name that would be written over another: neither could be read.
    """
    filled = list(taken)
    named: list[Box] = []
    found: list[Pair | None] = []
    for spot in spots:
        others = [other for other in spots if other is not spot]
        boxes = list(boxes_around(spot))
        costs = [
            cost_of(box, filled, area) + doubt(box, spot, others) + 0.1 * n
            for n, box in enumerate(boxes)
        ]
        best = boxes[costs.index(min(costs))]
        is_free = not any(overlap(best, other) > SLIGHT * spot.height for other in named)
        if spot.role or is_free:
            filled.append(best)
            named.append(best)
        found.append((best[0], (best[1] + best[3]) / 2) if spot.role or is_free else None)
    return found


def boxes_around(spot: Spot) -> Iterable[Box]:
    """Right, left, above, below, then the corners, then farther off."""
    wide, high = spot.width, spot.height
    for far in (1.0, 2.2):
        away = AWAY * far
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            x = spot.x + dx * away - (wide if dx < 0 else wide / 2 if dx == 0 else 0)
            y = spot.y + dy * (away + high / 2 - 3) - high / 2
            yield x, y, x + wide, y + high


def cost_of(box: Box, filled: Iterable[Box], area: Box) -> float:
    """What it covers, and far more for what lies outside."""
    whole = (box[2] - box[0]) * (box[3] - box[1])
    return sum(overlap(box, other) for other in filled) + 5 * (whole - overlap(box, area))


def doubt(box: Box, spot: Spot, others: Sequence[Spot]) -> float:
    """For each point that is nearer to the name than its own: it would seem to be that one's."""
    own = distance(box, spot)
    return sum(DOUBT for other in others if distance(box, other) < own)


def distance(box: Box, spot: Spot) -> float:
    across = max(box[0] - spot.x, 0.0, spot.x - box[2])
    up = max(box[1] - spot.y, 0.0, spot.y - box[3])
    return math.hypot(across, up)


def overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return wide * high if wide > 0 and high > 0 else 0.0


# ------------------------------------------------------------------ the names of lines


@dataclass(frozen=True)
class Entry:
    """A line in the legend."""

    text: str
    colour: str
    look: Look | None = None


def rows_of(entries: Sequence[Entry], width: float) -> list[list[Entry]]:
    """As many to a row as there is room for."""
    rows: list[list[Entry]] = [[]]
    used = 0.0
    for entry in entries:
        wide = entry_width(entry)
        if rows[-1] and used + wide > width:
            rows.append([])
            used = 0.0
        rows[-1].append(entry)
        used += wide
    return rows


def entry_width(entry: Entry) -> float:
    return width_of(entry.text) + 30


def write_legend(figure: Figure, rows: Sequence[Sequence[Entry]], left: float, top: float) -> None:
    """A short line of its colour before each name."""
    from matplotlib.lines import Line2D

    width, height = (72 * inches for inches in figure.get_size_inches())
    for n, row in enumerate(rows):
        x, y = left, top + LINE * n
        for entry in row:
            gid = entry.look.gid if entry.look else None
            level = 1 - (y - 3.3) / height
            stroke = Line2D(
                [x / width, (x + 13) / width], [level, level], color=entry.colour, linewidth=2.2,
                marker=entry.look.mark if entry.look else "", markersize=4.5, markevery=[1],
                transform=figure.transFigure, gid=gid,
            )  # fmt: skip
            figure.add_artist(stroke)
            ink = INK if entry.look else PALE
            write(figure, x + 19, y, entry.text, color=ink, gid=gid)
            x += entry_width(entry)
