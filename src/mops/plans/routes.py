"""Routes: for one task, the names of all weight copies it passes, from the bottom to the top."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from mops.errors import PlanError
from mops.plans.rows import (
    GATE,
    LAYER_PARTS,
    ON_TOP,
    Addition,
    Copies,
    Feed,
    Groups,
    LayerRange,
    Per,
    SharingPlan,
)
from mops.plans.shapes import EncoderShape
from mops.tasks import Task

Owners = tuple[str, ...]


def dense(n_in: int, n_out: int) -> int:
    """The number of weights of a linear layer."""
    return n_in * n_out + n_out


def unique(*owners: str) -> Owners:
    return tuple(dict.fromkeys(owners))


# ------------------------------------------------------------------ additions

PAL_SIZE = 204 / 768  # relative to the encoder's width, as in Stickland and Murray 2019
LAYER_HEADS, TOP_HEADS = 6, 12
DEFAULT_SIZES = {"lora": 8, "bottleneck": 64}
ADDITION_SIZES: dict[tuple[str, str], Callable[[int, int, int], int]] = {  # width, size, site
    ("pal", "down"): lambda width, size, site: dense(width, size),
    ("pal", "attend"): lambda width, size, site: dense(size, 3 * size),
    ("pal", "up"): lambda width, size, site: dense(size, width),
    ("bottleneck", "down"): lambda width, size, site: dense(width, size),
    ("bottleneck", "up"): lambda width, size, site: dense(size, width),
    ("lora", "down"): lambda width, size, site: 2 * width * size,  # for queries and values
    ("lora", "up"): lambda width, size, site: 2 * size * width,
    ("task_embedding", "vector"): lambda width, size, site: site,
}


@dataclass(frozen=True)
class AdapterSite:
    """An addition at one site of one layer: the owners of its parts, and their sizes."""

    addition: Addition
    site: str
    parts: Mapping[str, str]  # part -> owner
    encoder: EncoderShape

    @property
    def heads(self) -> int:
        """The number of attention heads of a projected attention layer."""
        return TOP_HEADS if self.site == ON_TOP else LAYER_HEADS

    @property
    def width(self) -> int:
        """The width of the vectors to which the addition is added."""
        widths = {"in_attention": 3 * self.encoder.width, "in_feedforward": self.encoder.inner}
        return widths.get(self.site, self.encoder.width)

    @cached_property
    def size(self) -> int:
        """The given size, or the default of its kind for an encoder of this width."""
        addition = self.addition
        if addition.kind != "pal":
            return addition.size or DEFAULT_SIZES.get(addition.kind, 0)
        heads = TOP_HEADS if ON_TOP in addition.sites else LAYER_HEADS  # 6 divides 12
        size = addition.size or max(1, round(PAL_SIZE * self.encoder.width / heads)) * heads
        if size % heads:
            raise PlanError(
                f"addition {addition.name!r}: its size {size} cannot be divided by its {heads} "
                f"heads; take {heads * max(1, round(size / heads))}"
            )
        return size

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Owner -> its number of weights."""
        widths = self.encoder.width, self.size, self.width
        return {
            owner: 1 if part == GATE else ADDITION_SIZES[self.addition.kind, part](*widths)
            for part, owner in self.parts.items()
        }


# ------------------------------------------------------------------ routes


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
    def owners(self) -> Owners:
        """All owners on which the task's answers depend."""
        return unique(*self.slots, self.head, *self.upstream)

    @cached_property
    def trained(self) -> Owners:
        """All owners that the task's loss trains unless they are frozen."""
        return unique(*self.slots, self.head, *self.upstream_trained)


def find_routes(
    plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape, pool: str
) -> dict[str, Route]:
    """A route per task; the routes of feeding tasks are completed before those they feed."""
    feeds = resolve_feeds(plan, tasks)
    sources = {task.name: [feed.source for feed in feeds[task.name]] for task in tasks}
    routes: dict[str, Route] = {}
    try:
        for name in TopologicalSorter(sources).static_order():
            route = plain_route(plan, name, encoder, pool)
            routes[name] = with_feeds(route, feeds[name], routes)
    except CycleError as cause:
        cycle = ", ".join(name for name in sources if name in cause.args[1])
        raise PlanError(f"plan {plan.name!r}: the feeds of {cycle} form a cycle") from cause
    return {name: routes[name] for name in sources}


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


def plain_route(plan: SharingPlan, task: str, encoder: EncoderShape, pool: str) -> Route:
    """The route of a task without feeds."""
    depth = encoder.depth

    def owner(part: str, layer: int | None = None) -> str:
        """The name after the first row that covers the part here; by default one per layer."""
        rows = (*plan.copies, Copies(part="*", per=("layer",)))
        fitting = (row for row in rows if fnmatchcase(part, row.part))
        row = next(row for row in fitting if covers(row.layers, layer, depth))
        where = "" if layer is None else f"layer{layer:02d}"
        return name_owner(part, row.per, where, task, row.groups)

    tops = max((a.depth for a in plan.additions if ON_TOP in a.sites), default=0)
    return Route(
        embeddings=owner("embeddings"),
        layers=tuple({part: owner(part, n) for part in LAYER_PARTS} for n in range(depth)),
        adapters=tuple(tuple(adapters_at(plan, task, n, encoder)) for n in range(depth + tops)),
        pooler=(owner("pooler"),) if pool == "pooler" else (),
        late=tuple(
            name_owner(f"late{n}", row.per, "", task, row.groups)
            for n, row in enumerate(plan.late, start=1)
        ),
        head=f"head/{task}",
    )


def adapters_at(
    plan: SharingPlan, task: str, stage: int, encoder: EncoderShape
) -> Iterator[AdapterSite]:
    """The additions in a layer or, from stage `depth` on, at a place on top of the last layer."""
    top = stage - encoder.depth
    where = f"top{top:02d}" if top >= 0 else f"layer{stage:02d}"
    for addition in plan.additions:
        in_layer = top < 0 and covers(addition.layers, stage, encoder.depth)
        for site in addition.sites:
            if 0 <= top < addition.depth if site == ON_TOP else in_layer:
                parts = {
                    part: name_owner(f"{addition.name}_{part}", per, where, task, addition.groups)
                    for part, per in addition.per.items()
                }
                yield AdapterSite(addition, site, parts, encoder)


def covers(layers: LayerRange | None, layer: int | None, depth: int) -> bool:
    """Embeddings and pooler have no layer: only rows without a range cover them."""
    if layers is None or layer is None:
        return layers is None
    first, last = (n + depth if n < 0 else n for n in layers)
    return first <= layer <= last


def name_owner(part: str, per: Per, where: str, task: str, groups: Groups) -> str:
    """The part, and the layer and the task or its group where each has a copy of its own."""
    group = next(("+".join(group) for group in groups if task in group), task)
    axes = [where if "layer" in per else "", group if "task" in per else ""]
    # A slash, not a dot: torch refuses dots in the names of modules.
    return "/".join([part, *filter(None, axes)])


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
