"""The words of a sharing plan: rows of data that say which weights exist and how they learn.

`plans.py` has the short forms a person types, `layout.py` says what the rows mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from mops.errors import PlanError, nearest
from mops.plans.shapes import ACTIVATIONS, STRICT

LAYER_PARTS = ("attention", "feedforward", "norms")
PARTS = ("embeddings", *LAYER_PARTS, "pooler")
# "One copy per ...": the same weights serve everything that is not named.
ONE, PER_LAYER, PER_TASK, PER_LAYER_AND_TASK = (), ("layer",), ("task",), ("layer", "task")

IN_LAYER = (  # sites within a layer, in the order in which the tokens pass them
    "in_attention",  # on the queries, keys and values
    "after_attention",  # on the output of attention, before it joins the stream
    "in_feedforward",  # on the inner vector, before its activation
    "after_feedforward",
    "beside_layer",  # sees the layer's input, joins before the layer's last norm
)
ON_TOP = "on_top"  # after the last layer: h + f(h)
SITES = (*IN_LAYER, ON_TOP)
GATE = "gate"  # the part of any addition that multiplies it by a learned number

Groups = tuple[tuple[str, ...], ...]  # tasks that count as one where a row says "per task"


@dataclass(frozen=True)
class AdditionKind:
    """A kind of addition: the parts it is made of and the sites where it makes sense."""

    parts: tuple[str, ...]
    sites: tuple[str, ...]
    is_sized: bool = True


KINDS = {  # the equations: encoder/additions.py; the sizes: sizes.py
    "pal": AdditionKind(("down", "attend", "up"), ("beside_layer", "after_feedforward", ON_TOP)),
    "task_embedding": AdditionKind(("vector",), IN_LAYER[:4], is_sized=False),
    "lora": AdditionKind(("down", "up"), ("in_attention",)),
    "bottleneck": AdditionKind(
        ("down", "up"), ("after_attention", "after_feedforward", "beside_layer", ON_TOP)
    ),
}


@dataclass(frozen=True, kw_only=True)
class Copies:
    """How many copies of some pretrained weights exist in some layers. First match wins."""

    __pydantic_config__ = STRICT
    part: str  # a pattern over PARTS
    per: tuple[str, ...]
    layers: tuple[int, int] | None = None  # both ends included, -1 is the last; none: everywhere
    groups: Groups = ()


@dataclass(frozen=True, kw_only=True)
class Late:
    """One dense layer between the pooled vector and the heads."""

    __pydantic_config__ = STRICT
    per: tuple[str, ...]
    groups: Groups = ()
    width: int = 0  # 0: as wide as the encoder
    activation: str = "relu"


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A small new function: what it is, where it sits, how large it is, who owns each part."""

    __pydantic_config__ = STRICT
    name: str  # starts the names of its owners: pal_down/sentiment
    kind: str  # one of KINDS
    sites: tuple[str, ...]  # several: the same function at each of them
    per: Mapping[str, tuple[str, ...]]  # part -> one copy per ...; with "gate": a learned factor
    size: int = 0  # 0: what the kind takes for the encoder's width
    layers: tuple[int, int] | None = None  # of the sites within layers; none: all
    depth: int = 1  # on top: how many, one after the other
    scale: float = 1.0  # a fixed factor; with a gate its first value
    bound: float = 0.0  # keeps the gate within plus and minus this; 0: free
    groups: Groups = ()


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The output of an earlier task is an input of a later task's head."""

    __pydantic_config__ = STRICT
    source: str  # a task, or *: each task feeds all later ones, single texts before pairs
    target: str
    what: str = "logits"  # or hidden: the last hidden vector of the earlier head
    gradient: str | float = "frozen-head"  # or stop, full, or a factor on the gradient
    combine: str = "concat"  # or attention: a learned weight for each field


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How fast the owners that match learn, as a factor on the recipe's rate; 0 freezes."""

    __pydantic_config__ = STRICT
    owner: str  # a pattern over the names of owners
    factor: float


@dataclass(frozen=True, kw_only=True)
class L2Pull:
    """An L2 term: strength x the squared distance of the owners that match."""

    __pydantic_config__ = STRICT
    owner: str
    strength: float
    towards: str = "copies"  # the mean of the copies of one part and layer; or start


TRUNK_FROZEN = tuple(Rate(owner=f"{part}*", factor=0.0) for part in PARTS)
WHAT = ("logits", "hidden")
GRADIENTS = ("frozen-head", "stop", "full")
COMBINE = ("concat", "attention")
TOWARDS = ("copies", "start")


@dataclass(frozen=True, kw_only=True)
class SharingPlan:
    """For every weight: how many copies exist, and which copy serves layer l of task t."""

    __pydantic_config__ = STRICT
    name: str
    about: str = ""
    source: str = ""
    copies: tuple[Copies, ...] = ()
    late: tuple[Late, ...] = ()
    additions: tuple[Addition, ...] = ()
    feeds: tuple[Feed, ...] = ()
    rates: tuple[Rate, ...] = (Rate(owner="*", factor=1.0),)
    pull: tuple[L2Pull, ...] = ()
    depth: int = 0  # the number of layers it is written for; 0: any

    def __post_init__(self) -> None:
        for problem in problems_of(self):
            raise PlanError(f"plan {self.name!r}: {problem}")

    def to_data(self) -> dict[str, Any]:
        """Plain lists and mappings, for YAML and JSON."""
        return {key: _plain(value) for key, value in asdict(self).items() if value}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


# ------------------------------------------------------------------ what makes no sense


def problems_of(plan: SharingPlan) -> Iterator[str]:
    """What makes a plan meaningless whatever the encoder and the tasks."""
    for per, groups in copied_rows(plan):
        if not set(per) <= {"layer", "task"}:
            yield f"`per` is {list(per)}; allowed are layer and task"
        if groups and "task" not in per:
            yield "groups of tasks mean something only where `per` names task"
    for copies in plan.copies:
        if not any(fnmatchcase(known, copies.part) for known in PARTS):
            yield (
                f"no part is called {copies.part!r}; parts are {', '.join(PARTS)}."
                f"{nearest(copies.part, PARTS)}"
            )
    if any(rate.factor < 0 for rate in plan.rates):
        yield "a rate below 0 would climb instead of descend"
    if not all(map(math.isfinite, numbers_of(plan))):
        yield "every rate, scale, bound, strength and factor is a finite number"
    yield from problems_of_late(plan)
    yield from problems_of_additions(plan)
    yield from problems_of_feeds(plan)
    yield from problems_of_pulls(plan)


def numbers_of(plan: SharingPlan) -> Iterator[float]:
    yield from (row.factor for row in plan.rates)
    yield from (row.strength for row in plan.pull)
    yield from (number for row in plan.additions for number in (row.scale, row.bound))
    yield from (row.gradient for row in plan.feeds if isinstance(row.gradient, float | int))


def copied_rows(plan: SharingPlan) -> Iterator[tuple[tuple[str, ...], Groups]]:
    rows: tuple[Copies | Late, ...] = (*plan.copies, *plan.late)
    yield from ((row.per, row.groups) for row in rows)
    for addition in plan.additions:
        yield from ((per, ()) for per in addition.per.values())
        yield (
            tuple(dict.fromkeys(axis for per in addition.per.values() for axis in per)),
            (addition.groups),
        )


def problems_of_late(plan: SharingPlan) -> Iterator[str]:
    for layer in plan.late:
        if layer.width < 0 or layer.activation not in ACTIVATIONS:
            yield (
                "a late layer has a width of 0 or more and one of the activations "
                f"{', '.join(ACTIVATIONS)}; found {layer.width} and {layer.activation!r}"
            )


def problems_of_additions(plan: SharingPlan) -> Iterator[str]:
    names = [addition.name for addition in plan.additions]
    if len(set(names)) < len(names):
        yield f"additions need different names, found {', '.join(names)}: one name, same weights"
    for addition in plan.additions:
        yield from (f"addition {addition.name!r}: {text}" for text in problems_of_one(addition))


def problems_of_one(addition: Addition) -> Iterator[str]:
    taken = (*PARTS, "head", "late")
    if not re.fullmatch("[a-z][a-z0-9_]*", addition.name) or addition.name.startswith(taken):
        yield (
            "its name has small letters, digits and '_', and does not begin as a part of the "
            f"encoder does ({', '.join(taken)})"
        )
    if addition.kind not in KINDS:
        yield f"no kind {addition.kind!r}; kinds are {', '.join(KINDS)}"
        return
    kind = KINDS[addition.kind]
    wrong = [site for site in addition.sites if site not in kind.sites]
    if wrong or not addition.sites:
        yield f"a {addition.kind} sits at {', '.join(kind.sites)}; found {', '.join(wrong) or None}"
    if set(addition.per) - {GATE} != set(kind.parts):
        yield (
            f"a {addition.kind} has the parts {', '.join(kind.parts)} (and {GATE}); "
            f"`per` names {', '.join(addition.per) or 'none'}"
        )
    if addition.size < 0 or addition.depth < 1 or addition.bound < 0 or addition.scale == 0:
        yield "size and bound are 0 or more, depth 1 or more, and a scale of 0 would never learn"
    if addition.bound and (GATE not in addition.per or abs(addition.scale) >= addition.bound):
        yield f"`bound` keeps a gate: it needs `per: {{{GATE}: ...}}` and a scale below it"
    if not kind.is_sized and (addition.size or len(addition.sites) > 1):
        yield f"a {addition.kind} has the size of its site: one site, no size"
    yield from idle_words(addition)


def idle_words(addition: Addition) -> Iterator[str]:
    """Words that mean nothing at the sites that are named."""
    if addition.depth > 1 and ON_TOP not in addition.sites:
        yield f"`depth` counts places {ON_TOP}; add that site, or leave it out"
    if addition.layers is not None and set(addition.sites) == {ON_TOP}:
        yield f"`layers` are of sites within layers; it sits only {ON_TOP}, so leave them out"


def problems_of_feeds(plan: SharingPlan) -> Iterator[str]:
    for feed in plan.feeds:
        for key, value, allowed in (
            ("what", feed.what, WHAT),
            ("combine", feed.combine, COMBINE),
            ("gradient", feed.gradient, GRADIENTS),
        ):
            if isinstance(value, str) and value not in allowed:
                factor = ", or a factor" if key == "gradient" else ""
                yield f"a feed's {key} is {value!r}; allowed: {', '.join(allowed)}{factor}"
        if feed.gradient == 0:
            yield "a feed's gradient is 0, which teaches nobody: write stop, or another factor"


def problems_of_pulls(plan: SharingPlan) -> Iterator[str]:
    for pull in plan.pull:
        if not pull.strength > 0:
            yield f"a pull's strength is above 0; found {pull.strength:g}"
        if pull.towards not in TOWARDS:
            yield f"a pull goes towards {', '.join(TOWARDS)}; found {pull.towards!r}"
