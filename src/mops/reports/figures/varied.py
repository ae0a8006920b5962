"""Numbers that a survey varies, and the candidates that differ in one of them alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mops.plans.layout import Layout
from mops.reports.layouts import layouts_of
from mops.reports.material import Material
from mops.surveys.expansion import abbreviate
from mops.surveys.results.standings import Standing

NONE_SHARED = -1  # not even the embeddings
FEWEST = 3  # values of a plan's number that make a line
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """Candidates that differ in one number only."""

    label: str  # what all of them have in common, and other lines have not
    points: tuple[tuple[float, Standing], ...]


@dataclass(frozen=True)
class Response:
    """A number that varies, and the lines along it."""

    key: str
    label: str
    lines: tuple[Line, ...]
    names: Mapping[float, str] = field(default_factory=dict)  # of values that a number hides


def responses(material: Material) -> Iterator[Response]:
    yield from setting_responses(material.summary.standings)
    yield from plan_responses(material)


# ------------------------------------------------------------------ settings of the recipe


def setting_responses(standings: Sequence[Standing]) -> Iterator[Response]:
    """For each number among the settings; keys that always change together count once."""
    flat = {one.name: dict(flattened(one.settings)) for one in standings}
    keys = list(dict.fromkeys(key for of in flat.values() for key in of))
    done: set[str] = set()
    for key in keys:
        if key in done or not varies(flat, key):
            continue
        linked = [other for other in keys if other != key and are_linked(flat, key, other)]
        done |= {key, *linked}
        others = [other for other in keys if other not in (key, *linked)]
        lines = tuple(lines_along(key, others, standings, flat))
        if lines:
            names = [name.rpartition("training.")[2] for name in (key, *linked)]
            yield Response(names[0].replace(".", "-"), " = ".join(names), lines)


def lines_along(
    key: str, others: Sequence[str], standings: Sequence[Standing], flat: Mapping[str, Settings]
) -> Iterator[Line]:
    """Candidates that are equal in all other keys, two or more."""
    told = [k for k in others if len({json.dumps(of.get(k)) for of in flat.values()}) > 1]
    groups: dict[str, list[tuple[float, Standing]]] = {}
    for one in standings:
        own = flat[one.name]
        if is_number(own.get(key)):
            same = json.dumps([one.tasks, [own.get(other) for other in others]])
            groups.setdefault(same, []).append((own[key], one))
    for of in groups.values():
        if len(of) > 1:
            yield Line(label_of(flat[of[0][1].name], told), in_order(of))


def flattened(settings: Settings, before: str = "") -> Iterator[tuple[str, Any]]:
    """Mappings key by key; a plan that is rows by its name."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and "name" not in value:
            yield from flattened(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value["name"] if isinstance(value, Mapping) else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def varies(flat: Mapping[str, Settings], key: str) -> bool:
    return len({of[key] for of in flat.values() if is_number(of.get(key))}) > 1


def are_linked(flat: Mapping[str, Settings], key: str, other: str) -> bool:
    """Both are numbers, and each value of one goes with one value of the other."""
    pairs = [(of.get(key), of.get(other)) for of in flat.values() if is_number(of.get(key))]
    if not all(is_number(value) for _, value in pairs):
        return False
    return len(set(pairs)) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def label_of(settings: Settings, told: Sequence[str]) -> str:
    """The plan, and what else tells this line from the others."""
    known = {key: settings.get(key) for key in told}
    return ", ".join(
        abbreviate(value) if key == "plan" else f"{key.rpartition('.')[2]}={abbreviate(value)}"
        for key, value in known.items()
        if value not in (None, [], {})
    )


def in_order(points: Sequence[tuple[float, Standing]]) -> tuple[tuple[float, Standing], ...]:
    return tuple(sorted(points, key=lambda point: (point[0], point[1].overall.mean)))


# ------------------------------------------------------------------ numbers of the plan


def shared_layers(layout: Layout) -> float:
    """Layers whose weights serve all tasks; one less than none where the embeddings do not."""
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


# Number -> its rows in the plan (candidates of a line are equal in all others), and how it is told.
PLAN_NUMBERS: dict[str, tuple[str, Callable[[Layout], float | None]]] = {
    "shared layers": ("copies", shared_layers),
    "size of the additions": ("additions", added_size),
    "strength of the pull": ("pull", pull_strength),
}


def plan_responses(material: Material) -> Iterator[Response]:
    """Numbers that follow from the plans' layouts, whatever the plans are called."""
    standings = material.summary.standings
    if len({one.plan for one in standings}) < FEWEST:
        return
    layouts = layouts_of(material)
    for label, (rows, number) in PLAN_NUMBERS.items():
        groups: dict[str, list[tuple[float, Standing]]] = {}
        for one in (one for one in standings if one.name in layouts):
            value = number(layouts[one.name])
            if value is not None:
                groups.setdefault(rest_of(one, layouts[one.name], rows), []).append((value, one))
        long = [of for of in groups.values() if len({value for value, _ in of}) >= FEWEST]
        if long:
            lines = tuple(Line("", in_order(of)) for of in long)
            yield Response(label.replace(" ", "-"), label, lines, {NONE_SHARED: "none"})


def rest_of(one: Standing, layout: Layout, rows: str) -> str:
    """All of a candidate but these rows of its plan."""
    plan = layout.plan.to_data()
    kept = {key: plan[key] for key in plan if key not in (rows, "name", "about", "source", "depth")}
    settings = {key: value for key, value in one.settings.items() if key != "plan"}
    return json.dumps([one.tasks, kept, settings], sort_keys=True)
