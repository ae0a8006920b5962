"""Routes: for one task, the names of all the copies it passes, from the bottom to the top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

from mops.errors import PlanError
from mops.plans.rows import (
    LAYER_PARTS,
    ON_TOP,
    PER_LAYER,
    Addition,
    Copies,
    Feed,
    Groups,
    SharingPlan,
)
from mops.tasks import Task


@dataclass(frozen=True)
class AdapterSite:
    """An addition at one site of one layer: the owners of its parts."""

    addition: Addition
    site: str
    parts: Mapping[str, str]  # part -> owner


@dataclass(frozen=True)
class Route:
    """The owners that one task passes, from the bottom to the top."""

    embeddings: str
    layers: tuple[Mapping[str, str], ...]  # one per layer: part -> owner
    adapters: tuple[
        tuple[AdapterSite, ...], ...
    ]  # the additions of each layer, then of each place on top
    pooler: tuple[str, ...]  # none or one
    late: tuple[str, ...]
    head: str
    feeds: tuple[Feed, ...] = ()  # into the head
    upstream: tuple[str, ...] = ()  # owners of feeding tasks
    upstream_trained: tuple[str, ...] = ()  # those of them that learn from this task's loss too

    @cached_property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """The owners of the embeddings, of each layer and of each place on top: the tokens' way."""
        added = [
            tuple(o for adapter in adapters for o in adapter.parts.values())
            for adapters in self.adapters
        ]
        layers = [tuple(layer.values()) for layer in self.layers]
        layers += [()] * (len(added) - len(layers))
        return ((self.embeddings,), *(a + b for a, b in zip(layers, added, strict=True)))

    @cached_property
    def own(self) -> tuple[str, ...]:
        """What the task passes and teaches, without what it only hears."""
        trunk = (owner for stage in self.stages for owner in stage)
        return tuple(dict.fromkeys((*trunk, *self.pooler, *self.late, self.head)))

    @cached_property
    def owners(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.own, *self.upstream)))

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """The owners that the task's loss must reach."""
        return tuple(dict.fromkeys((*self.own, *self.upstream_trained)))


def find_routes(
    plan: SharingPlan, tasks: Sequence[Task], depth: int, pool: str
) -> dict[str, Route]:
    """A route per task; those that feed come before those that hear them."""
    plain = {task.name: route_of(plan, task.name, depth, pool) for task in tasks}
    feeds = resolve_feeds(plan, tasks)
    found: dict[str, Route] = {}
    while len(found) < len(plain):
        ready = [n for n in plain if n not in found and all(f.source in found for f in feeds[n])]
        if not ready:
            left = ", ".join(name for name in plain if name not in found)
            raise PlanError(f"plan {plan.name!r}: the feeds of {left} go round in a circle")
        for name in ready:
            upstream, upstream_trained = upstream_of(feeds[name], found)
            found[name] = replace(
                plain[name], feeds=feeds[name], upstream=upstream, upstream_trained=upstream_trained
            )
    return {name: found[name] for name in plain}


def upstream_of(
    feeds: Sequence[Feed], routes: Mapping[str, Route]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The late layers and heads of the tasks that feed, and which of them are trained."""
    upstream: list[str] = []
    upstream_trained: list[str] = []
    for feed in feeds:
        source = routes[feed.source]
        fixed = (*source.late, source.head)
        upstream += [*source.pooler, *fixed, *source.upstream]
        if feed.gradient != "stop":
            upstream_trained += [*source.pooler, *source.upstream_trained]
        if feed.gradient not in ("stop", "frozen-head"):
            upstream_trained += fixed
    return tuple(dict.fromkeys(upstream)), tuple(dict.fromkeys(upstream_trained))


def route_of(plan: SharingPlan, task: str, depth: int, pool: str) -> Route:
    def owner(part: str, layer: int | None = None) -> str:
        row = copies_row(plan, part, layer, depth)
        return name_copy(part, row.per, layer_name(layer), group_of(task, row.groups))

    tops = max((a.depth for a in plan.additions if ON_TOP in a.sites), default=0)
    return Route(
        embeddings=owner("embeddings"),
        layers=tuple({part: owner(part, n) for part in LAYER_PARTS} for n in range(depth)),
        adapters=(
            *(tuple(adapters_in(plan, task, n, depth)) for n in range(depth)),
            *(tuple(adapters_on_top(plan, task, n)) for n in range(tops)),
        ),
        pooler=(owner("pooler"),) if pool == "pooler" else (),
        late=tuple(
            name_copy(f"late{n}", row.per, "", group_of(task, row.groups))
            for n, row in enumerate(plan.late, start=1)
        ),
        head=f"head/{task}",
    )


def adapters_in(plan: SharingPlan, task: str, layer: int, depth: int) -> Iterator[AdapterSite]:
    for addition in plan.additions:
        if addition.layers is None or within(layer, addition.layers, depth):
            for site in addition.sites:
                if site != ON_TOP:
                    yield adapter_at(addition, site, layer_name(layer), task)


def adapters_on_top(plan: SharingPlan, task: str, place: int) -> Iterator[AdapterSite]:
    for addition in plan.additions:
        if ON_TOP in addition.sites and place < addition.depth:
            yield adapter_at(addition, ON_TOP, f"top{place:02d}", task)


def adapter_at(addition: Addition, site: str, where: str, task: str) -> AdapterSite:
    group = group_of(task, addition.groups)
    parts = {
        part: name_copy(f"{addition.name}_{part}", per, where, group)
        for part, per in addition.per.items()
    }
    return AdapterSite(addition, site, parts)


# ------------------------------------------------------------------ names


def copies_row(plan: SharingPlan, part: str, layer: int | None, depth: int) -> Copies:
    """The first row that covers this part here; plain BERT ("one copy per layer") if none does."""
    rows = (*plan.copies, Copies(part="*", per=PER_LAYER))
    return next(
        row for row in rows if fnmatchcase(part, row.part) and within(layer, row.layers, depth)
    )


def within(layer: int | None, layers: tuple[int, int] | None, depth: int) -> bool:
    """Embeddings and pooler have no layer: only rows without a range cover them."""
    if layers is None or layer is None:
        return layers is None
    first, last = (n + depth if n < 0 else n for n in layers)
    return first <= layer <= last


def layer_name(layer: int | None) -> str:
    return "" if layer is None else f"layer{layer:02d}"


def name_copy(part: str, per: tuple[str, ...], where: str, group: str) -> str:
    # A slash, not a dot: torch refuses dots in the names of modules.
    names = [part]
    if "layer" in per and where:
        names.append(where)
    if "task" in per:
        names.append(group)
    return "/".join(names)


def group_of(task: str, groups: Groups) -> str:
    return next(("+".join(group) for group in groups if task in group), task)


# ------------------------------------------------------------------ feeds


def resolve_feeds(plan: SharingPlan, tasks: Sequence[Task]) -> dict[str, tuple[Feed, ...]]:
    """Task -> the feeds into it, by name; `*` is every pair in order, single texts before pairs."""
    order = sorted(tasks, key=lambda task: task.is_pair)
    names = [task.name for task in order]
    found: dict[str, dict[str, Feed]] = {name: {} for name in names}
    for feed in plan.feeds:
        is_open = "*" in (feed.source, feed.target)
        for n, source in enumerate(names):
            for target in names[n + 1 :] if is_open else names:
                if fnmatchcase(source, feed.source) and fnmatchcase(target, feed.target):
                    named = replace(feed, source=source, target=target)
                    found[target].setdefault(source, named)
    return {name: tuple(feeds.values()) for name, feeds in found.items()}
