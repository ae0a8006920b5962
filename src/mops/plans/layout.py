"""The layout: a plan applied to given tasks and an encoder, as owners, routes, sizes and rates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise

from mops.errors import PlanError
from mops.plans.rows import (
    LAYER_PARTS,
    ON_TOP,
    TRUNK_FROZEN,
    AdapterSite,
    Addition,
    Copies,
    Feed,
    Groups,
    L2Pull,
    LayerRange,
    Per,
    Rate,
    SharingPlan,
    mismatches,
    refuse,
    unmatched,
)
from mops.plans.shapes import (
    TRUNK_SIZES,
    EncoderShape,
    HeadInput,
    Layers,
    Reading,
    dense,
    head_size,
)
from mops.tasks import Task

Owners = tuple[str, ...]
Place = tuple[int | str, ...]  # the number of a stage, and the part there


def unique(*owners: str) -> Owners:
    return tuple(dict.fromkeys(owners))


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
    def slots(self) -> Mapping[Place, str]:
        """The owner at each place below the head, from the bottom to the top."""
        slots: dict[Place, str] = {("embeddings",): self.embeddings}
        for n, sites in enumerate(self.adapters):
            for layer in self.layers[n : n + 1]:  # none on top
                slots |= {(n, part): owner for part, owner in layer.items()}
            for site in sites:
                place = n, site.addition.name, site.site
                slots |= {(*place, part): owner for part, owner in site.parts.items()}
        for name, owners in (("pooler", self.pooler), ("late", self.late)):
            slots |= {(n, name): owner for n, owner in enumerate(owners)}
        return slots

    @cached_property
    def owners(self) -> Owners:
        """All owners on which the task's answers depend."""
        return unique(*self.slots.values(), self.head, *self.upstream)

    @cached_property
    def trained(self) -> Owners:
        """All owners that the task's loss trains unless they are frozen."""
        return unique(*self.slots.values(), self.head, *self.upstream_trained)


def find_routes(
    plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape, pool: str
) -> dict[str, Route]:
    """A route per task; the routes of feeding tasks are completed before those they feed."""
    feeds = resolve_feeds(plan, tasks)
    sources = {task.name: [feed.source for feed in feeds[task.name]] for task in tasks}
    unpooled = {task.name for task in tasks if task.answer.reads_words}
    routes: dict[str, Route] = {}
    try:
        for name in TopologicalSorter(sources).static_order():
            route = plain_route(plan, name, encoder, "" if name in unpooled else pool)
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
        """The name after the first row that covers the part here; by default one per layer.

        Where the task has no copy of its own, the rows of the task that it is like decide.
        """
        for name in plan.lineage(task):
            rows = (*plan.rows_at(plan.copies, name), Copies(part="*", per=("layer",)))
            fitting = (row for row in rows if fnmatchcase(part, row.part))
            row = next(row for row in fitting if covers(row.layers, layer, depth))
            if "task" in row.per:
                break
        where = "" if layer is None else f"layer{layer:02d}"
        return name_owner(part, row.per, where, name, row.groups)

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
    for addition, name in additions_of(plan, task):
        in_layer = top < 0 and covers(addition.layers, stage, encoder.depth)
        for site in addition.sites:
            if 0 <= top < addition.depth if site == ON_TOP else in_layer:
                parts = {
                    part: name_owner(f"{addition.name}_{part}", per, where, name, addition.groups)
                    for part, per in addition.per.items()
                }
                yield AdapterSite(addition, site, parts, encoder)


def additions_of(plan: SharingPlan, task: str) -> Iterator[tuple[Addition, str]]:
    """The additions on a task's route, and the task of its lineage whose copies they are."""
    chosen: dict[str, tuple[Addition, str]] = {}
    for name in plan.lineage(task):
        for row in plan.rows_at(plan.additions, name):
            chosen.setdefault(row.name, (row, name))
    # In the order of the plan, so that the sum does not depend on who else is in a batch.
    yield from (
        chosen[row.name] for row in plan.additions if row is chosen.get(row.name, (None,))[0]
    )


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


@dataclass(frozen=True)
class Layout:
    """A plan applied: every copy has a name, a size and a rate; every task has a route."""

    plan: SharingPlan
    tasks: Mapping[str, Task]
    encoder: EncoderShape
    reading: Reading
    routes: Mapping[str, Route]

    @property
    def depth(self) -> int:
        """The number of layers; of a frozen prefix fewer than the encoder's."""
        return len(next(iter(self.routes.values())).layers)

    @cached_property
    def trunk(self) -> Mapping[str, tuple[str, Layers]]:
        """Owner of pretrained weights -> its part, and the layers that it serves."""
        places = dict.fromkeys(chain(*(route.trunk for route in self.routes.values())))
        trunk: dict[str, tuple[str, Layers]] = {}
        for owner, part, layer in places:
            trunk[owner] = part, (*trunk.get(owner, (part, ()))[1], layer)
        return trunk

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Owner -> its number of weights; the checkpoint's table of contents."""
        trunk = {o: TRUNK_SIZES[part](self.encoder, on) for o, (part, on) in self.trunk.items()}
        sizes: dict[str, int] = {}
        for name, route in self.routes.items():
            sizes |= {owner: trunk[owner] for owner, _, _ in route.trunk}
            for adapter in chain(*route.adapters):
                sizes |= adapter.sizes
            sizes |= zip(route.late, self.late_sizes, strict=True)
            sizes[route.head] = head_size(self.tasks[name], self.reading, self.head_input(name))
        return sizes

    @cached_property
    def late_widths(self) -> tuple[int, ...]:
        """The width of the pooled vector and of each late layer's output."""
        widths = [self.encoder.width]
        for row in self.plan.late:
            widths.append(widths[-1] if row.norm else row.width or self.encoder.width)
        return tuple(widths)

    @cached_property
    def late_sizes(self) -> tuple[int, ...]:
        """The number of weights of each late layer."""
        rows = zip(self.plan.late, pairwise(self.late_widths), strict=True)
        return tuple(2 * widths[0] if row.norm else dense(*widths) for row, widths in rows)

    def head_input(self, name: str) -> HeadInput:
        is_pair, feeds, fed = self.tasks[name].is_pair, self.routes[name].feeds, []
        reading = self.reading.of(name)
        for feed in feeds:
            source = self.tasks[feed.source]
            # A single-text task answers each text of a pair that is read as two sequences.
            texts = 2 if reading.texts_apart(is_pair) and not source.is_pair else 1
            hidden = reading.head(source.name).width
            fed.append(texts * (hidden if feed.what == "hidden" else source.outputs))
        combine, width = feeds[0].combine if feeds else "concat", self.late_widths[-1]
        return HeadInput(width, (reading.vectors(is_pair) * width, *fed), combine)

    @cached_property
    def rates(self) -> Mapping[str, float]:
        """Owner -> factor on its learning rate; 0 = frozen."""
        return self.factors(self.plan.rates)

    @cached_property
    def frozen_rates(self) -> Mapping[str, float]:
        """The rates with the prefix `frozen+`: the pretrained weights do not move."""
        return self.factors((*TRUNK_FROZEN, *self.plan.rates))

    def factors(self, rows: Sequence[Rate]) -> dict[str, float]:
        """Owner -> the factor of its rate row; 0 on the routes of frozen tasks."""
        frozen = chain(*(self.routes[task].owners for task in self.plan.frozen))
        return first_factors(rows, self.sizes) | dict.fromkeys(frozen, 0.0)

    @property
    def parameters(self) -> int:
        return sum(self.sizes.values())

    @property
    def trained(self) -> int:
        """The number of weights that are not frozen."""
        return sum(size for owner, size in self.sizes.items() if self.rates[owner] > 0)

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """Owner -> the tasks whose answers depend on it."""
        return self.tasks_of({task: route.owners for task, route in self.routes.items()})

    @cached_property
    def trained_by(self) -> Mapping[str, tuple[str, ...]]:
        """Owner -> the tasks whose losses train it."""
        return self.tasks_of({task: route.trained for task, route in self.routes.items()})

    def tasks_of(self, owners: Mapping[str, Owners]) -> dict[str, tuple[str, ...]]:
        return {o: tuple(t for t, own in owners.items() if o in own) for o in self.sizes}

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
    def l2_groups(self) -> tuple[tuple[Owners, L2Pull], ...]:
        """The owners under each L2 penalty; the first pull row that matches an owner counts."""
        slots: dict[Place, Owners] = {}  # in the order of their places
        for route in self.routes.values():
            slots |= {place: (*slots.get(place, ()), own) for place, own in route.slots.items()}
        copies = dict.fromkeys(unique(*owners) for owners in slots.values())
        groups: list[tuple[Owners, L2Pull]] = []
        taken: set[str] = set()
        for row in self.plan.pull:
            for alternatives in copies:
                free = (o for o in alternatives if self.rates[o] and o not in taken)
                owners = tuple(owner for owner in free if fnmatchcase(owner, row.owner))
                if len(owners) > 1 or (owners and row.towards == "start"):
                    groups.append((owners, row))
                    taken |= set(owners)
        return tuple(groups)

    def frozen_stages(self, rates: Mapping[str, float]) -> int:
        """How many stages, from the bottom up, no task trains if the owners have these rates."""
        stages = zip(*(route.stages for route in self.routes.values()), strict=True)
        is_learning = [any(rates[owner] > 0 for owner in chain(*routes)) for routes in stages]
        return (*is_learning, True).index(True)


def lay_out(
    plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape, reading: Reading
) -> Layout:
    """Apply a plan: names for all copies, a route per task, sizes and rates."""
    by_name = {task.name: task for task in tasks}
    refuse(plan, mismatches(plan, list(by_name), encoder.depth))
    routes = find_routes(plan, tasks, encoder, reading.pool)
    layout = Layout(plan, by_name, encoder, reading, routes)
    refuse(plan, two_sizes(layout))
    refuse(plan, feeds_of_words(layout))
    refuse(plan, impossible_feeds(layout))
    refuse(plan, unmatched(plan, list(layout.sizes)))
    return layout


def first_factors(rows: Sequence[Rate], owners: Iterable[str]) -> dict[str, float]:
    """Owner -> the factor of the first rate row that matches it."""
    return {
        owner: next(row.factor for row in rows if fnmatchcase(owner, row.owner)) for owner in owners
    }


def two_sizes(layout: Layout) -> Iterator[str]:
    """Owners to which two additions of one name give different sizes."""
    for adapter in chain(*(chain(*route.adapters) for route in layout.routes.values())):
        for owner, size in adapter.sizes.items():
            if layout.sizes[owner] != size:
                yield (
                    f"two additions share {owner!r} and give it {size} and {layout.sizes[owner]} "
                    "weights; give one of them another name, or both the same size"
                )


def feeds_of_words(layout: Layout) -> Iterator[str]:
    """Feeds from or to a task that answers each word instead of the text."""
    for feed in chain(*(route.feeds for route in layout.routes.values())):
        for name in (feed.source, feed.target):
            if layout.tasks[name].answer.reads_words:
                yield f"{feed.source!r} cannot feed {feed.target!r}: {name!r} answers each word"


def impossible_feeds(layout: Layout) -> Iterator[str]:
    """Feeds without a shared trunk, a suitable head or matching texts."""
    tasks, reading, routes = layout.tasks, layout.reading, layout.routes
    feeds = [feed for route in routes.values() for feed in route.feeds]
    if layout.plan.feeds and not feeds:
        yield "no task feeds another; it needs two tasks or more"
    for feed in feeds:
        target, cannot = routes[feed.target], f"{feed.source!r} cannot feed {feed.target!r}:"
        if routes[feed.source].stages != target.stages:
            yield f"{cannot} they do not share the encoder"
        is_apart = reading.of(feed.source).texts_apart(tasks[feed.source].is_pair)
        if is_apart and not tasks[feed.target].is_pair:
            yield f"{cannot} with pair: bi it answers two texts, and the later task has one"
        if reading.head(feed.target).kind == "cosine":
            yield f"{cannot} a cosine head reads only two vectors; give the later task another head"
        if feed.what == "hidden" and reading.head(feed.source).kind != "mlp":
            yield f"{cannot} it has no hidden layer; set training.head to mlp, or feed the logits"
        if len({other.combine for other in target.feeds}) > 1:
            yield f"{cannot} a task's feeds are combined in the same way, concat or attention"
