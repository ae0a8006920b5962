"""Does a plan fit these tasks and this encoder? Rows that concern nothing are refused.

What a plan means for given tasks and a given encoder: owners, routes, sizes, rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

from mops.errors import PlanError, nearest
from mops.plans.routes import Route, find_routes
from mops.plans.rows import LAYER_PARTS, TRUNK_FROZEN, Feed, Groups, SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.plans.sizes import (
    HeadInput,
    adapter_sizes,
    dense,
    head_input,
    head_size,
    late_widths,
    trunk_sizes,
)
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


@dataclass(frozen=True)
class L2Group:
    """Owners that an L2 term holds: towards each other, or each to where it started."""

    owners: tuple[str, ...]
    strength: float
    towards: str


@dataclass(frozen=True)
class Layout:
    """A plan applied: every copy has a name, a size and a rate; every task has a route."""

    plan: SharingPlan
    tasks: Mapping[str, Task]
    encoder: EncoderShape
    reading: Reading
    routes: Mapping[str, Route]
    sizes: Mapping[str, int]  # owner -> number of weights; the checkpoint's table of contents
    rates: Mapping[str, float]  # owner -> factor on the trained rate; 0 = frozen

    @property
    def parameters(self) -> int:
        return sum(self.sizes.values())

    @property
    def trained(self) -> int:
        return sum(size for owner, size in self.sizes.items() if self.rates[owner] > 0)

    @cached_property
    def frozen_rates(self) -> Mapping[str, float]:
        """The rates of the plan behind the prefix `frozen+`: the pretrained weights do not move."""
        plan = replace(self.plan, rates=(*TRUNK_FROZEN, *self.plan.rates))
        return {owner: rate_of(plan, owner) for owner in self.sizes}

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """Owner -> the tasks whose answers pass it."""
        return {
            owner: tuple(task for task, route in self.routes.items() if owner in route.owners)
            for owner in self.sizes
        }

    @cached_property
    def trained_by(self) -> Mapping[str, tuple[str, ...]]:
        """Owner -> the tasks whose losses reach it."""
        return {
            owner: tuple(task for task, route in self.routes.items() if owner in route.trained)
            for owner in self.sizes
        }

    @cached_property
    def branches(self) -> tuple[Mapping[str, int], ...]:
        """For each stage: task -> number of its branch.

        Tasks are on one branch as long as all stages up to here are the same owners, so that one
        computation serves them all. Branches are numbered in the order of their owners: branches
        that meet again at a shared layer lie side by side.
        """
        found = []
        for stage in range(len(next(iter(self.routes.values())).stages)):
            prefix = {task: route.stages[: stage + 1] for task, route in self.routes.items()}
            ranks = {owners: rank for rank, owners in enumerate(sorted(set(prefix.values())))}
            found.append({task: ranks[owners] for task, owners in prefix.items()})
        return tuple(found)

    @cached_property
    def l2_groups(self) -> tuple[L2Group, ...]:
        """What the plan's pull rows hold; the first row that covers an owner counts."""
        taken: set[str] = set()
        found = []
        for row in self.plan.pull:
            for copies in copies_of(self.routes):
                owners = tuple(
                    o
                    for o in copies
                    if fnmatchcase(o, row.owner) and self.rates[o] and o not in taken
                )
                if len(owners) > 1 or (owners and row.towards == "start"):
                    found.append(L2Group(owners, row.strength, row.towards))
                    taken |= set(owners)
        return tuple(found)

    def head_input(self, task: str) -> HeadInput:
        """What the head of a task sees."""
        width = late_widths(self.plan, self.encoder)[-1]
        feeds = self.routes[task].feeds
        return head_input(self.tasks[task], feeds, list(self.tasks.values()), self.reading, width)


def lay_out(
    plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape, reading: Reading
) -> Layout:
    """Resolve a plan: names for all copies, a route per task, sizes and rates."""
    check_fit(plan, tasks, encoder.depth)
    routes = find_routes(plan, tasks, encoder.depth, reading.pool)
    check_feeds(plan, routes, {task.name: task for task in tasks}, reading)
    widths = late_widths(plan, encoder)
    sizes: dict[str, int] = {}
    for task in tasks:
        route = routes[task.name]
        sizes |= trunk_sizes(route, encoder)
        for adapter in (adapter for adapters in route.adapters for adapter in adapters):
            sizes |= adapter_sizes(adapter, encoder)
        sizes |= zip(route.late, map(dense, widths, widths[1:]), strict=True)
        seen = head_input(task, route.feeds, tasks, reading, widths[-1])
        sizes[route.head] = head_size(task, reading, seen)
    return Layout(
        plan=plan,
        tasks={task.name: task for task in tasks},
        encoder=encoder,
        reading=reading,
        routes=routes,
        sizes=sizes,
        rates={owner: rate_of(plan, owner) for owner in sizes},
    )


def rate_of(plan: SharingPlan, owner: str) -> float:
    for row in plan.rates:
        if fnmatchcase(owner, row.owner):
            return row.factor
    raise PlanError(
        f"plan {plan.name!r}: no rate covers {owner!r}; rows are "
        f"{', '.join(row.owner for row in plan.rates)}. Add '*' as the last row; rate 0 freezes"
    )


def copies_of(routes: Mapping[str, Route]) -> list[tuple[str, ...]]:
    """The owners that serve one part of one layer for the different tasks, place by place."""
    places: dict[tuple[str, ...], dict[str, None]] = {}
    for route in routes.values():
        for place, owner in places_of(route):
            places.setdefault(place, {})[owner] = None
    return list(dict.fromkeys(tuple(owners) for owners in places.values()))


def places_of(route: Route) -> list[tuple[tuple[str, ...], str]]:
    """(place, owner) of all but the head, whose size is the task's own."""
    found: list[tuple[tuple[str, ...], str]] = [(("embeddings",), route.embeddings)]
    for n, layer in enumerate(route.layers):
        found += [((part, str(n)), layer[part]) for part in LAYER_PARTS]
    for n, adapters in enumerate(route.adapters):
        found += [
            ((adapter.addition.name, adapter.site, part, str(n)), owner)
            for adapter in adapters
            for part, owner in adapter.parts.items()
        ]
    found += [(("pooler",), owner) for owner in route.pooler]
    return found + [(("late", str(n)), owner) for n, owner in enumerate(route.late)]
