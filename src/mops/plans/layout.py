"""The layout: a plan applied to given tasks and an encoder, as owners, routes, sizes and rates."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain

from mops.errors import nearest
from mops.plans.routes import Owners, Route, dense, find_routes, unique
from mops.plans.rows import TRUNK_FROZEN, L2Pull, Rate, SharingPlan, refuse
from mops.plans.shapes import EncoderShape, Reading
from mops.tasks import Task

TRUNK_SIZES: dict[str, Callable[[EncoderShape], int]] = {
    "embeddings": lambda e: (e.words + e.positions + e.types + 2) * e.width,
    "attention": lambda e: 4 * dense(e.width, e.width),
    "feedforward": lambda e: dense(e.width, e.inner) + dense(e.inner, e.width),
    "norms": lambda e: 2 * 2 * e.width,
    "pooler": lambda e: dense(e.width, e.width),
}


@dataclass(frozen=True)
class HeadInput:
    """The input of a head: the task's own vectors, and the outputs of tasks that feed it."""

    width: int  # of one vector
    fields: tuple[int, ...]  # the width of the task's own vectors, then of each feed
    combine: str = "concat"

    @property
    def wide(self) -> int:
        """The width after all fields are combined into one vector."""
        return self.width if self.combine == "attention" else sum(self.fields)


def head_size(task: Task, reading: Reading, inputs: HeadInput) -> int:
    """The number of weights of a task's head."""
    head = reading.head(task.name)
    size = 2 * inputs.width if head.norm else 0
    if head.kind == "cosine":
        size += dense(inputs.width, inputs.width) if head.project else 0
        return size + (2 if head.scale == "learned" else 0)
    hidden = [head.width] * head.depth if head.kind == "mlp" else []
    widths = [inputs.wide, *hidden, task.outputs]
    if inputs.combine == "attention":  # a projection for each field, and a query
        size += sum(dense(width, inputs.width) for width in inputs.fields) + inputs.width
    return size + sum(map(dense, widths, widths[1:]))


@dataclass(frozen=True)
class Layout:
    """A plan applied: every copy has a name, a size and a rate; every task has a route."""

    plan: SharingPlan
    tasks: Mapping[str, Task]
    encoder: EncoderShape
    reading: Reading
    routes: Mapping[str, Route]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Owner -> its number of weights; the checkpoint's table of contents."""
        sizes: dict[str, int] = {}
        for name, route in self.routes.items():
            sizes |= {owner: TRUNK_SIZES[part](self.encoder) for owner, part, _ in route.trunk}
            for adapter in chain(*route.adapters):
                sizes |= adapter.sizes
            late = map(dense, self.late_widths, self.late_widths[1:])
            sizes |= zip(route.late, late, strict=True)
            sizes[route.head] = head_size(self.tasks[name], self.reading, self.head_input(name))
        return sizes

    @cached_property
    def late_widths(self) -> tuple[int, ...]:
        """The width of the pooled vector and of each late layer's output."""
        width = self.encoder.width
        return (width, *(row.width or width for row in self.plan.late))

    def head_input(self, name: str) -> HeadInput:
        """The input of a task's head."""
        is_pair, feeds, fed = self.tasks[name].is_pair, self.routes[name].feeds, []
        for feed in feeds:
            source = self.tasks[feed.source]
            # A single-text task answers each text of a pair that is read as two sequences.
            texts = 2 if self.reading.texts_apart(is_pair) and not source.is_pair else 1
            hidden = self.reading.head(source.name).width
            fed.append(texts * (hidden if feed.what == "hidden" else source.outputs))
        combine, width = feeds[0].combine if feeds else "concat", self.late_widths[-1]
        return HeadInput(width, (self.reading.vectors(is_pair) * width, *fed), combine)

    @cached_property
    def rates(self) -> Mapping[str, float]:
        """Owner -> factor on its learning rate; 0 = frozen."""
        return first_factors(self.plan.rates, self.sizes)

    @cached_property
    def frozen_rates(self) -> Mapping[str, float]:
        """The rates with the prefix `frozen+`: the pretrained weights do not move."""
        return first_factors((*TRUNK_FROZEN, *self.plan.rates), self.sizes)

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
        return {
            owner: tuple(t for t, own in owners.items() if owner in own) for owner in self.sizes
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
    def l2_groups(self) -> tuple[tuple[Owners, L2Pull], ...]:
        """The owners under each L2 penalty; the first pull row that matches an owner counts."""
        slots = zip(*(route.slots for route in self.routes.values()), strict=True)
        copies = dict.fromkeys(unique(*owners) for owners in slots)
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
        is_learning = [
            any(rates[owner] > 0 for owners in routes for owner in owners) for routes in stages
        ]
        return (*is_learning, True).index(True)


def lay_out(
    plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape, reading: Reading
) -> Layout:
    """Apply a plan: names for all copies, a route per task, sizes and rates."""
    by_name = {task.name: task for task in tasks}
    refuse(plan, mismatches(plan, list(by_name), encoder.depth))
    routes = find_routes(plan, tasks, encoder, reading.pool)
    layout = Layout(plan, by_name, encoder, reading, routes)
    refuse(plan, impossible_feeds(layout))
    refuse(plan, unmatched(plan, layout.sizes, all_owners(plan, tasks, encoder)))
    return layout


def first_factors(rows: Sequence[Rate], owners: Iterable[str]) -> dict[str, float]:
    """Owner -> the factor of the first rate row that matches it."""
    return {
        owner: next(row.factor for row in rows if fnmatchcase(owner, row.owner)) for owner in owners
    }


def all_owners(plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape) -> Owners:
    """Every owner that any route may pass, including the pooler."""
    routes = find_routes(plan, tasks, encoder, "pooler").values()
    return unique(*chain(*(route.owners for route in routes)))


# ------------------------------------------------------------------ plans that do not fit


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


def unmatched(plan: SharingPlan, owners: Iterable[str], possible: Owners) -> Iterator[str]:
    """Rate and pull rows that match no possible owner, and owners that no rate covers."""
    rows: tuple[Rate | L2Pull, ...] = (*plan.rates, *plan.pull)
    for row in rows:
        if not any(fnmatchcase(owner, row.owner) for owner in possible):
            yield (
                f"the {'rate' if isinstance(row, Rate) else 'pull'} for {row.owner!r} matches no "
                f"owner; owners are called {possible[0]}, {possible[1]}, ..., {possible[-1]}"
            )
    for owner in owners:
        if not any(fnmatchcase(owner, row.owner) for row in plan.rates):
            yield (
                f"no rate covers {owner!r}; rows are {', '.join(row.owner for row in plan.rates)}. "
                "Add '*' as the last row; 0 freezes"
            )


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
        if reading.texts_apart(tasks[feed.source].is_pair) and not tasks[feed.target].is_pair:
            yield f"{cannot} with pair: bi it answers two texts, and the later task has one"
        if reading.head(feed.target).kind == "cosine":
            yield f"{cannot} a cosine head reads only two vectors; give the later task another head"
        if feed.what == "hidden" and reading.head(feed.source).kind != "mlp":
            yield f"{cannot} it has no hidden layer; set training.head to mlp, or feed the logits"
        if len({other.combine for other in target.feeds}) > 1:
            yield f"{cannot} a task's feeds are combined in the same way, concat or attention"
