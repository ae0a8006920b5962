"""Overall score against cost: parameters, latency, training time, trained parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mops.reports.figures import style
from mops.reports.figures.style import Chart, Look
from mops.reports.material import Material
from mops.surveys.results.standings import Standing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import BboxBase

FEW = 10  # with so many candidates each one is named
WIDE = 20  # largest cost / smallest cost from which the axis is logarithmic
CAPTION = (
    "Mean over seeds; bars are one standard error (rows and runs). Filled marks: not significantly "
    "different from the best. The line is the Pareto front."
)
# Where a name may stand: offset in points, horizontal and vertical alignment.
SIDES = (
    ((8, 0), "left", "center"),
    ((-8, 0), "right", "center"),
    ((0, 8), "center", "bottom"),
    ((0, -8), "center", "top"),
)


@dataclass(frozen=True)
class Cost:
    """A cost as an x axis; the largest unit that the largest value reaches is used."""

    fact: str
    choice: str
    label: str
    units: tuple[tuple[float, str], ...]


TIMES = ((3600.0, ", hours"), (60.0, ", minutes"), (1.0, ", seconds"), (1e-3, ", milliseconds"))
COUNTS = ((1e6, ", millions"), (1.0, ""))
COSTS = (
    Cost("parameters", "parameters", "parameters", COUNTS),
    Cost("latency_seconds", "latency", "latency per row", TIMES),
    Cost("train_seconds", "training time", "training time", TIMES),
    Cost("trained_parameters", "trained parameters", "trained parameters", COUNTS),
)


@dataclass(frozen=True)
class Point:
    """A candidate in the chart."""

    name: str
    cost: float
    score: float
    error: float
    look: Look
    role: str
    is_best: bool  # not significantly different from the best


def draw_pareto(material: Material) -> Iterator[Chart]:
    """One chart per cost that is known for two candidates and differs from the one before."""
    standings = material.summary.standings
    is_all_trained = all(
        one.costs.get("trained_parameters", one.costs["parameters"]) == one.costs["parameters"]
        for one in standings
    )
    for cost in COSTS:
        if not (is_all_trained and cost.fact == "trained_parameters"):
            yield from draw_cost(material, cost)


def draw_cost(material: Material, cost: Cost) -> Iterator[Chart]:
    from matplotlib.figure import Figure

    standings = material.summary.standings
    most = max((one.costs.get(cost.fact) or 0 for one in standings), default=0)
    factor, unit = next((unit for unit in cost.units if most >= unit[0]), cost.units[-1])
    points = [
        to_point(material, one, one.costs[cost.fact] / factor)
        for one in standings
        if one.costs.get(cost.fact) and one.tasks == standings[0].tasks
    ]
    if len(points) < 2:
        return
    figure = Figure(figsize=(style.WIDTH / 72, 320 / 72))
    axes = figure.subplots()
    axes.set_xlabel(f"{cost.label}{unit}", color=style.INK, loc="right")
    axes.set_ylabel("overall score", color=style.INK, loc="top")
    front = pareto_front(points)
    for point in reversed(points):  # the first candidates lie on top
        size = (8.5 if point.role else 7.0) if len(points) <= FEW or point.look.is_notable else 4.5
        style.draw_mark(
            axes, point.cost, point.score, point.look, yerr=point.error, is_filled=point.is_best,
            size=size,
        )  # fmt: skip
    set_cost_scale(axes, [point.cost for point in points])
    corners = [(point.cost, point.score) for point in front]
    corners.append((axes.get_xlim()[1], front[-1].score))
    axes.step(
        *zip(*corners, strict=True), where="post", color=style.PALE, linewidth=1.1, zorder=0.9
    )
    named = sorted(
        (p for p in points if len(points) <= FEW or p.role or p in front), key=lambda p: not p.role
    )
    unnamed = name_points(figure, axes, named, points)
    caption = " ".join((CAPTION, *left_out(material, points, unnamed, len(points) - len(named))))
    name = f"pareto-{cost.choice.replace(' ', '-')}"
    title = f"Overall score against {cost.label}"
    yield Chart(figure, name, title, caption, "pareto", cost.choice)


def to_point(material: Material, one: Standing, cost: float) -> Point:
    look, role = (
        style.candidate_looks(material)[one.name],
        style.candidate_roles(material)[one.name],
    )
    overall = one.overall
    return Point(one.name, cost, overall.mean, overall.stderr, look, role, one.tie == 1)


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """From the cheapest on, each point that is better than all cheaper ones."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.score)):
        if not front or point.score > front[-1].score:
            front.append(point)
    return front


def set_cost_scale(axes: Axes, costs: Sequence[float]) -> None:
    if max(costs) > WIDE * min(costs):
        low, high = min(costs) / 1.6, max(costs) * 1.6
        style.set_log_ticks(axes, [10.0**n for n in range(-9, 12) if low <= 10.0**n <= high])
        axes.set_xlim(low, high)
    else:
        axes.margins(x=0.12)
        axes.set_xlim(*axes.get_xlim())


# ------------------------------------------------------------------ names


def name_points(
    figure: Figure, axes: Axes, named: Sequence[Point], points: Sequence[Point]
) -> list[str]:
    """Write the names; returns those that found no room."""
    figure.draw_without_rendering()  # settles where the points lie
    marks = [mark_box(axes, point) for point in points]
    written: list[BboxBase] = []
    unnamed = []
    for point in named:
        sides = [annotate(axes, point, side) for side in range(len(SIDES))]
        boxes = [text.get_window_extent() for text in sides]
        free = [n for n, box in enumerate(boxes) if not box.count_overlaps(written)]
        inside = [n for n in free if is_inside(axes, boxes[n])]
        clear = [n for n in inside if not boxes[n].count_overlaps(marks)]
        best = next(iter([*clear, *inside, *([0] if point.role else [])]), None)
        if best is None:
            unnamed.append(point.name)
        else:
            written.append(boxes[best])
        for n, text in enumerate(sides):
            if n != best:
                text.remove()
    figure.set_layout_engine("none")
    return unnamed


def annotate(axes: Axes, point: Point, side: int) -> Annotation:
    offset, across, up = SIDES[side]
    text = axes.annotate(
        f"{point.look.name}\n{point.role}" if point.role else point.look.name,
        (point.cost, point.score), offset, textcoords="offset points", ha=across, va=up,
        color=style.INK, weight="bold" if point.role else "normal", gid=point.look.gid,
    )  # fmt: skip
    text.set_in_layout(False)
    return text


def mark_box(axes: Axes, point: Point) -> BboxBase:
    from matplotlib.transforms import Bbox

    x, y = axes.transData.transform((point.cost, point.score))
    return Bbox.from_bounds(x - 6, y - 6, 12, 12)


def is_inside(axes: Axes, box: BboxBase) -> bool:
    figure = axes.figure.bbox
    return bool(box.x0 >= axes.bbox.x0 and box.x1 <= figure.x1 and box.y0 >= axes.bbox.y0
                and box.y1 <= figure.y1)  # fmt: skip


def left_out(
    material: Material, points: Sequence[Point], unnamed: Sequence[str], others: int
) -> Iterator[str]:
    """Sentences about marks and names that the chart does not have."""
    shown = {point.name for point in points}
    missing = [one.name for one in material.summary.standings if one.name not in shown]
    if missing:
        yield f"Not shown (other tasks, or cost not measured): {', '.join(missing)}."
    if unnamed:
        yield f"Not named for lack of room: {', '.join(unnamed)}."
    if others:
        yield f"{others} further candidates are not named; hover over a mark to see which it is."
