"""Scores: overall score against each cost, and scores by task."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import pts_to_poststep
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox, BboxBase

from mops.reports.figures import style
from mops.reports.figures.style import Look, Picture
from mops.reports.source import Source
from mops.surveys.results.recommend import pareto_front
from mops.surveys.results.results import Results

FEW = 10  # with so many candidates each one is named
FRAME, ROW = 60.0, 17.0  # height of a chart's title and axis, and of a candidate's row, in points
COST_CAPTION = (
    f"Mean over seeds; bars are one standard error (rows and runs). {style.FILLED} The line is the "
    "Pareto front (times within their noise are equal). Hover over a mark to see which candidate "
    "it is."
)
TASK_CAPTION = (
    f"Mean over seeds with one standard error (rows and runs). {style.FILLED} The vertical line is "
    "{baseline}; * significantly different from it (Dunnett)."
)
SIDES = (  # of a mark, where its name may stand: offset in points, alignment
    (8, 0, "left", "center"), (-8, 0, "right", "center"),
    (7, 4, "left", "bottom"), (7, -4, "left", "top"),
    (-7, 4, "right", "bottom"), (-7, -4, "right", "top"),
    (0, 8, "center", "bottom"), (0, -8, "center", "top"),
)  # fmt: skip
TIMES = ((3600.0, ", hours"), (60.0, ", minutes"), (1.0, ", seconds"), (1e-3, ", milliseconds"))
Points = dict[str, tuple[float, float]]  # candidate -> cost, overall score
COUNTS = ((1e6, ", millions"), (1.0, ""))
COSTS = {  # cost -> its label, and its units: the largest that the largest value reaches is used
    "parameters": ("parameters", COUNTS),
    "latency_seconds": ("latency", TIMES),
    "train_seconds": ("training time", TIMES),
    "trained_parameters": ("trained parameters", COUNTS),
}


def draw_pareto(source: Source) -> Iterator[Picture]:
    """A chart for each cost that is known for two candidates or more."""
    costs = [one.costs for one in source.results.candidates]
    is_all_trained = all(own.trained_parameters == own.parameters for own in costs)
    for cost in list(COSTS)[:3] if is_all_trained else COSTS:
        yield from draw_cost(source, cost)


def draw_cost(source: Source, cost: str) -> Iterator[Picture]:
    looks, (points, unit) = style.candidate_looks(source), cost_points(source.results, cost)
    if len(points) < 2:
        return
    label, is_few = COSTS[cost][0], len(points) <= FEW
    figure, (axes,) = style.make_panels([""], xlabel=f"{label}{unit}", height=320, columns=1)
    axes.set_ylabel("overall score")
    for name in reversed(points):  # the first candidates lie on top
        size = 7.5 if is_few or looks[name].is_notable else 4.5
        error = source.results[name].overall.stderr
        style.draw_mark(axes, *points[name], looks[name], size, yerr=error)
    style.set_scale(axes, [x for x, _ in points.values()])
    axes.margins(x=0.12)
    axes.set_xlim(*axes.get_xlim())  # the front does not widen it
    known = [one for one in source.results.candidates if one.name in points]
    front = sorted((one.name for one in pareto_front(known, (cost,))), key=points.__getitem__)
    x, y = zip(*(points[name] for name in front), strict=True)
    x, y = (*x, axes.get_xlim()[1]), (*y, y[-1])
    (line,) = axes.step(x, y, where="post", color=style.PALE, linewidth=1.1, zorder=0.9)
    named = [name for name in points if is_few or looks[name].role or name in front]
    named.sort(key=lambda name: not looks[name].role)
    name_points(figure, line, {name: looks[name] for name in named}, points)
    caption = COST_CAPTION
    if missing := [one.name for one in source.results.candidates if one.name not in points]:
        caption += f" Not shown (other tasks, or cost not measured): {', '.join(missing)}."
    yield style.to_picture(figure, f"Overall score against {label}", caption, "pareto", label)


def cost_points(results: Results, cost: str) -> tuple[Points, str]:
    """Candidates that learnt the same tasks, and the unit of their costs."""
    alike = [one for one in results.candidates if one.tasks == results.candidates[0].tasks]
    known = [(value, one) for one in alike if (value := getattr(one.costs, cost))]
    units, most = COSTS[cost][1], max((value for value, _ in known), default=0)
    factor, unit = next((unit for unit in units if most >= unit[0]), units[-1])
    return {one.name: (value / factor, one.overall.mean) for value, one in known}, unit


def line_boxes(line: Line2D) -> list[Bbox]:
    """Where the parts of a line of steps lie."""
    assert line.axes is not None
    corners = np.transpose(pts_to_poststep(*line.get_data()))
    places = line.axes.transData.transform(corners)
    return [Bbox([np.minimum(a, b) - 0.5, np.maximum(a, b) + 0.5]) for a, b in pairwise(places)]


def name_points(figure: Figure, line: Line2D, named: Mapping[str, Look], points: Points) -> None:
    """Write each name on the first side of its mark that is free; roles are always written."""
    figure.draw_without_rendering()  # settles where the points lie
    figure.set_layout_engine("none")
    (axes,) = figure.axes
    places = axes.transData.transform(list(points.values()))
    taken: list[BboxBase] = [Bbox([place - 7, place + 7]) for place in places]
    taken += line_boxes(line)
    room = Bbox([axes.bbox.min, figure.bbox.max])
    for name, look in named.items():
        text = axes.annotate(
            f"{look.name}\n{look.role}" if look.role else look.name, points[name], (0, 0),
            textcoords="offset points", weight="bold" if look.role else "normal", gid=look.gid,
        )  # fmt: skip
        for x, y, across, up in SIDES:
            text.set(position=(x, y), ha=across, va=up)
            box = text.get_window_extent()
            is_inside = room.contains(*box.min) and room.contains(*box.max)
            if is_free := is_inside and not box.count_overlaps(taken):
                break
        if is_free or look.role:
            taken.append(box)
        else:
            text.remove()


def draw_scores(source: Source) -> Iterator[Picture]:
    """A panel for each score, with a row for each candidate."""
    results = source.results
    if not results.candidates:
        return
    looks = style.candidate_looks(source)
    keys = {"overall": "mean of the tasks", **results.tasks}
    figure, panels = style.make_panels(list(keys), height=FRAME + ROW * len(looks), sharey=True)
    panels[0].set_ylim(len(looks) - 0.5, -0.5)
    panels[0].set_yticks(range(len(looks)), [look.name for look in looks.values()])
    for axes, (key, metric) in zip(panels, keys.items(), strict=True):
        axes.set_xlabel(metric, loc="center")
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        draw_panel(axes, results, key, looks)
    for axes in panels[::2]:  # the left ones have the names
        for label, look in zip(axes.get_yticklabels(), looks.values(), strict=True):
            weight = "bold" if "recommended" in look.role else "normal"
            label.set(color=style.INK, gid=look.gid, fontweight=weight)
    caption = TASK_CAPTION.format(baseline=results.baseline)
    yield style.to_picture(figure, "Scores of all candidates", caption, "scores")


def draw_panel(axes: Axes, results: Results, key: str, looks: Mapping[str, Look]) -> None:
    for height, one in enumerate(results.candidates):
        if key not in one.scores:
            continue
        score, look = one.scores[key], looks[one.name]
        style.draw_mark(axes, score.mean, height, look, 6, xerr=score.stderr)
        if key in one.against and one.against[key].is_significant:
            end = score.mean + score.stderr
            axes.text(end, height, " *", weight="bold", va="center", gid=look.gid)
        if one.name == results.baseline:
            axes.axvline(score.mean, color=style.PALE, linewidth=0.9, zorder=0.9)
    axes.locator_params(axis="x", nbins=4)
