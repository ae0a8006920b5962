"""The layout: a plan applied to given tasks and an encoder, as owners, routes, sizes and rates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

from mops.errors import PlanError, nearest
from mops.plans.routes import Owners, Route, find_routes, unique
from mops.plans.rows import TRUNK_FROZEN, L2Pull, Rate, SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.plans.sizes import (
    TRUNK_SIZES,
    HeadInput,
    adapter_sizes,
    dense,
    head_input,
    head_size,
    late_widths,
)
from mops.tasks import Task


@dataclass(frozen=True)
class L2Group:
    """Owners under one L2 penalty: pulled to their mean, or each to its initial weights."""

    owners: Owners
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
    rates: Mapping[str, float]  # owner -> factor on the learning rate; 0 = frozen

    @property
    def parameters(self) -> int:
        return sum(self.sizes.values())

    @property
    def trained(self) -> int:
        """The number of weights that are not frozen."""
        return sum(size for owner, size in self.sizes.items() if self.rates[owner] > 0)

    @cached_property
    def frozen_rates(self) -> Mapping[str, float]:
        """The rates with the prefix `frozen+`: the pretrained weights do not move."""
        return rates_for(replace(self.plan, rates=(*TRUNK_FROZEN, *self.plan.rates)), self.sizes)

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """Owner -> the tasks whose answers depend on it."""
        return {
            owner: tuple(task for task, route in self.routes.items() if owner in route.owners)
            for owner in self.sizes
        }

    @cached_property
    def trained_by(self) -> Mapping[str, tuple[str, ...]]:
        """Owner -> the tasks whose losses train it."""
        return {
            owner: tuple(task for task, route in self.routes.items() if owner in route.trained)
            for owner in self.sizes
        }

    @cached_property
    def branches(self) -> tuple[Mapping[str, int], ...]:
        """For each stage: task -> number of its branch.

        Tasks are on one branch as long as all stages up to here have the same owners, so that one
        computation serves them all. Branches are numbered in the order of their owners, so that
        branches that meet again at a shared layer are adjacent.
        """
        branches = []
        for stage in range(len(next(iter(self.routes.values())).stages)):
            prefix = {task: route.stages[: stage + 1] for task, route in self.routes.items()}
            ranks = {owners: rank for rank, owners in enumerate(sorted(set(prefix.values())))}
            branches.append({task: ranks[owners] for task, owners in prefix.items()})
        return tuple(branches)

    @cached_property
    def l2_groups(self) -> tuple[L2Group, ...]:
        """The owners that the plan's pull rows hold; the first row that matches an owner counts."""
        slots = zip(*(route.slots for route in self.routes.values()), strict=True)
        copies = dict.fromkeys(unique(*owners) for owners in slots)
        groups: list[L2Group] = []
        taken: set[str] = set()
        for row in self.plan.pull:
            for alternatives in copies:
                free = (o for o in alternatives if self.rates[o] and o not in taken)
                owners = tuple(owner for owner in free if fnmatchcase(owner, row.owner))
                if len(owners) > 1 or (owners and row.towards == "start"):
                    groups.append(L2Group(owners, row.strength, row.towards))
                    taken |= set(owners)
        return tuple(groups)

    def frozen_stages(self, rates: Mapping[str, float]) -> int:
        """How many stages, from the bottom up, no task trains if the owners have these rates."""
        stages = zip(*(route.stages for route in self.routes.values()), strict=True)
        is_learning = [
            any(rates[owner] > 0 for owners in routes for owner in owners) for routes in stages
        ]
        return (*is_learning, True).index(True)

    def head_input(self, task: str) -> HeadInput:
        """The input of a task's head."""
        width = late_widths(self.plan, self.encoder)[-1]
        feeds = self.routes[task].feeds
        return head_input(self.tasks[task], feeds, list(self.tasks.values()), self.reading, width)


def lay_out(
    plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape, reading: Reading
) -> Layout:
    """Apply a plan: names for all copies, a route per task, sizes and rates."""
    by_name = {task.name: task for task in tasks}
    refuse(plan, mismatches(plan, list(by_name), encoder.depth))
    refuse(plan, idle_patterns(plan, tasks, encoder.depth))
    routes = find_routes(plan, tasks, encoder.depth, reading.pool)
    refuse(plan, impossible_feeds(plan, routes, by_name, reading))
    widths = late_widths(plan, encoder)
    sizes: dict[str, int] = {}
    for task in tasks:
        route = routes[task.name]
        sizes |= {owner: TRUNK_SIZES[part](encoder) for owner, part, _ in route.trunk}
        for adapter in (adapter for adapters in route.adapters for adapter in adapters):
            sizes |= adapter_sizes(adapter, encoder)
        sizes |= zip(route.late, map(dense, widths, widths[1:]), strict=True)
        inputs = head_input(task, route.feeds, tasks, reading, widths[-1])
        sizes[route.head] = head_size(task, reading, inputs)
    return Layout(plan, by_name, encoder, reading, routes, sizes, rates_for(plan, sizes))


def rates_for(plan: SharingPlan, owners: Iterable[str]) -> dict[str, float]:
    """Owner -> the factor of the first rate row that matches it."""
    rates = {}
    for owner in owners:
        factors = [row.factor for row in plan.rates if fnmatchcase(owner, row.owner)]
        if not factors:
            raise PlanError(
                f"plan {plan.name!r}: no rate covers {owner!r}; rows are "
                f"{', '.join(row.owner for row in plan.rates)}. Add '*' as the last row; 0 freezes"
            )
        rates[owner] = factors[0]
    return rates


# ------------------------------------------------------------------ plans that do not fit


def refuse(plan: SharingPlan, problems: Iterable[str]) -> None:
    for problem in problems:
        raise PlanError(f"plan {plan.name!r}: {problem}")


def mismatches(plan: SharingPlan, tasks: Sequence[str], depth: int) -> Iterator[str]:
    """Rows for layers or tasks that do not exist."""
    if plan.depth not in (0, depth):
        yield (
            f"it is written for {plan.depth} layers, the encoder has {depth}; "
            "give one letter per layer"
        )
    ranges = [row.layers for row in plan.copies] + [row.layers for row in plan.additions]
    for layers in ranges:
        first, last = (n + depth if n < 0 else n for n in layers or (0, 0))
        if not 0 <= first <= depth or not 0 <= last < depth or last < first < depth:
            yield (
                f"the layers {list(layers or ())} do not exist: the encoder has only {depth} "
                f"(0 to {depth - 1}, the lower first; a range from {depth} on is empty)"
            )
    grouped = [[task for group in row.groups for task in group] for row in plan.grouped_rows]
    if any(len(set(names)) < len(names) for names in grouped):
        yield "a task is in two groups of one row"
    fed = [name for feed in plan.feeds for name in (feed.source, feed.target) if name != "*"]
    for name in (name for names in (*grouped, fed) for name in names):
        if name not in tasks:
            yield f"no task {name!r}; the tasks are {', '.join(tasks)}.{nearest(name, tasks)}"


def idle_patterns(plan: SharingPlan, tasks: Sequence[Task], depth: int) -> Iterator[str]:
    """Rate and pull rows that match no owner."""
    owners = all_owners(plan, tasks, depth)
    rows: tuple[Rate | L2Pull, ...] = (*plan.rates, *plan.pull)
    for row in rows:
        if not any(fnmatchcase(owner, row.owner) for owner in owners):
            yield (
                f"the {'rate' if isinstance(row, Rate) else 'pull'} for {row.owner!r} matches no "
                f"owner; owners are called {owners[0]}, {owners[1]}, ..., {owners[-1]}"
            )


def all_owners(plan: SharingPlan, tasks: Sequence[Task], depth: int) -> Owners:
    """Every owner that any route may pass, including the pooler."""
    routes = find_routes(plan, tasks, depth, "pooler").values()
    return unique(*(owner for route in routes for owner in route.owners))


def impossible_feeds(
    plan: SharingPlan, routes: Mapping[str, Route], tasks: Mapping[str, Task], reading: Reading
) -> Iterator[str]:
    """Feeds without a shared trunk, a suitable head or matching texts."""
    feeds = [feed for route in routes.values() for feed in route.feeds]
    if plan.feeds and not feeds:
        yield "no task feeds another; it needs two tasks or more"
    for feed in feeds:
        target, cannot = routes[feed.target], f"{feed.source!r} cannot feed {feed.target!r}:"
        if routes[feed.source].stages != target.stages:
            yield f"{cannot} they do not share the encoder"
        if reading.texts_apart(tasks[feed.source].is_pair) and not tasks[feed.target].is_pair:
            yield f"{cannot} with pair: bi it answers two texts, and the later task has one"
        if reading.head(feed.target).kind == "cosine":
            yield f"{cannot} a cosine head reads only two vectors; give the later task another head"
        if feed.what == "hidden" and reading.head(feed.source).kind != "mlp":
            yield f"{cannot} it has no hidden layer; set training.head to mlp, or feed the logits"
        if len({other.combine for other in target.feeds}) > 1:
            yield f"{cannot} a task's feeds are combined in the same way, concat or attention"
