"""Routes: for one task, the names of all weight copies it passes, from the bottom to the top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain

from mops.errors import PlanError
from mops.plans.rows import (
    LAYER_PARTS,
    ON_TOP,
    PER_LAYER,
    Addition,
    Copies,
    Feed,
    Groups,
    LayerRange,
    Per,
    SharingPlan,
)
from mops.tasks import Task

Owners = tuple[str, ...]


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
    layers: tuple[Mapping[str, str], ...]  # for each layer: part -> owner
    adapters: tuple[tuple[AdapterSite, ...], ...]  # of each layer, then of each place on top
    pooler: Owners  # empty or one
    late: Owners
    head: str
    feeds: tuple[Feed, ...] = ()  # into the head
    upstream: Owners = ()  # owners of the tasks that feed this one
    upstream_trained: Owners = ()  # those of them that this task's loss trains too

    @cached_property
    def trunk(self) -> tuple[tuple[str, str, int], ...]:
        """(owner, part, layer) of all pretrained weights, from the bottom to the top."""
        layers = ((o, part, n) for n, layer in enumerate(self.layers) for part, o in layer.items())
        poolers = ((owner, "pooler", 0) for owner in self.pooler)
        return ((self.embeddings, "embeddings", 0), *layers, *poolers)

    @cached_property
    def stages(self) -> tuple[Owners, ...]:
        """The owners of the embeddings, of each layer and of each place on top."""
        layers: list[Owners] = [tuple(layer.values()) for layer in self.layers]
        layers += [()] * (len(self.adapters) - len(layers))
        added = [tuple(chain(*(site.parts.values() for site in sites))) for sites in self.adapters]
        return ((self.embeddings,), *(a + b for a, b in zip(layers, added, strict=True)))

    @cached_property
    def slots(self) -> Owners:
        """The owner at each place below the head; the routes of all tasks have the same places."""
        return (*chain(*self.stages), *self.pooler, *self.late)

    @cached_property
    def own(self) -> Owners:
        """All owners on the task's own way, each once; without upstream tasks."""
        return unique(*self.slots, self.head)

    @cached_property
    def owners(self) -> Owners:
        """All owners on which the task's answers depend."""
        return unique(*self.own, *self.upstream)

    @cached_property
    def trained(self) -> Owners:
        """All owners that the task's loss trains unless they are frozen."""
        return unique(*self.own, *self.upstream_trained)


def unique(*owners: str) -> Owners:
    return tuple(dict.fromkeys(owners))


def find_routes(
    plan: SharingPlan, tasks: Sequence[Task], depth: int, pool: str
) -> dict[str, Route]:
    """A route per task; the routes of feeding tasks are completed before those they feed."""
    plain = {task.name: plain_route(plan, task.name, depth, pool) for task in tasks}
    feeds = resolve_feeds(plan, tasks)
    routes: dict[str, Route] = {}
    while len(routes) < len(plain):
        ready = [n for n in plain if n not in routes and all(f.source in routes for f in feeds[n])]
        if not ready:
            left = ", ".join(name for name in plain if name not in routes)
            raise PlanError(f"plan {plan.name!r}: the feeds of {left} form a cycle")
        for name in ready:
            routes[name] = with_feeds(plain[name], feeds[name], routes)
    return {name: routes[name] for name in plain}


def with_feeds(route: Route, feeds: tuple[Feed, ...], routes: Mapping[str, Route]) -> Route:
    """A route with the poolers, late layers and heads of the tasks that feed it."""
    upstream: list[str] = []
    trained: list[str] = []
    for feed in feeds:
        source = routes[feed.source]
        top = (*source.late, source.head)
        upstream += [*source.pooler, *top, *source.upstream]
        if feed.gradient != "stop":
            trained += [*source.pooler, *source.upstream_trained]
        if feed.gradient not in ("stop", "frozen-head"):
            trained += top
    return replace(
        route, feeds=feeds, upstream=unique(*upstream), upstream_trained=unique(*trained)
    )


def plain_route(plan: SharingPlan, task: str, depth: int, pool: str) -> Route:
    """The route of a task without feeds."""

    def owner(part: str, layer: int | None = None) -> str:
        row = copies_row(plan, part, layer, depth)
        where = "" if layer is None else f"layer{layer:02d}"
        return name_owner(part, row.per, where, group_name(task, row.groups))

    tops = max((a.depth for a in plan.additions if ON_TOP in a.sites), default=0)
    return Route(
        embeddings=owner("embeddings"),
        layers=tuple({part: owner(part, n) for part in LAYER_PARTS} for n in range(depth)),
        adapters=tuple(tuple(adapters_at(plan, task, n, depth)) for n in range(depth + tops)),
        pooler=(owner("pooler"),) if pool == "pooler" else (),
        late=tuple(
            name_owner(f"late{n}", row.per, "", group_name(task, row.groups))
            for n, row in enumerate(plan.late, start=1)
        ),
        head=f"head/{task}",
    )


def adapters_at(plan: SharingPlan, task: str, stage: int, depth: int) -> Iterator[AdapterSite]:
    """The additions in a layer or, from stage `depth` on, at a place on top of the last layer."""
    for addition in plan.additions:
        group = group_name(task, addition.groups)
        for site in addition.sites:
            if site == ON_TOP:
                is_here = depth <= stage < depth + addition.depth
                where = f"top{stage - depth:02d}"
            else:
                is_here = stage < depth and covers(addition.layers, stage, depth)
                where = f"layer{stage:02d}"
            if is_here:
                parts = {
                    part: name_owner(f"{addition.name}_{part}", per, where, group)
                    for part, per in addition.per.items()
                }
                yield AdapterSite(addition, site, parts)


# ------------------------------------------------------------------ names


def copies_row(plan: SharingPlan, part: str, layer: int | None, depth: int) -> Copies:
    """The first row that covers this part here; plain BERT (one copy per layer) if none does."""
    rows = (*plan.copies, Copies(part="*", per=PER_LAYER))
    return next(r for r in rows if fnmatchcase(part, r.part) and covers(r.layers, layer, depth))


def covers(layers: LayerRange | None, layer: int | None, depth: int) -> bool:
    """Embeddings and pooler have no layer: only rows without a range cover them."""
    if layers is None or layer is None:
        return layers is None
    first, last = (n + depth if n < 0 else n for n in layers)
    return first <= layer <= last


def name_owner(part: str, per: Per, where: str, group: str) -> str:
    # A slash, not a dot: torch refuses dots in the names of modules.
    names = [part]
    if "layer" in per and where:
        names.append(where)
    if "task" in per:
        names.append(group)
    return "/".join(names)


def group_name(task: str, groups: Groups) -> str:
    return next(("+".join(group) for group in groups if task in group), task)


# ------------------------------------------------------------------ feeds


def resolve_feeds(plan: SharingPlan, tasks: Sequence[Task]) -> dict[str, tuple[Feed, ...]]:
    """Task -> the feeds into it, by name; `*` is every pair in order, single texts before pairs."""
    names = [task.name for task in sorted(tasks, key=lambda task: task.is_pair)]
    feeds: dict[str, dict[str, Feed]] = {name: {} for name in names}
    for row in plan.feeds:
        is_open = "*" in (row.source, row.target)
        for n, source in enumerate(names):
            for target in names[n + 1 :] if is_open else names:
                if fnmatchcase(source, row.source) and fnmatchcase(target, row.target):
                    feeds[target].setdefault(source, replace(row, source=source, target=target))
    return {name: tuple(sources.values()) for name, sources in feeds.items()}
