"""Score against what it costs: parameters, latency, training time, what is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mops.reports.figures.colours import INK, OTHER, PALE, Look, looks, roles
from mops.reports.figures.figure import (
    WIDTH,
    Drawn,
    blank,
    panel,
    set_log_scale,
    set_scale,
    spread,
    write,
)
from mops.reports.figures.labels import Box, Spot, place_names
from mops.reports.figures.marks import Pair, draw_line, draw_mark
from mops.reports.material import Material
from mops.surveys.results.standings import Standing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 320.0
LEFT, TOP, BOTTOM, RIGHT = 36.0, 26.0, 40.0, 12.0
FEW = 10  # candidates that all have their names
WIDE = 20  # times the smallest cost: then the axis is logarithmic
CAPTION = (
    "Mean over seeds, bars one standard error of rows and runs. Full marks cannot be told from the "
    "best; the line joins those that none beats at the same cost."
)


@dataclass(frozen=True)
class Axis:
    """A cost: its fact, its names, and its units, the largest first."""

    fact: str
    choice: str
    label: str
    units: tuple[tuple[float, str], ...]


TIMES = ((3600.0, ", hours"), (60.0, ", minutes"), (1.0, ", seconds"), (1e-3, ", milliseconds"))
COUNTS = ((1e6, ", millions"), (1.0, ""))
COSTS = (
    Axis("parameters", "parameters", "parameters", COUNTS),
    Axis("latency_seconds", "latency", "latency of a row", TIMES),
    Axis("train_seconds", "training time", "training time", TIMES),
)
TRAINED = Axis("trained_parameters", "trained parameters", "parameters that are trained", COUNTS)


@dataclass(frozen=True)
class Point:
    """A candidate in the picture."""

    one: Standing
    look: Look
    cost: float
    role: str

    @property
    def score(self) -> float:
        return self.one.overall.mean

    @property
    def error(self) -> float:
        return self.one.overall.stderr

    @property
    def is_tied(self) -> bool:
        return self.one.tie == 1


def draw_pareto(material: Material) -> Iterator[Drawn]:
    """One picture for each cost that is known of two candidates or more."""
    for axis in COSTS:
        yield from draw_cost(material, axis)


def draw_trained(material: Material) -> Iterator[Drawn]:
    """Where somebody trains less than the whole."""
    if any(trains_less(one) for one in material.summary.standings):
        yield from draw_cost(material, TRAINED)


def trains_less(one: Standing) -> bool:
    return bool(one.costs.get(TRAINED.fact, one.costs["parameters"]) != one.costs["parameters"])


def draw_cost(material: Material, axis: Axis) -> Iterator[Drawn]:
    size, unit = unit_of(material, axis)
    points = list(points_of(material, axis, size))
    if len(points) < 2:
        return
    figure = blank(HEIGHT)
    axes = panel(figure, LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM)
    set_axes(axes, points)
    draw_front(axes, points)
    for point in reversed(points):  # the first candidates lie on top
        draw_point(axes, point, len(points) <= FEW)
    name_points(figure, axes, points)
    write(figure, 4, 14, "overall score", color=INK)
    write(figure, WIDTH - RIGHT, HEIGHT - 8, f"{axis.label}{unit}", color=INK, ha="right")
    yield Drawn(
        figure,
        f"pareto-{axis.choice.replace(' ', '-')}",
        f"Overall score against {axis.label}",
        CAPTION,
        "pareto",
        axis.choice,
    )


def unit_of(material: Material, axis: Axis) -> tuple[float, str]:
    """The largest unit in which the largest value is one or more."""
    most = max((one.costs.get(axis.fact) or 0 for one in material.summary.standings), default=0)
    return next((unit for unit in axis.units if most >= unit[0]), axis.units[-1])


def points_of(material: Material, axis: Axis, size: float) -> Iterator[Point]:
    """Candidates that have learnt the same tasks; another overall score says something else."""
    seen, words = looks(material), roles(material)
    standings = material.summary.standings
    for one in standings:
        value = one.costs.get(axis.fact)
        if value and one.tasks == standings[0].tasks:
            yield Point(one, seen[one.name], value / size, words[one.name])


def set_axes(axes: Axes, points: Sequence[Point]) -> None:
    ends = [point.score + side * point.error for point in points for side in (-1, 1)]
    set_scale(axes, "y", *spread(ends), count=6)
    costs = [point.cost for point in points]
    if max(costs) > WIDE * min(costs):
        low, high = min(costs) / 1.6, max(costs) * 1.6
        decades = [10.0**n for n in range(-9, 12)]
        set_log_scale(axes, "x", low, high, [v for v in decades if low <= v <= high])
    else:
        set_scale(axes, "x", *spread(costs, 0.12), count=5)


def front_of(points: Sequence[Point]) -> list[Point]:
    """From the cheapest on, each that is better than all cheaper ones."""
    found: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.score)):
        if not found or point.score > found[-1].score:
            found.append(point)
    return found


def stair_of(axes: Axes, points: Sequence[Point]) -> list[Pair]:
    """The corners of the front: up to the next cost the score stays what it is."""
    front = front_of(points)
    found = [(front[0].cost, front[0].score)]
    for point in front[1:]:
        found += [(point.cost, found[-1][1]), (point.cost, point.score)]
    return [*found, (axes.get_xlim()[1], found[-1][1])]


def draw_front(axes: Axes, points: Sequence[Point]) -> None:
    x, y = zip(*stair_of(axes, points), strict=True)
    draw_line(axes, x, y, color=PALE, linewidth=1.1, alpha=0.7)


def draw_point(axes: Axes, point: Point, is_large: bool) -> None:
    size = (8.5 if point.role else 7.0) if is_large or point.look.is_notable else 4.5
    bar = tuple((point.cost, point.score + side * point.error) for side in (-1, 1))
    at = (point.cost, point.score)
    draw_mark(axes, at, (bar[0], bar[1]), point.look, is_full=point.is_tied, size=size)


def name_points(figure: Figure, axes: Axes, points: Sequence[Point]) -> None:
    """All names where there are few; else those of the front, the baseline and the choice."""
    front = front_of(points)
    chosen = [p for p in points if len(points) <= FEW or p.role or p in front]
    chosen.sort(key=lambda p: not p.role)
    spots = [spot_of(axes, point) for point in chosen]
    area = (LEFT, BOTTOM, WIDTH - 4.0, HEIGHT - TOP + 4)
    places = place_names(spots, list(taken_by(axes, points)), area)
    for point, spot, place in zip(chosen, spots, places, strict=True):
        if place is not None:
            write_spot(figure, spot, place, point.look)


def spot_of(axes: Axes, point: Point) -> Spot:
    x, y = axes.transData.transform((point.cost, point.score))
    return Spot(float(x), float(y), point.look.name, point.role)


def write_spot(figure: Figure, spot: Spot, place: Pair, look: Look) -> None:
    x, y = place
    lift = spot.height / 4 if spot.role else 0.0
    ink = INK if look.colour != OTHER else PALE
    for words, height, weight in (
        (spot.text, y + lift, "bold" if spot.role else "normal"),
        (spot.role, y - lift, "normal"),
    ):
        if words:
            look_of = {"color": ink, "weight": weight, "va": "center", "gid": look.gid}
            write(figure, x, HEIGHT - height, words, **look_of)


def taken_by(axes: Axes, points: Sequence[Point]) -> Iterator[Box]:
    """Where names would cover marks, errors or the front."""
    at = axes.transData.transform
    for point in points:
        x, y = at((point.cost, point.score))
        low, high = (at((point.cost, point.score + s * point.error))[1] for s in (-1, 1))
        yield x - 6, y - 6, x + 6, y + 6
        yield x - 2, low, x + 2, high
    for one, other in pairwise(at(stair_of(axes, points))):
        yield min(one[0], other[0]) - 2, one[1] - 2, max(one[0], other[0]) + 2, other[1] + 2
