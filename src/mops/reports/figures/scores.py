"""Scores: overall score against each cost, and scores by task with their standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mops.reports.figures import style
from mops.reports.figures.style import Chart, Look
from mops.reports.source import Source
from mops.surveys.results.results import CandidateResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import BboxBase

FEW = 10  # with so many candidates each one is named
WIDE = 20  # largest cost / smallest cost from which the axis is logarithmic
ROW, MARGIN = 17.0, 68.0  # points: height of a candidate's row; title and axis of a panel
GAP = 0.55  # rows between two blocks
COST_CAPTION = (
    "Mean over seeds; bars are one standard error (rows and runs). Filled marks: not significantly "
    "different from the best. The line is the Pareto front."
)
TASK_CAPTION = (
    "Mean over seeds with one standard error (rows and runs). Candidates in one block are not "
    "significantly different in overall score; filled marks: the block of the best. The vertical "
    "line is {baseline}; * significantly different from it."
)
# Where a name may stand: offset in points, horizontal and vertical alignment.
SIDES = (
    ((8, 0), "left", "center"),
    ((-8, 0), "right", "center"),
    ((0, 8), "center", "bottom"),
    ((0, -8), "center", "top"),
    ((6, 10), "left", "bottom"),
    ((-6, 10), "right", "bottom"),
    ((6, -10), "left", "top"),
    ((-6, -10), "right", "top"),
)


@dataclass(frozen=True)
class CostAxis:
    """A cost as x axis; the largest unit that the largest value reaches is used."""

    fact: str
    label: str
    units: tuple[tuple[float, str], ...]


TIMES = ((3600.0, ", hours"), (60.0, ", minutes"), (1.0, ", seconds"), (1e-3, ", milliseconds"))
COUNTS = ((1e6, ", millions"), (1.0, ""))
COSTS = (
    CostAxis("parameters", "parameters", COUNTS),
    CostAxis("latency_seconds", "latency", TIMES),
    CostAxis("train_seconds", "training time", TIMES),
    CostAxis("trained_parameters", "trained parameters", COUNTS),
)


@dataclass(frozen=True)
class CostPoint:
    """A candidate in the chart of a cost."""

    cost: float
    candidate: CandidateResult
    look: Look

    @property
    def score(self) -> float:
        return self.candidate.overall.mean


# ------------------------------------------------------------------ against costs


def draw_pareto(source: Source) -> Iterator[Chart]:
    """A chart for each cost that is known for two candidates or more."""
    costs = [one.costs for one in source.results.candidates]
    is_all_trained = all(own.trained_parameters == own.parameters for own in costs)
    for axis in COSTS[:3] if is_all_trained else COSTS:
        yield from draw_cost(source, axis)


def draw_cost(source: Source, axis: CostAxis) -> Iterator[Chart]:
    from matplotlib.figure import Figure

    points, unit = cost_points(source, axis)
    if len(points) < 2:
        return
    figure = Figure(figsize=(style.WIDTH / 72, 320 / 72))
    axes = figure.subplots()
    axes.set_xlabel(f"{axis.label}{unit}", color=style.INK, loc="right")
    axes.set_ylabel("overall score", color=style.INK, loc="top")
    for point in reversed(points):  # the first candidates lie on top
        style.draw_mark(
            axes, point.cost, point.score, point.look, is_filled=point.candidate.tie == 1,
            size=7.5 if len(points) <= FEW or point.look.is_notable else 4.5,
            yerr=point.candidate.overall.stderr,
        )  # fmt: skip
    set_cost_scale(axes, [point.cost for point in points])
    front = pareto_front(points)
    x = [*(point.cost for point in front), axes.get_xlim()[1]]
    y = [*(point.score for point in front), front[-1].score]
    axes.step(x, y, where="post", color=style.PALE, linewidth=1.1, zorder=0.9)
    named = [p for p in points if len(points) <= FEW or p.look.role or p in front]
    unnamed = name_points(figure, axes, sorted(named, key=lambda p: not p.look.role), points)
    notes = left_out(source, points, unnamed, others=len(points) - len(named))
    caption = " ".join((COST_CAPTION, *notes))
    name, title = f"pareto-{axis.label.replace(' ', '-')}", f"Overall score against {axis.label}"
    yield Chart(figure, name, title, caption, "pareto", axis.label)


def cost_points(source: Source, axis: CostAxis) -> tuple[list[CostPoint], str]:
    """Candidates that learnt the same tasks, and the unit of their costs."""
    looks = style.candidate_looks(source)
    candidates = source.results.candidates
    tasks = candidates[0].tasks if candidates else ()
    costs = {one.name: getattr(one.costs, axis.fact) for one in candidates if one.tasks == tasks}
    most = max((cost for cost in costs.values() if cost), default=0)
    factor, unit = next((unit for unit in axis.units if most >= unit[0]), axis.units[-1])
    points = [
        CostPoint(cost / factor, source.results[name], looks[name])
        for name, cost in costs.items()
        if cost
    ]
    return points, unit


def pareto_front(points: Sequence[CostPoint]) -> list[CostPoint]:
    """From the cheapest on, each point that is better than all cheaper ones."""
    front: list[CostPoint] = []
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


def name_points(
    figure: Figure, axes: Axes, named: Sequence[CostPoint], points: Sequence[CostPoint]
) -> list[str]:
    """Write each name on the first side where it covers no mark or name; returns the others."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # settles where the points lie
    places = axes.transData.transform([(point.cost, point.score) for point in points])
    taken: list[BboxBase] = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in places]
    unnamed = []
    for point in named:
        texts = [annotate(axes, point, side) for side in range(len(SIDES))]
        boxes = {text: text.get_window_extent() for text in texts}
        free = [text for text, box in boxes.items() if is_free(box, taken, figure, axes)]
        kept = next(iter(free), texts[0] if point.look.role else None)
        for text in texts:
            if text is not kept:
                text.remove()
        if kept:
            taken.append(boxes[kept])
        else:
            unnamed.append(point.candidate.name)
    figure.set_layout_engine("none")
    return unnamed


def annotate(axes: Axes, point: CostPoint, side: int) -> Annotation:
    offset, across, up = SIDES[side]
    text = axes.annotate(
        f"{point.look.name}\n{point.look.role}" if point.look.role else point.look.name,
        (point.cost, point.score), offset, textcoords="offset points", ha=across, va=up,
        weight="bold" if point.look.role else "normal", gid=point.look.gid,
    )  # fmt: skip
    text.set_in_layout(False)
    return text


def is_free(box: BboxBase, taken: Sequence[BboxBase], figure: Figure, axes: Axes) -> bool:
    is_inside = axes.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y0 >= axes.bbox.y0
    return is_inside and not box.count_overlaps(taken)


def left_out(
    source: Source, points: Sequence[CostPoint], unnamed: Sequence[str], *, others: int
) -> Iterator[str]:
    """Sentences about marks and names that the chart does not have."""
    shown = {point.candidate.name for point in points}
    missing = [one.name for one in source.results.candidates if one.name not in shown]
    if missing:
        yield f"Not shown (other tasks, or cost not measured): {', '.join(missing)}."
    if unnamed:
        yield f"Not named for lack of room: {', '.join(unnamed)}."
    if others:
        yield f"{others} further candidates are not named; hover over a mark to see which it is."


# ------------------------------------------------------------------ by task


def draw_scores(source: Source) -> Iterator[Chart]:
    results = source.results
    if not results.candidates:
        return
    looks, heights = style.candidate_looks(source), row_heights(results)
    lowest = max(heights.values()) + 0.5
    keys = {"overall": "mean of the tasks", **results.tasks}
    figure, panels = style.make_panels(keys, height=MARGIN + ROW * (lowest + 0.5), sharey=True)
    for axes, (key, metric) in zip(panels, keys.items(), strict=True):
        axes.set_xlabel(metric, loc="right")
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        draw_panel(axes, results, key, heights, looks)
    panels[0].set_ylim(lowest, -0.5)
    panels[0].set_yticks(list(heights.values()), [looks[name].name for name in heights])
    chosen = source.decision.candidate if source.decision else None
    for axes in panels[::2]:
        for label, name in zip(axes.get_yticklabels(), heights, strict=True):
            weight = "bold" if name == chosen else "normal"
            label.set(color=style.INK, gid=looks[name].gid, fontweight=weight)
    caption = TASK_CAPTION.format(baseline=results.baseline)
    yield Chart(figure, "scores", "Scores of all candidates", caption)


def row_heights(results: Results) -> Mapping[str, float]:
    """Candidate -> its row; blocks of candidates that do not differ are set apart."""
    heights: dict[str, float] = {}
    height, previous = 0.0, None
    for one in results.candidates:
        block = one.reference, one.tie
        height += GAP if previous not in (None, block) else 0.0
        heights[one.name], previous = height, block
        height += 1
    return heights


def draw_panel(
    axes: Axes, results: Results, key: str, heights: Mapping[str, float], looks: Mapping[str, Look]
) -> None:
    for one in results.candidates:
        score = one.scores.get(key)
        if score is None:
            continue
        look, height = looks[one.name], heights[one.name]
        is_best = one.tie == 1
        style.draw_mark(
            axes, score.mean, height, look, xerr=score.stderr, is_filled=is_best, size=6
        )
        difference = one.against.get(key)
        if difference is not None and difference.is_significant:
            axes.text(
                score.mean + score.stderr, height, " *", weight="bold", va="center", gid=look.gid
            )
        if one.name == results.baseline:
            axes.axvline(score.mean, color=style.PALE, linewidth=0.9, zorder=0.9)
    axes.locator_params(axis="x", nbins=4)
