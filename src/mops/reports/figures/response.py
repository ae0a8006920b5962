"""Scores against a number that the survey varies: a rate, a weight, a width, shared layers.

A response is a number that varies; its lines join candidates that differ in that number only.
Numbers come from the settings of the recipes and from the layouts of the plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mops.plans.layout import Layout
from mops.reports.figures import style
from mops.reports.figures.style import Chart, Look
from mops.reports.source import Source
from mops.surveys.expansion import abbreviate
from mops.surveys.results.results import CandidateResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 20  # largest value / smallest value from which the axis is logarithmic
FEW_LOG, FEW = 4, 8  # so many values all get their ticks
NONE_SHARED = -1.0  # shared layers where not even the embeddings are shared
FEWEST = 3  # values of a plan's number that make a line
Settings = Mapping[str, Any]
Candidates = Sequence[CandidateResult]
Points = Sequence[tuple[float, CandidateResult]]


@dataclass(frozen=True)
class ResponseLine:
    """Candidates that differ in one number only, by that number."""

    label: str  # what tells this line from the others
    points: Points


@dataclass(frozen=True)
class Response:
    """A number that varies, and the lines along it."""

    key: str
    label: str
    lines: tuple[ResponseLine, ...]
    names: Mapping[float, str] = field(default_factory=dict)  # values that are shown as words


def draw_responses(source: Source) -> Iterator[Chart]:
    looks = style.candidate_looks(source)
    keys = ["overall", *source.results.tasks]
    candidates = source.results.candidates
    for response in (*setting_responses(candidates), *plan_responses(source)):
        figure, panels = style.make_panels(keys, xlabel=response.label)
        for axes, key in zip(panels, keys, strict=True):
            draw_panel(axes, response, key, looks)
        lines = [line for line in response.lines if line.label]
        style.add_legend(figure, [(line.label, line_colour(line, looks), None) for line in lines])
        joined = {one.name for line in response.lines for _, one in line.points}
        others = len(candidates) - len(joined)
        caption = (
            f"Lines join candidates that differ only in {response.label}; means over seeds, bars "
            "are one standard error. Filled marks: not significantly different from the best in "
            "overall score." + (f" {others} candidates are on no line." if others else "")
        )
        title = f"Scores against {response.label}"
        name = f"response-{response.key}"
        yield Chart(figure, name, title, caption, "response", response.label)


def draw_panel(axes: Axes, response: Response, key: str, looks: Mapping[str, Look]) -> None:
    values = set()
    for line in response.lines:
        known = [(value, one, one.scores[key]) for value, one in line.points if key in one.scores]
        x, y = [value for value, *_ in known], [score.mean for *_, score in known]
        axes.plot(x, y, color=line_colour(line, looks), alpha=0.8)
        for value, one, score in known:
            look, is_best = looks[one.name], one.tie == 1
            style.draw_mark(
                axes, value, score.mean, look, yerr=score.stderr, is_filled=is_best, size=5.5
            )
        values |= set(x)
    if values:
        set_value_ticks(axes, sorted(values), response.names)
    axes.locator_params(axis="y", nbins=5)


def line_colour(line: ResponseLine, looks: Mapping[str, Look]) -> str:
    """The colour of the line's plan where colours go by plan."""
    colours = {looks[one.name].colour for _, one in line.points}
    return colours.pop() if len(colours) == 1 else style.PALE


def set_value_ticks(axes: Axes, values: Sequence[float], names: Mapping[float, str]) -> None:
    """Ticks at the values themselves where there are few."""
    if values[0] > 0 and values[-1] > WIDE * values[0]:
        ends = [values[0], values[len(values) // 2], values[-1]]
        style.set_log_ticks(axes, values if len(values) <= FEW_LOG else ends)
    elif len(values) <= FEW and all(float(value).is_integer() for value in values):
        axes.set_xticks(values, [names.get(value, style.plain_number(value)) for value in values])
    else:
        axes.locator_params(axis="x", nbins=4)


# ------------------------------------------------------------------ numbers of the recipe


def setting_responses(candidates: Candidates) -> Iterator[Response]:
    """For each number among the settings; keys that always change together count once."""
    flat = {one.name: dict(flatten(one.settings)) for one in candidates}
    keys = list(dict.fromkeys(key for settings in flat.values() for key in settings))
    done: set[str] = set()
    for key in keys:
        numbers = {own[key] for own in flat.values() if is_number(own.get(key))}
        if key in done or len(numbers) < 2:
            continue
        linked = [key, *(o for o in keys if o != key and are_linked(list(flat.values()), key, o))]
        done |= set(linked)
        lines = tuple(lines_along(key, [k for k in keys if k not in linked], candidates, flat))
        if lines:
            names = [name.rpartition("training.")[2] for name in linked]
            yield Response(names[0].replace(".", "-"), " = ".join(names), lines)


def lines_along(
    key: str, others: Sequence[str], candidates: Candidates, flat: Mapping[str, Settings]
) -> Iterator[ResponseLine]:
    """Groups of candidates that are equal in all other keys."""
    varied = [k for k in others if len({json.dumps(own.get(k)) for own in flat.values()}) > 1]
    numbered = [one for one in candidates if is_number(flat[one.name].get(key))]
    rest = {one.name: [flat[one.name].get(other) for other in others] for one in numbered}
    points = [(flat[one.name][key], one) for one in numbered]
    for line in join_equal(points, rest, fewest=2):
        yield ResponseLine(line_label(flat[line[0][1].name], varied), line)


def join_equal(points: Points, rest: Mapping[str, Any], *, fewest: int) -> Iterator[Points]:
    """Points whose candidates have the same tasks and the same rest, in order of their values."""
    groups: dict[str, list[tuple[float, CandidateResult]]] = {}
    for value, one in points:
        same = json.dumps([one.tasks, rest[one.name]], sort_keys=True)
        groups.setdefault(same, []).append((value, one))
    for group in groups.values():
        if len({value for value, _ in group}) >= fewest:
            yield sorted(group, key=lambda point: (point[0], point[1].overall.mean))


def flatten(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as dotted keys; a plan that is given as rows by its name."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and "name" not in value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value["name"] if isinstance(value, Mapping) else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_linked(settings: Sequence[Settings], key: str, other: str) -> bool:
    """Both are numbers, and each value of one goes with one value of the other."""
    pairs = [(own.get(key), own.get(other)) for own in settings if is_number(own.get(key))]
    if not all(is_number(value) for _, value in pairs):
        return False
    return len(set(pairs)) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def line_label(settings: Settings, varied: Sequence[str]) -> str:
    values = {key: settings.get(key) for key in varied}
    return ", ".join(
        abbreviate(value) if key == "plan" else f"{key.rpartition('.')[2]}={abbreviate(value)}"
        for key, value in values.items()
        if value not in (None, [], {})
    )


# ------------------------------------------------------------------ numbers of the plan


def shared_layers(layout: Layout) -> float:
    """Layers whose weights serve all tasks; -1 where the embeddings are not shared either."""
    routes = list(layout.routes.values())
    layers = zip(*(route.layers for route in routes), strict=True)
    count = sum(all(layer == own[0] for layer in own) for own in layers)
    has_embeddings = len({route.embeddings for route in routes}) == 1
    return count if count or has_embeddings else NONE_SHARED


def added_size(layout: Layout) -> float | None:
    sizes = {addition.size for addition in layout.plan.additions}
    return sizes.pop() if len(sizes) == 1 and 0 not in sizes else None


def pull_strength(layout: Layout) -> float | None:
    strengths = {pull.strength for pull in layout.plan.pull}
    return strengths.pop() if len(strengths) == 1 else None


# Label -> the rows of the plan that decide it, and how it is computed.
PLAN_NUMBERS: dict[str, tuple[str, Callable[[Layout], float | None]]] = {
    "shared layers": ("copies", shared_layers),
    "size of the additions": ("additions", added_size),
    "strength of the pull": ("pull", pull_strength),
}


def plan_responses(source: Source) -> Iterator[Response]:
    """Numbers that follow from the layouts, whatever the plans are called."""
    layouts = source.layouts
    known = [one for one in source.results.candidates if one.name in layouts]
    for label, (rows, compute) in PLAN_NUMBERS.items():
        values = [(compute(layouts[one.name]), one) for one in known]
        points = [(value, one) for value, one in values if value is not None]
        rest = {one.name: without_rows(one, layouts[one.name], rows) for one in known}
        lines = tuple(ResponseLine("", line) for line in join_equal(points, rest, fewest=FEWEST))
        if lines:
            yield Response(label.replace(" ", "-"), label, lines, {NONE_SHARED: "none"})


def without_rows(one: CandidateResult, layout: Layout, rows: str) -> list[Any]:
    """All that defines a candidate except these rows of its plan."""
    plan = layout.plan.to_data()
    hidden = (rows, "name", "about", "source", "depth")
    settings = {key: value for key, value in one.settings.items() if key != "plan"}
    return [{key: plan[key] for key in plan if key not in hidden}, settings]
