"""The words of a sharing plan, the short forms a person types, and the table of plans.

A plan is data: rows that say how many copies of which weights exist and how fast they learn.
`layout.py` says what the rows mean; the encoder never sees a plan's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mops.errors import PlanError, nearest
from mops.shapes import ACTIVATIONS, STRICT

# ------------------------------------------------------------------ the words of a plan

LAYER_PARTS = ("attention", "feedforward", "norms")
PARTS = ("embeddings", *LAYER_PARTS, "pooler")
# "One copy per ...": the same weights serve everything that is not named.
ONE, PER_LAYER, PER_TASK, PER_LAYER_AND_TASK = (), ("layer",), ("task",), ("layer", "task")

Groups = tuple[tuple[str, ...], ...]  # tasks that count as one where a row says "per task"


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
class Rate:
    """How fast the owners that match learn, as a factor on the recipe's rate; 0 freezes."""

    __pydantic_config__ = STRICT
    owner: str  # a pattern over the names of owners
    factor: float


@dataclass(frozen=True, kw_only=True)
class SharingPlan:
    """For every weight: how many copies exist, and which copy serves layer l of task t."""

    __pydantic_config__ = STRICT
    name: str
    about: str = ""
    source: str = ""
    copies: tuple[Copies, ...] = ()
    late: tuple[Late, ...] = ()
    rates: tuple[Rate, ...] = (Rate(owner="*", factor=1.0),)
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


def problems_of(plan: SharingPlan) -> Iterator[str]:
    """What makes a plan meaningless whatever the encoder and the tasks."""
    rows: tuple[Copies | Late, ...] = (*plan.copies, *plan.late)
    for row in rows:
        if not set(row.per) <= {"layer", "task"}:
            yield f"`per` is {list(row.per)}; allowed are layer and task"
        if row.groups and "task" not in row.per:
            yield "groups of tasks mean something only where `per` names task"
    for copies in plan.copies:
        yield from problems_of_part(copies.part)
    for layer in plan.late:
        if layer.width < 0 or layer.activation not in ACTIVATIONS:
            yield (
                "a late layer has a width of 0 or more and one of the activations "
                f"{', '.join(ACTIVATIONS)}; found {layer.width} and {layer.activation!r}"
            )
    if any(rate.factor < 0 for rate in plan.rates):
        yield "a rate below 0 would climb instead of descend"


def problems_of_part(part: str) -> Iterator[str]:
    if not any(fnmatchcase(known, part) for known in PARTS):
        yield f"no part is called {part!r}; parts are {', '.join(PARTS)}.{nearest(part, PARTS)}"


# ------------------------------------------------------------------ the short forms

TRUNK_FROZEN = tuple(Rate(owner=f"{part}*", factor=0.0) for part in PARTS)


def shared(_: str) -> SharingPlan:
    return SharingPlan(name="shared")


def separate(_: str) -> SharingPlan:
    return SharingPlan(name="separate", copies=(Copies(part="*", per=PER_LAYER_AND_TASK),))


def hybrid(argument: str) -> SharingPlan:
    first_own = whole_number("hybrid", argument)
    return SharingPlan(
        name=f"hybrid:{first_own}",
        about=f"embeddings and the first {first_own} layers shared, the rest per task",
        copies=(
            Copies(part="pooler", per=PER_TASK),
            Copies(part="*", layers=(first_own, -1), per=PER_LAYER_AND_TASK),
        ),
    )


def layers(argument: str) -> SharingPlan:
    """F frozen, S shared, I individual; embeddings follow the first letter, the pooler the last."""
    letters = letters_of("layers", argument, "FSI")
    own = [i for i, letter in enumerate(letters) if letter == "I"]
    frozen = [f"*/layer{i:02d}*" for i, letter in enumerate(letters) if letter == "F"]
    ends = {"embeddings": letters[0], "pooler": letters[-1]}
    frozen += [f"{part}*" for part, letter in ends.items() if letter == "F"]
    return SharingPlan(
        name=f"layers:{letters}",
        depth=len(letters),
        copies=(
            *(Copies(part=part, per=PER_TASK) for part, letter in ends.items() if letter == "I"),
            *(Copies(part="*", layers=(i, i), per=PER_LAYER_AND_TASK) for i in own),
        ),
        rates=(*(Rate(owner=owner, factor=0.0) for owner in frozen), Rate(owner="*", factor=1.0)),
    )


def late(argument: str) -> SharingPlan:
    """Dense layers on the pooled vector, S shared (after a slash: only within groups), I own."""
    regime, _, subsets = argument.partition("/")
    letters = letters_of("late", regime, "SI")
    groups = tuple(tuple(group.split("+")) for group in subsets.split(",") if group)
    if groups and "S" not in letters:
        raise PlanError(f"plan 'late:{argument}': no layer is shared, so the groups mean nothing")
    shared_row = Late(per=PER_TASK, groups=groups) if groups else Late(per=ONE)
    rows = {"S": shared_row, "I": Late(per=PER_TASK)}
    return SharingPlan(name=f"late:{argument}", late=tuple(rows[letter] for letter in letters))


def whole_number(form: str, argument: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", argument):
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stands a whole number, as {form}:3"
        )
    return int(argument)


def letters_of(form: str, argument: str, allowed: str) -> str:
    if not argument or set(argument) - set(allowed):
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stand the letters "
            f"{', '.join(allowed)} only, one per layer, as {form}:{allowed * 2}"
        )
    return argument


@dataclass(frozen=True, kw_only=True)
class ShortForm:
    """One line of the table of plans."""

    form: str
    about: str
    source: str
    build: Callable[[str], SharingPlan]
    examples: Callable[[int, tuple[str, ...]], tuple[str, ...]]  # for a depth and task names


def fsi(depth: int) -> str:
    third = depth // 3
    return "F" * third + "S" * (depth - 2 * third) + "I" * third


SHORT_FORMS = {  # a new plan is one entry here
    "shared": ShortForm(
        form="shared",
        about="one encoder for all tasks; only the heads differ",
        source="multi-task BERT; '1-bert' of Hybrid BERT",
        build=shared,
        examples=lambda depth, tasks: ("shared",),
    ),
    "separate": ShortForm(
        form="separate",
        about="one encoder per task; nothing is shared",
        source="single-task BERT; '3-bert' of Hybrid BERT",
        build=separate,
        examples=lambda depth, tasks: ("separate",),
    ),
    "hybrid": ShortForm(
        form="hybrid:K",
        about="embeddings and the first K layers shared, the rest and the pooler per task",
        source="Hybrid BERT",
        build=hybrid,
        examples=lambda depth, tasks: tuple(
            f"hybrid:{k}" for k in sorted({depth // 3, depth // 2, 2 * depth // 3})
        ),
    ),
    "layers": ShortForm(
        form="layers:FFSSII",
        about="one letter per layer: F frozen, S shared, I individual",
        source="Pahari and Shimada; milestone report of the MOPS project",
        build=layers,
        examples=lambda depth, tasks: (f"layers:{fsi(depth)}",),
    ),
    "late": ShortForm(
        form="late:SIS[/a+b]",
        about="dense layers before the heads, S shared, I individual; after a slash who shares",
        source="Memory Occupancy and Performance Surveying",
        build=late,
        examples=lambda depth, tasks: (
            "late:SIS",
            "frozen+late:SIS",
            *(f"late:ISS/{tasks[-2]}+{tasks[-1]}" for _ in tasks[2:3]),
        ),
    ),
}


def parse_plan(text: str) -> SharingPlan:
    """The plan behind a short form such as `frozen+late:SIS`."""
    prefix, plus, rest = text.partition("+")
    is_frozen = prefix == "frozen" and bool(plus)
    family, _, argument = (rest if is_frozen else text).partition(":")
    if family not in SHORT_FORMS:
        raise PlanError(
            f"unknown plan {text!r}; known are {', '.join(s.form for s in SHORT_FORMS.values())}, "
            f"any of them after 'frozen+', or a YAML file.{nearest(family, SHORT_FORMS)}"
        )
    entry = SHORT_FORMS[family]
    if argument and ":" not in entry.form:
        raise PlanError(f"plan {text!r}: {entry.form!r} takes nothing after a colon")
    plan = entry.build(argument)
    plan = replace(plan, about=plan.about or entry.about, source=entry.source)
    return frozen(plan) if is_frozen else plan


def frozen(plan: SharingPlan) -> SharingPlan:
    """The same plan on a pretrained encoder that does not move; what is added to it does."""
    return replace(
        plan,
        name=f"frozen+{plan.name}",
        about=f"{plan.about}; the encoder frozen",
        rates=(*TRUNK_FROZEN, *plan.rates),
    )


def is_plan_file(given: Any) -> bool:
    return isinstance(given, str) and given.endswith((".yaml", ".yml"))


def read_plan(given: str | dict[str, Any]) -> SharingPlan:
    """A short form, the path of a YAML file, or the mapping that such a file holds."""
    from mops.outside import read_yaml, to_value

    if isinstance(given, str) and not is_plan_file(given):
        return parse_plan(given)
    data = read_yaml(Path(given), PlanError) if isinstance(given, str) else given
    where = f"plan {given}" if isinstance(given, str) else "plan"
    return to_value(SharingPlan, data, where=where, error=PlanError)


def every_plan(depth: int, tasks: tuple[str, ...]) -> list[SharingPlan]:
    """An example of each short form that fits an encoder of this depth and these tasks."""
    return [parse_plan(text) for s in SHORT_FORMS.values() for text in s.examples(depth, tasks)]
