"""What a plan means for given tasks and a given encoder: owners, routes, sizes, FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from mops.errors import PlanError, nearest
from mops.plans import LAYER_PARTS, PER_LAYER, Copies, Groups, Late, SharingPlan
from mops.shapes import EncoderShape, Reading
from mops.tasks import Task


@dataclass(frozen=True)
class Route:
    """The owners that one task passes, from the bottom to the top."""

    embeddings: str
    layers: tuple[Mapping[str, str], ...]  # one per layer: part -> owner
    pooler: tuple[str, ...]  # none or one
    late: tuple[str, ...]
    head: str

    @cached_property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """The owners of the embeddings and of each layer: what the tokens pass."""
        return ((self.embeddings,), *(tuple(layer.values()) for layer in self.layers))

    @cached_property
    def owners(self) -> tuple[str, ...]:
        trunk = (owner for stage in self.stages for owner in stage)
        return tuple(dict.fromkeys((*trunk, *self.pooler, *self.late, self.head)))


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
        return sum(size for owner, size in self.sizes.items() if self.rates[owner] > 0)

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """Owner -> the tasks that pass it."""
        return {
            owner: tuple(task for task, route in self.routes.items() if owner in route.owners)
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
        for stage in range(self.encoder.depth + 1):
            prefix = {task: route.stages[: stage + 1] for task, route in self.routes.items()}
            ranks = {owners: rank for rank, owners in enumerate(sorted(set(prefix.values())))}
            found.append({task: ranks[owners] for task, owners in prefix.items()})
        return tuple(found)


def lay_out(
    plan: SharingPlan, tasks: Sequence[Task], encoder: EncoderShape, reading: Reading
) -> Layout:
    """Resolve a plan: names for all copies, a route per task, sizes and rates."""
    check_fit(plan, [task.name for task in tasks], encoder.depth)
    routes = {task.name: route_of(plan, task.name, encoder.depth, reading.pool) for task in tasks}
    widths = late_widths(plan, encoder)
    sizes: dict[str, int] = {}
    for task in tasks:
        route = routes[task.name]
        sizes |= trunk_sizes(route, encoder)
        sizes |= zip(route.late, map(dense, widths, widths[1:]), strict=True)
        sizes[route.head] = head_size(task, reading, widths[-1])
    return Layout(
        plan=plan,
        tasks={task.name: task for task in tasks},
        encoder=encoder,
        reading=reading,
        routes=routes,
        sizes=sizes,
        rates={owner: rate_of(plan, owner) for owner in sizes},
    )


# ------------------------------------------------------------------ names


def route_of(plan: SharingPlan, task: str, depth: int, pool: str) -> Route:
    def owner(part: str, layer: int | None = None) -> str:
        row = copies_row(plan, part, layer, depth)
        return name_copy(part, row.per, layer, group_of(task, row.groups))

    return Route(
        embeddings=owner("embeddings"),
        layers=tuple({part: owner(part, n) for part in LAYER_PARTS} for n in range(depth)),
        pooler=(owner("pooler"),) if pool == "pooler" else (),
        late=tuple(
            name_copy(f"late{n}", row.per, None, group_of(task, row.groups))
            for n, row in enumerate(plan.late, start=1)
        ),
        head=f"head/{task}",
    )


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


def name_copy(part: str, per: tuple[str, ...], layer: int | None, group: str) -> str:
    # A slash, not a dot: torch refuses dots in the names of modules.
    names = [part]
    if "layer" in per and layer is not None:
        names.append(f"layer{layer:02d}")
    if "task" in per:
        names.append(group)
    return "/".join(names)


def group_of(task: str, groups: Groups) -> str:
    return next(("+".join(group) for group in groups if task in group), task)


def rate_of(plan: SharingPlan, owner: str) -> float:
    for row in plan.rates:
        if fnmatchcase(owner, row.owner):
            return row.factor
    raise PlanError(
        f"plan {plan.name!r}: no rate covers {owner!r}; rows are "
        f"{', '.join(row.owner for row in plan.rates)}. Add '*' as the last row; rate 0 freezes"
    )


def owners_of(plan: SharingPlan, tasks: list[str], depth: int) -> list[str]:
    """Every owner that any route may pass, the pooler too."""
    routes = (route_of(plan, task, depth, "pooler") for task in tasks)
    return list(dict.fromkeys(owner for route in routes for owner in route.owners))


def check_fit(plan: SharingPlan, tasks: list[str], depth: int) -> None:
    """Refuse a plan for other layers or tasks, and rows that concern nothing."""
    if plan.depth not in (0, depth):
        raise PlanError(
            f"plan {plan.name!r} is written for {plan.depth} layers, the encoder has {depth}; "
            "give one letter per layer"
        )
    for row in plan.copies:
        check_layers(plan, row, depth)
    rows: tuple[Copies | Late, ...] = (*plan.copies, *plan.late)
    for part in rows:
        check_groups(plan, part.groups, tasks)
    everything = owners_of(plan, tasks, depth)
    for rate in plan.rates:
        if not any(fnmatchcase(owner, rate.owner) for owner in everything):
            raise PlanError(
                f"plan {plan.name!r}: the rate for {rate.owner!r} concerns no owner; owners are "
                f"called {everything[0]}, {everything[1]}, ..., {everything[-1]}"
            )


def check_layers(plan: SharingPlan, row: Copies, depth: int) -> None:
    if row.layers is None:
        return
    first, last = (n + depth if n < 0 else n for n in row.layers)
    is_none = first == depth  # hybrid:K with all layers shared
    if not (0 <= first <= depth and 0 <= last < depth and (first <= last or is_none)):
        raise PlanError(
            f"plan {plan.name!r} speaks of the layers {list(row.layers)}, but the encoder has "
            f"only {depth} (0 to {depth - 1}, the lower first; hybrid:{depth} shares them all)"
        )


def check_groups(plan: SharingPlan, groups: Groups, tasks: list[str]) -> None:
    named = [task for group in groups for task in group]
    for task in named:
        if task not in tasks:
            raise PlanError(
                f"plan {plan.name!r} names the task {task!r}; the tasks are "
                f"{', '.join(tasks)}.{nearest(task, tasks)}"
            )
    if len(set(named)) < len(named):
        raise PlanError(f"plan {plan.name!r}: a task stands in two groups of one row")


# ------------------------------------------------------------------ sizes


def dense(n_in: int, n_out: int) -> int:
    return n_in * n_out + n_out


TRUNK_SIZES: dict[str, Callable[[EncoderShape], int]] = {
    "embeddings": lambda e: (e.words + e.positions + e.types + 2) * e.width,
    "attention": lambda e: 4 * dense(e.width, e.width),
    "feedforward": lambda e: dense(e.width, e.inner) + dense(e.inner, e.width),
    "norms": lambda e: 2 * 2 * e.width,
    "pooler": lambda e: dense(e.width, e.width),
}


def trunk_sizes(route: Route, encoder: EncoderShape) -> dict[str, int]:
    parts = [("embeddings", route.embeddings), *(("pooler", owner) for owner in route.pooler)]
    parts += [pair for layer in route.layers for pair in layer.items()]
    return {owner: TRUNK_SIZES[part](encoder) for part, owner in parts}


def late_widths(plan: SharingPlan, encoder: EncoderShape) -> tuple[int, ...]:
    """The width of the pooled vector and of each late layer's output."""
    return (encoder.width, *(row.width or encoder.width for row in plan.late))


def head_size(task: Task, reading: Reading, width: int) -> int:
    head = reading.head(task.name)
    size = 2 * width if head.norm else 0
    if head.kind == "cosine":
        size += dense(width, width) if head.project else 0
        return size + (2 if head.scale == "learned" else 0)
    hidden = [head.width] * head.depth if head.kind == "mlp" else []
    steps = [reading.vectors(task.is_pair) * width, *hidden, task.outputs]
    return size + sum(map(dense, steps, steps[1:]))


def forward_flops(layout: Layout, length: int) -> int:
    """Multiplications and additions of one sequence through one route of the encoder."""
    encoder = layout.encoder
    matrices = 4 * encoder.width**2 + 2 * encoder.width * encoder.inner
    attention = 2 * length * encoder.width  # scores and weighted sum, per token
    return 2 * encoder.depth * length * (matrices + attention)
