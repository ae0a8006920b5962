"""Does a plan fit these tasks and this encoder? Rows that concern nothing are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from mops.errors import PlanError, nearest
from mops.routes import Route, find_routes
from mops.shapes import Reading
from mops.sharing import Feed, Groups, SharingPlan
from mops.tasks import Task


def check_fit(plan: SharingPlan, tasks: Sequence[Task], depth: int) -> None:
    """Refuse a plan for other layers or tasks, and rows that concern nothing."""
    if plan.depth not in (0, depth):
        raise PlanError(
            f"plan {plan.name!r} is written for {plan.depth} layers, the encoder has {depth}; "
            "give one letter per layer"
        )
    names = [task.name for task in tasks]
    for layers in layer_ranges(plan):
        check_layers(plan, layers, depth)
    for groups in groups_in(plan):
        check_groups(plan, groups, names)
    for feed in plan.feeds:
        check_names(plan, [n for n in (feed.source, feed.target) if n != "*"], names)
    everything = owners_of(plan, tasks, depth)
    for what, pattern in patterns_in(plan):
        if not any(fnmatchcase(owner, pattern) for owner in everything):
            raise PlanError(
                f"plan {plan.name!r}: the {what} for {pattern!r} concerns no owner; owners are "
                f"called {everything[0]}, {everything[1]}, ..., {everything[-1]}"
            )


def owners_of(plan: SharingPlan, tasks: Sequence[Task], depth: int) -> list[str]:
    """Every owner that any route may pass, the pooler too."""
    routes = find_routes(plan, tasks, depth, "pooler").values()
    return list(dict.fromkeys(owner for route in routes for owner in route.owners))


def layer_ranges(plan: SharingPlan) -> Iterator[tuple[int, int]]:
    yield from (row.layers for row in plan.copies if row.layers is not None)
    yield from (row.layers for row in plan.additions if row.layers is not None)


def groups_in(plan: SharingPlan) -> Iterator[Groups]:
    yield from (row.groups for row in plan.copies)
    yield from (row.groups for row in plan.late)
    yield from (row.groups for row in plan.additions)


def patterns_in(plan: SharingPlan) -> Iterator[tuple[str, str]]:
    yield from (("rate", row.owner) for row in plan.rates)
    yield from (("pull", row.owner) for row in plan.pull)


def check_layers(plan: SharingPlan, layers: tuple[int, int], depth: int) -> None:
    first, last = (n + depth if n < 0 else n for n in layers)
    is_none = first == depth  # all layers shared, none left for the row
    if not (0 <= first <= depth and 0 <= last < depth and (first <= last or is_none)):
        raise PlanError(
            f"plan {plan.name!r} speaks of the layers {list(layers)}, but the encoder has "
            f"only {depth} (0 to {depth - 1}, the lower first; from {depth} on there are none)"
        )


def check_groups(plan: SharingPlan, groups: Groups, tasks: list[str]) -> None:
    named = [task for group in groups for task in group]
    check_names(plan, named, tasks)
    if len(set(named)) < len(named):
        raise PlanError(f"plan {plan.name!r}: a task stands in two groups of one row")


def check_names(plan: SharingPlan, named: Sequence[str], tasks: list[str]) -> None:
    for task in named:
        if task not in tasks:
            raise PlanError(
                f"plan {plan.name!r} names the task {task!r}; the tasks are "
                f"{', '.join(tasks)}.{nearest(task, tasks)}"
            )


# ------------------------------------------------------------------ feeds


def check_feeds(
    plan: SharingPlan, routes: Mapping[str, Route], tasks: Mapping[str, Task], reading: Reading
) -> None:
    """A feed needs a shared trunk, a head that has what it asks for, and texts that fit."""
    if plan.feeds and not any(route.feeds for route in routes.values()):
        raise PlanError(f"plan {plan.name!r}: no task feeds another; it needs two tasks or more")
    for route in routes.values():
        for feed in route.feeds:
            for problem in problems_of_feed(feed, routes, tasks, reading):
                raise PlanError(
                    f"plan {plan.name!r}: {feed.source!r} cannot feed {feed.target!r}: {problem}"
                )


def problems_of_feed(
    feed: Feed, routes: Mapping[str, Route], tasks: Mapping[str, Task], reading: Reading
) -> Iterator[str]:
    source, target = routes[feed.source], routes[feed.target]
    if source.stages != target.stages:
        yield "they do not share the encoder"
    is_apart = reading.texts_apart(tasks[feed.source].is_pair)
    if is_apart and not tasks[feed.target].is_pair:
        yield "with pair: bi it answers two texts, and the later task has one"
    if reading.head(feed.target).kind == "cosine":
        yield "a cosine head takes only the two vectors; give the later task another head"
    if feed.what == "hidden" and reading.head(feed.source).kind != "mlp":
        yield "its head has no hidden layer; set training.head to mlp, or feed the logits"
    if len({other.combine for other in target.feeds}) > 1:
        yield "all feeds into one task are combined in one way, concat or attention"
