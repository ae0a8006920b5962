"""The rows of a sharing plan: which weights exist, in how many copies, and how fast they learn.

`catalog.py` lists the short forms a person types; `layout.py` applies a plan to tasks and an
encoder. A plan from outside is validated against the types here by pydantic (`catalog.read_plan`);
`find_problems` adds what types cannot express, `mismatches` and `unmatched` what does not fit tasks
and encoder.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from mops.errors import PlanError, nearest
from mops.plans.shapes import MOST_LAYERS, STRICT, Activation, EncoderShape, SizeOrZero, dense
from mops.yaml_io import type_adapter

LAYER_PARTS = ("attention", "feedforward", "norms")
PARTS = ("embeddings", *LAYER_PARTS, "pooler")

# "One copy per ...": the same weights serve everything that is not named.
Per = tuple[Literal["layer", "task"], ...]

IN_LAYER = (  # sites within a layer, in the order in which tokens pass them
    "in_attention",  # on the queries, keys and values
    "after_attention",  # on the output of attention, before the residual connection
    "in_feedforward",  # on the inner vector (of a gated one: both), before its activation
    "after_feedforward",
    "beside_layer",  # reads what the attention reads, is added before the layer's last norm
    "after_layer",  # on the layer's output
)
ON_TOP = "on_top"  # after the last layer: h + f(h)
SITES = (*IN_LAYER, ON_TOP)
GATE = "gate"  # the part of any addition that multiplies it by a learned number

Groups = tuple[tuple[str, ...], ...]  # tasks that count as one where a row says "per task"
Gradient = Literal["frozen-head", "stop", "full"]
LayerRange = tuple[int, int]  # both ends included, -1 is the last layer


@dataclass(frozen=True)
class AdditionKind:
    """The parts that a kind of addition is made of, and the sites where it can be placed."""

    parts: tuple[str, ...]
    sites: tuple[str, ...]
    is_sized: bool = True


WIDE = ("after_attention", "after_feedforward", "beside_layer", ON_TOP)  # as wide as the encoder
KINDS = {  # equations: model/adapters.py; sizes: ADDITION_SIZES
    "pal": AdditionKind(("down", "attend", "up"), ("beside_layer", "after_feedforward", ON_TOP)),
    "task_embedding": AdditionKind(("vector",), IN_LAYER[:4], is_sized=False),
    "lora": AdditionKind(("down", "up"), ("in_attention",)),
    "bottleneck": AdditionKind(("down", "up"), WIDE),
    "low_rank": AdditionKind(("down", "up"), ("beside_layer", ON_TOP)),
    "experts": AdditionKind(("router", "down", "up"), WIDE),
    "amplitude": AdditionKind(
        ("vector",), ("after_attention", "after_feedforward", "after_layer", ON_TOP), is_sized=False
    ),
}


@dataclass(frozen=True, kw_only=True)
class Copies:
    """How many copies of some pretrained weights exist in some layers. First match wins."""

    part: str  # a pattern over PARTS
    per: Per
    layers: LayerRange | None = None  # default: everywhere
    groups: Groups = ()
    tasks: tuple[str, ...] = ()  # who has this row; default: all


@dataclass(frozen=True, kw_only=True)
class Late:
    """One layer between the pooled vector and the heads."""

    per: Per
    groups: Groups = ()
    width: SizeOrZero = 0  # 0: as wide as the encoder
    activation: Activation = "relu"
    norm: bool = False  # a LayerNorm instead: it has no width and no activation of its own


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A small new function: its kind, where it is placed, its size, and who owns each part."""

    name: str  # the prefix of its owners: pal_down/sentiment
    kind: Literal["pal", "task_embedding", "lora", "bottleneck", "low_rank", "experts", "amplitude"]
    sites: tuple[str, ...]  # several: the same function at each of them
    per: Mapping[str, Per]  # part -> one copy per ...; with "gate": a learned factor
    size: SizeOrZero = 0  # 0: the kind's default for the encoder's width
    experts: SizeOrZero = 0  # how many, each of this size
    activation: Literal["gelu"] | None = None  # of the output
    layers: LayerRange | None = None  # for sites within layers; default: all layers
    depth: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = 1  # on top: how many, one after the other
    scale: float = 1.0  # a fixed factor; with a gate its initial value
    bound: Annotated[float, Field(ge=0)] = 0.0  # keeps the gate within +-bound; 0: unbounded
    groups: Groups = ()
    tasks: tuple[str, ...] = ()  # who has this row; default: all


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The output of an earlier task is an input of a later task's head."""

    source: str  # a task, or *: each task feeds all later ones, single texts before pairs
    target: str
    what: Literal["logits", "hidden"] = "logits"  # hidden: the last hidden vector of the head
    gradient: Gradient | float = "frozen-head"  # a number: a factor
    combine: Literal["concat", "attention"] = "concat"  # attention: a learned weight per field


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A factor on the learning rate of all owners that match; 0 freezes. First match wins."""

    owner: str  # a pattern over the names of owners
    factor: Annotated[float, Field(ge=0)]


@dataclass(frozen=True, kw_only=True)
class L2Pull:
    """An L2 penalty: strength x the squared distance of matching owners to a common point."""

    owner: str
    strength: Annotated[float, Field(gt=0)]
    towards: Literal["copies", "start"] = "copies"  # the mean of a part's copies, or initial values


Row = TypeVar("Row", Copies, Addition)
Entry = TypeVar("Entry")
# Left out of the data at their defaults: plans without them keep the data, and trials the names,
# that they had before these keys came.
LATER_KEYS = ("experts", "activation", "norm")
TRUNK_FROZEN = tuple(Rate(owner=f"{part}*", factor=0.0) for part in PARTS)


@dataclass(frozen=True, kw_only=True)
class SharingPlan:
    """For every weight: how many copies exist, and which copy serves layer l of task t."""

    __pydantic_config__ = STRICT  # of its rows too
    name: str
    about: str = ""
    source: str = ""
    copies: tuple[Copies, ...] = ()
    late: Annotated[tuple[Late, ...], Field(max_length=MOST_LAYERS)] = ()
    additions: tuple[Addition, ...] = ()
    feeds: tuple[Feed, ...] = ()
    rates: tuple[Rate, ...] = (Rate(owner="*", factor=1.0),)
    pull: tuple[L2Pull, ...] = ()
    like: Mapping[str, str] = field(default_factory=dict)  # task -> whose copies it passes ...
    # ... where no row with `tasks` gives it one of its own
    frozen: tuple[str, ...] = ()  # tasks: nothing on their routes learns
    depth: int = 0  # the number of layers it is written for; 0: any

    def __post_init__(self) -> None:
        refuse(self, find_problems(self))

    @property
    def grouped_rows(self) -> tuple[Copies | Late | Addition, ...]:
        """The rows in which tasks can be grouped."""
        return (*self.copies, *self.late, *self.additions)

    def lineage(self, task: str) -> tuple[str, ...]:
        """The task, whose copies it passes, whose copies that one passes, and so on."""
        names = [task]
        while names[-1] in self.like:
            names.append(self.like[names[-1]])
        return tuple(names)

    def rows_at(self, rows: Iterable[Row], name: str) -> Iterator[Row]:
        """The rows that one task of a lineage has; those for all tasks belong to its end."""
        return (row for row in rows if name in row.tasks or not (row.tasks or name in self.like))

    @property
    def family(self) -> str:
        """Plans of one family have about the same best learning rates."""
        if self.additions:
            return "additions"
        frozen = "frozen " if set(TRUNK_FROZEN) <= set(self.rates) else ""
        return f"{frozen}{'late' if self.late else 'full'}"

    def to_data(self) -> dict[str, Any]:
        """Plain lists and mappings, for YAML and JSON."""
        data = type_adapter(SharingPlan).dump_python(self, mode="json")
        for row in (*data["late"], *data["additions"]):
            for key in [key for key in LATER_KEYS if not row.get(key, True)]:
                del row[key]
        return {key: value for key, value in data.items() if value}


def refuse(plan: SharingPlan, problems: Iterable[str]) -> None:
    for problem in problems:
        raise PlanError(f"plan {plan.name!r}: {problem}")


def find_problems(plan: SharingPlan) -> Iterator[str]:
    """Contradictions that make a plan meaningless for every encoder and every set of tasks."""
    for row in plan.grouped_rows:
        axes = row.per.values() if isinstance(row, Addition) else [row.per]
        if row.groups and not any("task" in per for per in axes):
            yield "`groups` has an effect only where `per` contains task"
    if any(row.norm and (row.width or row.activation != "relu") for row in plan.late):
        yield "a late layer with `norm` has no `width` and no `activation`; remove them"
    for copies in plan.copies:
        if not any(fnmatchcase(part, copies.part) for part in PARTS):
            yield (
                f"no part is called {copies.part!r}; parts are {', '.join(PARTS)}."
                f"{nearest(copies.part, PARTS)}"
            )
    yield from ambiguities(plan)
    for addition in plan.additions:
        problems = (*misplaced(addition), *contradictions(addition))
        yield from (f"addition {addition.name!r}: {problem}" for problem in problems)
    if any(feed.gradient == 0 for feed in plan.feeds):
        yield "a feed's gradient is 0; write stop, or a factor other than 0"


def ambiguities(plan: SharingPlan) -> Iterator[str]:
    """Rows from which it does not follow what a task passes."""
    names = [(row.name, task) for row in plan.additions for task in row.tasks or ("",)]
    if len(set(names)) < len(names):
        found = ", ".join(addition.name for addition in plan.additions)
        yield f"the additions of a task need different names, found {found}"
    if any(has_cycle(plan.like, task) for task in plan.like):
        yield f"`like` has a cycle: {', '.join(plan.like)}"


def has_cycle(like: Mapping[str, str], task: str) -> bool:
    """Whether following `like` from a task does not end."""
    for _ in like:
        task = like.get(task, "")
    return task in like


def misplaced(addition: Addition) -> Iterator[str]:
    """A name, sites or parts that the kind of addition does not allow."""
    kind, reserved = KINDS[addition.kind], (*PARTS, "head", "late")
    if not re.fullmatch("[a-z][a-z0-9_]*", addition.name) or addition.name.startswith(reserved):
        yield (
            "a name consists of small letters, digits and '_', and does not start with "
            f"{', '.join(reserved)}"
        )
    wrong = [site for site in addition.sites if site not in kind.sites]
    if wrong or not addition.sites:
        found = ", ".join(wrong) or "none"
        yield f"the sites of a {addition.kind} are {', '.join(kind.sites)}; found {found}"
    if set(addition.per) - {GATE} != set(kind.parts):
        yield (
            f"the parts of a {addition.kind} are {', '.join(kind.parts)} (and {GATE}); "
            f"`per` names {', '.join(addition.per) or 'none'}"
        )
    if not kind.is_sized and (addition.size or len(addition.sites) > 1):
        yield f"a {addition.kind} has the size of its only site; give one site and no size"
    if addition.experts < 2 if "router" in kind.parts else addition.experts:
        yield f"`experts` is {addition.experts}; the kind experts has 2 or more, other kinds none"


def contradictions(addition: Addition) -> Iterator[str]:
    """Settings that exclude each other or have no effect at the sites that are named."""
    if addition.scale == 0:
        yield "`scale` is 0, so it would never learn; give another factor"
    if addition.bound and (GATE not in addition.per or abs(addition.scale) >= addition.bound):
        yield f"`bound` limits a gate: it needs `per: {{{GATE}: ...}}` and a scale below the bound"
    if addition.depth > 1 and ON_TOP not in addition.sites:
        yield f"`depth` has an effect only at the site {ON_TOP}; add that site or remove `depth`"
    if addition.layers is not None and set(addition.sites) == {ON_TOP}:
        yield f"`layers` has no effect at the site {ON_TOP}; remove it"


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
    chosen = [*(row.tasks for row in plan.copies), *(row.tasks for row in plan.additions)]
    chosen += [tuple(plan.like), tuple(plan.like.values()), plan.frozen]
    for name in (name for names in (*grouped, fed, *chosen) for name in names):
        if name not in tasks:
            yield f"no task {name!r}; the tasks are {', '.join(tasks)}.{nearest(name, tasks)}"


def unmatched(plan: SharingPlan, owners: Sequence[str]) -> Iterator[str]:
    """Rate and pull rows that match no owner, and owners that no rate covers."""
    rows: tuple[Rate | L2Pull, ...] = (*plan.rates, *plan.pull)
    for row in rows:
        is_pooler = row.owner.startswith("pooler")  # which exists only with one way of pooling
        if not is_pooler and not any(fnmatchcase(owner, row.owner) for owner in owners):
            yield (
                f"the {'rate' if isinstance(row, Rate) else 'pull'} for {row.owner!r} matches no "
                f"owner; owners are called {owners[0]}, {owners[1]}, ..., {owners[-1]}"
            )
    for owner in owners:
        if not any(fnmatchcase(owner, row.owner) for row in plan.rates):
            yield (
                f"no rate covers {owner!r}; rows are {', '.join(row.owner for row in plan.rates)}. "
                "Add '*' as the last row; 0 freezes"
            )


PAL_SIZE = 204 / 768  # relative to the encoder's width, as in Stickland and Murray 2019
LAYER_HEADS, TOP_HEADS = 6, 12
DEFAULT_SIZES = {"lora": 8, "bottleneck": 64, "low_rank": 100, "experts": 16}
# By part, or by kind and part where a kind has another one of this name.
ADDITION_SIZES: dict[str, Callable[["AdapterSite"], int]] = {
    "down": lambda a: dense(a.encoder.width, a.size),
    "up": lambda a: dense(a.size, a.encoder.width),
    "attend": lambda a: dense(a.size, 3 * a.size),
    "router": lambda a: dense(a.encoder.width, a.addition.experts),
    "vector": lambda a: a.width,
    GATE: lambda _: 1,
    "lora down": lambda a: 2 * a.encoder.width * a.size,  # for queries and values
    "lora up": lambda a: 2 * a.size * a.encoder.width,
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
        encoder = self.encoder
        widths = {"in_attention": 3 * encoder.width, "in_feedforward": encoder.inner_vectors}
        return widths.get(self.site, encoder.width)

    @cached_property
    def size(self) -> int:
        """The given size, or the default of its kind for this encoder; of all experts together."""
        addition = self.addition
        if addition.kind != "pal":
            return (addition.size or DEFAULT_SIZES.get(addition.kind, 0)) * max(1, addition.experts)
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
        return {owner: self.find(ADDITION_SIZES, part)(self) for part, owner in self.parts.items()}

    def find(self, table: Mapping[str, Entry], part: str) -> Entry:
        """The entry of a part in a table like ADDITION_SIZES."""
        return table.get(f"{self.addition.kind} {part}", table[part])
