"""Scores against a number that the survey varies: a rate, a weight, a width, shared layers.

A response is a number that varies; its lines join candidates that differ in that number only.
Numbers come from the settings of the recipes and from the layouts of the plans.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from mops.plans.layout import Layout
from mops.reports.figures import style
from mops.reports.figures.style import Look, Picture
from mops.reports.source import Source
from mops.surveys.expansion import abbreviate
from mops.surveys.results.results import CandidateResult

FEW_LOG, FEW = 4, 8  # ticks of a logarithmic and of a linear axis
NONE_SHARED = -1.0  # shared layers where not even the embeddings are shared
FEWEST = 3  # values of a plan's number that make a line
Candidates = Sequence[CandidateResult]
Points = Sequence[tuple[float, CandidateResult]]
Facts = Mapping[str, Any]  # by candidate
Response = tuple[str, list[tuple[str, Points]]]  # label, and lines: each has a name and points


def draw_responses(source: Source) -> Iterator[Picture]:
    looks = style.candidate_looks(source)
    keys, candidates = ["overall", *source.results.tasks], source.results.candidates
    for label, lines in (*setting_responses(candidates), *plan_responses(source)):
        named = [(name, line_colour(points, looks)) for name, points in lines if name]
        legend = [Line2D([], [], label=name, color=colour) for name, colour in named]
        figure, panels = style.make_panels(keys, xlabel=label, legend=legend)
        for axes, score in zip(panels, keys, strict=True):
            for _, points in lines:
                draw_line(axes, points, score, looks)
            values = {value for _, own in lines for value, one in own if score in one.scores}
            set_value_ticks(axes, sorted(values))
        others = len(candidates) - len({one.name for _, own in lines for _, one in own})
        caption = (
            f"Lines join candidates that differ only in {label}; means over seeds, bars are one "
            f"standard error. {style.FILLED}"
            + (f" Candidates on no line: {others}." if others else "")
        )
        yield style.to_picture(figure, f"Scores against {label}", caption, "response", label)


def line_colour(points: Points, looks: Mapping[str, Look]) -> str:
    """The colour of the line's plan where colours go by plan."""
    colours = {looks[one.name].colour for _, one in points}
    return colours.pop() if len(colours) == 1 else style.PALE


def draw_line(axes: Axes, points: Points, score: str, looks: Mapping[str, Look]) -> None:
    known = [(value, one.scores[score], one.name) for value, one in points if score in one.scores]
    means = [estimate.mean for _, estimate, _ in known]
    axes.plot([v for v, *_ in known], means, color=line_colour(points, looks), alpha=0.8)
    for value, estimate, name in known:
        style.draw_mark(axes, value, estimate.mean, looks[name], 5.5, yerr=estimate.stderr)


def set_value_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Ticks at the values themselves where there are few."""
    axes.locator_params(axis="y", nbins=5)
    if style.set_scale(axes, values):
        axes.set_xticks(values[:: -(-len(values) // FEW_LOG)])
    elif len(values) <= FEW and all(float(value).is_integer() for value in values):
        words = ["none" if v == NONE_SHARED else style.plain_number(v) for v in values]
        axes.set_xticks(values, words)
    else:
        axes.locator_params(axis="x", nbins=4)


def setting_responses(candidates: Candidates) -> Iterator[Response]:
    """For each number among the settings; keys that always change together count once."""
    flat = {one.name: dict(flatten(one.settings)) for one in candidates}
    settings = list(flat.values())
    keys = dict.fromkeys(key for own in settings for key in own)
    varied = [key for key in keys if len({json.dumps(own.get(key)) for own in settings}) > 1]
    done: set[str] = set()
    for key in (key for key in varied if key not in done):
        linked = [key, *(k for k in varied if k != key and are_linked(settings, key, k))]
        values = {name: own.get(key) for name, own in flat.items()}
        rest = {n: {k: own.get(k) for k in keys if k not in linked} for n, own in flat.items()}
        if lines := join_equal(candidates, values, rest, fewest=2):
            done |= set(linked)
            label = " = ".join(name.rpartition("training.")[2] for name in linked)
            yield label, [(name_line(rest[own[0][1].name], varied), own) for own in lines]


def name_line(settings: Mapping[str, Any], varied: Sequence[str]) -> str:
    """The settings that tell this line from the others."""
    known = {k: settings[k] for k in varied if settings.get(k) not in (None, [], {})}
    texts = {k: abbreviate(value) for k, value in known.items()}
    return ", ".join(v if k == "plan" else f"{k.rpartition('.')[2]}={v}" for k, v in texts.items())


def join_equal(candidates: Candidates, values: Facts, rest: Facts, fewest: int) -> list[Points]:
    """Lines of candidates with the same tasks and the same rest, in order of their numbers."""
    groups: dict[str, list[tuple[float, CandidateResult]]] = {}
    for one in (one for one in candidates if is_number(values.get(one.name))):
        same = json.dumps([one.tasks, rest[one.name]], sort_keys=True)
        groups.setdefault(same, []).append((values[one.name], one))
    return [
        sorted(group, key=lambda point: (point[0], point[1].overall.mean))
        for group in groups.values()
        if len({value for value, _ in group}) >= fewest
    ]


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as dotted keys; a plan that is given as rows by its name."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and "name" not in value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value["name"] if isinstance(value, Mapping) else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_linked(settings: Sequence[Mapping[str, Any]], key: str, other: str) -> bool:
    """Both are numbers, and each value of one goes with one value of the other."""
    pairs = [(own.get(key), own.get(other)) for own in settings if is_number(own.get(key))]
    are_numbers = all(is_number(value) for _, value in pairs)
    return are_numbers and len(set(pairs)) == len(dict(pairs)) == len({b for _, b in pairs})


def shared_layers(layout: Layout) -> set[float]:
    """Layers whose weights serve all tasks; -1 where the embeddings are not shared either."""
    routes = list(layout.routes.values())
    layers = zip(*(route.layers for route in routes), strict=True)
    count = sum(all(layer == own[0] for layer in own) for own in layers)
    has_embeddings = len({route.embeddings for route in routes}) == 1
    return {count if count or has_embeddings else NONE_SHARED}


# Label -> the rows of the plan that decide it, and its values; a plan with several is on no line.
PLAN_NUMBERS: dict[str, tuple[str, Callable[[Layout], set[Any]]]] = {
    "shared layers": ("copies", shared_layers),
    "size of the additions": (
        "additions",
        lambda own: {a.size or None for a in own.plan.additions},
    ),
    "strength of the pull": ("pull", lambda own: {pull.strength for pull in own.plan.pull}),
}


def plan_responses(source: Source) -> Iterator[Response]:
    """Numbers that follow from the layouts, whatever the plans are called."""
    for label, (rows, compute) in PLAN_NUMBERS.items():
        hidden = (rows, "name", "about", "source", "depth")
        values, rest = {}, {}  # rest: all that defines a candidate except these rows of its plan
        for name, layout in source.layouts.items():
            plan = {key: own for key, own in layout.plan.to_data().items() if key not in hidden}
            rest[name] = {**source.results[name].settings, "plan": plan}
            if len(numbers := compute(layout)) == 1:
                values[name] = numbers.pop()
        if lines := join_equal(source.results.candidates, values, rest, fewest=FEWEST):
            yield label, [("", points) for points in lines]
