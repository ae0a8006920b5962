"""Scores: overall score against each cost, and scores by task with their standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mops.reports.figures import style
from mops.reports.figures.style import Look, Picture
from mops.reports.source import Source
from mops.surveys.results.results import CandidateResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import BboxBase

FEW = 10  # with so many candidates each one is named
ROW, GAP = 17.0, 0.55  # height of a candidate's row in points; rows between two blocks
COST_CAPTION = (
    "Mean over seeds; bars are one standard error (rows and runs). Filled marks: not significantly "
    "different from the best. The line is the Pareto front."
)
TASK_CAPTION = (
    "Mean over seeds with one standard error (rows and runs). Candidates in one block are not "
    "significantly different in overall score; filled marks: the block of the best. The vertical "
    "line is {baseline}; * significantly different from it."
)
# Where a name may stand: its offset in points.
OFFSETS = ((8, 0), (-8, 0), (0, 8), (0, -8), (6, 10), (-6, 10), (6, -10), (-6, -10))
ACROSS, UP = ("center", "left", "right"), ("center", "bottom", "top")  # by the offset's sign
TIMES = ((3600.0, ", hours"), (60.0, ", minutes"), (1.0, ", seconds"), (1e-3, ", milliseconds"))
COUNTS = ((1e6, ", millions"), (1.0, ""))
COSTS = {  # cost -> its label, and its units: the largest that the largest value reaches is used
    "parameters": ("parameters", COUNTS),
    "latency_seconds": ("latency", TIMES),
    "train_seconds": ("training time", TIMES),
    "trained_parameters": ("trained parameters", COUNTS),
}


class CostPoint(NamedTuple):
    """A candidate in the chart of a cost."""

    cost: float
    score: float
    candidate: CandidateResult
    look: Look


def draw_pareto(source: Source) -> Iterator[Picture]:
    """A chart for each cost that is known for two candidates or more."""
    costs = [one.costs for one in source.results.candidates]
    is_all_trained = all(own.trained_parameters == own.parameters for own in costs)
    for cost in list(COSTS)[:3] if is_all_trained else COSTS:
        yield from draw_cost(source, cost)


def draw_cost(source: Source, cost: str) -> Iterator[Picture]:
    points, unit = cost_points(source, cost)
    if len(points) < 2:
        return
    label = COSTS[cost][0]
    figure, (axes,) = style.make_panels(
        [""], xlabel=f"{label}{unit}", height=320, left=64, columns=1
    )
    axes.set_ylabel("overall score")
    for point in reversed(points):  # the first candidates lie on top
        size = 7.5 if len(points) <= FEW or point.look.is_notable else 4.5
        is_best, error = point.candidate.tie == 1, point.candidate.overall.stderr
        style.draw_mark(axes, *point[:2], point.look, size, is_filled=is_best, yerr=error)
    set_cost_scale(axes, [point.cost for point in points])
    front = pareto_front(points)
    x = [*(point.cost for point in front), axes.get_xlim()[1]]
    y = [*(point.score for point in front), front[-1].score]
    axes.step(x, y, where="post", color=style.PALE, linewidth=1.1, zorder=0.9)
    named = [p for p in points if len(points) <= FEW or p.look.role or p in front]
    unnamed = name_points(figure, axes, sorted(named, key=lambda p: not p.look.role), points)
    notes = left_out(source, points, unnamed, others=len(points) - len(named))
    name, title = f"pareto-{label.replace(' ', '-')}", f"Overall score against {label}"
    yield style.to_picture(figure, name, title, " ".join((COST_CAPTION, *notes)), "pareto", label)


def cost_points(source: Source, cost: str) -> tuple[list[CostPoint], str]:
    """Candidates that learnt the same tasks, and the unit of their costs."""
    looks, candidates = style.candidate_looks(source), source.results.candidates
    alike = [one for one in candidates if one.tasks == candidates[0].tasks]
    known = [(value, one) for one in alike if (value := getattr(one.costs, cost))]
    units, most = COSTS[cost][1], max((value for value, _ in known), default=0)
    factor, unit = next((unit for unit in units if most >= unit[0]), units[-1])
    return [CostPoint(v / factor, o.overall.mean, o, looks[o.name]) for v, o in known], unit


def pareto_front(points: Sequence[CostPoint]) -> list[CostPoint]:
    """From the cheapest on, each point that is better than all cheaper ones."""
    front: list[CostPoint] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.score)):
        if not front or point.score > front[-1].score:
            front.append(point)
    return front


def set_cost_scale(axes: Axes, costs: Sequence[float]) -> None:
    if max(costs) > style.WIDE * min(costs):
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

    axes.set_ylim(*axes.get_ylim())  # settles where the points lie
    places = axes.transData.transform([point[:2] for point in points])
    taken: list[BboxBase] = [Bbox([place - 7, place + 7]) for place in places]
    unnamed = []
    for point in named:
        look = point.look
        text = axes.annotate(
            f"{look.name}\n{look.role}" if look.role else look.name, point[:2], (0, 0),
            textcoords="offset points", weight="bold" if look.role else "normal", gid=look.gid,
        )  # fmt: skip
        for x, y in (*OFFSETS, OFFSETS[0]):  # the first one again where none is free
            text.set(position=(x, y), ha=ACROSS[np.sign(x)], va=UP[np.sign(y)])
            box = text.get_window_extent()
            is_inside = axes.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
            is_inside = is_inside and axes.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
            if is_free := is_inside and not box.count_overlaps(taken):
                break
        if is_free or look.role:
            taken.append(box)
        else:
            text.remove()
            unnamed.append(point.candidate.name)
    return unnamed


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


def draw_scores(source: Source) -> Iterator[Picture]:
    results = source.results
    if not results.candidates:
        return
    looks = style.candidate_looks(source)
    # Blocks of candidates that do not differ are set apart.
    blocks = [(one.reference, one.tie) for one in results.candidates]
    gaps = GAP * np.cumsum([a != b for a, b in pairwise([blocks[0], *blocks])])
    heights = {one.name: n + gaps[n] for n, one in enumerate(results.candidates)}
    names = [looks[name].name for name in heights]
    lowest = max(heights.values()) + 0.5
    keys = {"overall": "mean of the tasks", **results.tasks}
    figure, panels = style.make_panels(
        list(keys), height=style.TOP + style.BOTTOM + ROW * (lowest + 0.5),
        left=12 + 6.6 * max(map(len, names)), sharey=True,
    )  # fmt: skip
    panels[0].set_ylim(lowest, -0.5)
    panels[0].set_yticks(list(heights.values()), names)
    for axes, (key, metric) in zip(panels, keys.items(), strict=True):
        axes.set_xlabel(metric)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        draw_panel(axes, results, key, heights, looks)
    for axes in panels[::2]:
        for label, name in zip(axes.get_yticklabels(), heights, strict=True):
            weight = "bold" if name == source.chosen else "normal"
            label.set(color=style.INK, gid=looks[name].gid, fontweight=weight)
    caption = TASK_CAPTION.format(baseline=results.baseline)
    yield style.to_picture(figure, "scores", "Scores of all candidates", caption)


def draw_panel(
    axes: Axes, results: Results, key: str, heights: Mapping[str, float], looks: Mapping[str, Look]
) -> None:
    for one in (one for one in results.candidates if key in one.scores):
        score, look, height = one.scores[key], looks[one.name], heights[one.name]
        style.draw_mark(
            axes, score.mean, height, look, 6, is_filled=one.tie == 1, xerr=score.stderr
        )
        if key in one.against and one.against[key].is_significant:
            axes.text(
                score.mean + score.stderr, height, " *", weight="bold", va="center", gid=look.gid
            )
        if one.name == results.baseline:
            axes.axvline(score.mean, color=style.PALE, linewidth=0.9, zorder=0.9)
    axes.locator_params(axis="x", nbins=4)
