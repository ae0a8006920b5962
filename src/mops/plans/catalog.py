"""The catalog of plans, and the reader of plans. No other file knows a plan by its name.

A new plan is one decorated function that returns a `SharingPlan` made of the rows in `rows.py`;
the first line of its docstring describes it to users. The decorator enters it into `SHORT_FORMS`,
from which `parse_plan`, help and tests follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from mops.errors import PlanError, nearest
from mops.plans.rows import (
    GATE,
    PARTS,
    TRUNK_FROZEN,
    Addition,
    Copies,
    Feed,
    L2Pull,
    Late,
    Per,
    Rate,
    SharingPlan,
)
from mops.yaml_io import read_yaml, to_value

Build = Callable[[str], SharingPlan]  # receives the text after the colon
Texts = tuple[str, ...]
SHORT_FORMS: dict[str, ShortForm] = {}  # by the word before the colon


@dataclass
class ShortForm:
    """One entry of the catalog; it decorates the function that builds the plan."""

    form: str
    _: KW_ONLY
    source: str
    has_letters: bool = False  # S and I after the colon, one per layer
    pattern: str = ""  # of the text after the colon
    allowed: str = "nothing"  # the pattern in words
    examples: Texts | Callable[[int, Texts], Texts] = ()  # of a depth and tasks; default: the form
    about: str = field(init=False)
    build: Build = field(init=False)

    def __call__(self, build: Build) -> Build:
        """Enter the plan into the catalog."""
        self.build, self.about = build, (build.__doc__ or "").partition("\n")[0]
        SHORT_FORMS[re.split(r"[:\[]", self.form)[0]] = self
        return build


DEFAULT = "shared"
SINGLE = "separate"  # a model per task
EXAMPLE = "hybrid:3"
FIRST_LOOK = ("shared", "separate", "hybrid:3")  # the plans of a starter recipe

NORMAL = Rate(owner="*", factor=1.0)
QUICK = 10.0  # weights that start at zero learn faster than pretrained ones


@ShortForm("shared", source="multi-task BERT; '1-bert' of Hybrid BERT")
def shared(_: str) -> SharingPlan:
    """one encoder for all tasks; only the heads differ"""
    return SharingPlan(name="shared")


@ShortForm("separate", source="single-task BERT; '3-bert' of Hybrid BERT")
def separate(_: str) -> SharingPlan:
    """one encoder per task; nothing is shared"""
    return SharingPlan(name="separate", copies=(Copies(part="*", per=("layer", "task")),))


@ShortForm(
    "hybrid:K",
    source="Hybrid BERT",
    pattern="[0-9]{1,4}",
    allowed="a whole number, as hybrid:3",
    examples=lambda depth, tasks: tuple(
        f"hybrid:{k}" for k in sorted({depth // 3, depth // 2, 2 * depth // 3})
    ),
)
def hybrid(argument: str) -> SharingPlan:
    """embeddings and the first K layers shared, the rest and the pooler per task"""
    shared_layers = int(argument)
    return SharingPlan(
        name=f"hybrid:{shared_layers}",
        about=f"embeddings and the first {shared_layers} layers shared, the rest per task",
        copies=(
            Copies(part="pooler", per=("task",)),
            Copies(part="*", layers=(shared_layers, -1), per=("layer", "task")),
        ),
    )


def fsi(depth: int) -> str:
    third = depth // 3
    return "F" * third + "S" * (depth - 2 * third) + "I" * third


@ShortForm(
    "layers:FFSSII",
    source="Pahari and Shimada; milestone report of the MOPS project",
    has_letters=True,
    pattern="[FSI]+",
    allowed="F, S, I only, as layers:FFSSII",
    examples=lambda depth, tasks: (f"layers:{fsi(depth)}",),
)
def layers(letters: str) -> SharingPlan:
    """one letter per layer: F frozen, S shared, I individual

    Embeddings follow the first letter, the pooler the last.
    """
    own = [i for i, letter in enumerate(letters) if letter == "I"]
    frozen = [f"*/layer{i:02d}*" for i, letter in enumerate(letters) if letter == "F"]
    ends = {"embeddings": letters[0], "pooler": letters[-1]}
    frozen += [f"{part}*" for part, letter in ends.items() if letter == "F"]
    return SharingPlan(
        name=f"layers:{letters}",
        depth=len(letters),
        copies=(
            *(Copies(part=part, per=("task",)) for part, letter in ends.items() if letter == "I"),
            *(Copies(part="*", layers=(i, i), per=("layer", "task")) for i in own),
        ),
        rates=(*(Rate(owner=owner, factor=0.0) for owner in frozen), NORMAL),
    )


@ShortForm(
    "late:SIS[/a+b]",
    source="Memory Occupancy and Performance Surveying",
    has_letters=True,
    pattern="[SIN]+|[SIN]*S[SIN]*/.*",
    allowed="S, I, N only, as late:SIS; with a shared layer also who shares, as late:ISS/a+b",
    examples=lambda depth, tasks: (
        "late:SIS",
        "frozen+late:SIS",
        *(f"late:ISS/{tasks[-2]}+{tasks[-1]}" for _ in tasks[2:3]),
        "late:N",
    ),
)
def late(argument: str) -> SharingPlan:
    """layers before the heads: S shared, I individual, N a shared norm; after a slash who shares"""
    letters, _, subsets = argument.partition("/")
    groups = tuple(tuple(group.split("+")) for group in subsets.split(",") if group)
    shared_row = Late(per=("task",), groups=groups) if groups else Late(per=())
    # The norm: Progressive Layer Sharing on BERT.
    rows = {"S": shared_row, "I": Late(per=("task",)), "N": Late(per=(), norm=True)}
    return SharingPlan(name=f"late:{argument}", late=tuple(rows[letter] for letter in letters))


CHAIN = "[^,>]+(>[^,>]+)+"


@ShortForm(
    "progressive[:a>b>c]",
    source="Progressive Layer Sharing on BERT",
    pattern=f"({CHAIN}(,{CHAIN})*)?",
    allowed="a chain of tasks or several, as progressive:a>b>c or progressive:a>b,a>c",
    examples=lambda depth, tasks: tuple("progressive" for _ in tasks[1:2]),
)
def progressive(argument: str) -> SharingPlan:
    """the outputs of earlier tasks are inputs of the later tasks' heads

    `a>b>c`: each task of a chain feeds all later ones; several chains after commas.
    """
    chains = [chain.split(">") for chain in argument.split(",") if chain]
    edges = dict.fromkeys(edge for chain in chains for edge in combinations(chain, 2))
    feeds = tuple(Feed(source=source, target=target) for source, target in edges)
    return SharingPlan(
        name=f"progressive:{argument}" if argument else "progressive",
        feeds=feeds or (Feed(source="*", target="*"),),
    )


def adding(name: str, *additions: Addition) -> SharingPlan:
    """One shared encoder with small functions added."""
    rates = (Rate(owner=f"{addition.name}_*", factor=QUICK) for addition in additions)
    return SharingPlan(name=name, additions=additions, rates=(*rates, NORMAL))


# How many copies the projections and the small attention of a PAL have.
OVER_LAYERS: dict[str, Per] = {"down": ("task",), "attend": ("layer", "task"), "up": ("task",)}
PAL = Addition(name="pal", kind="pal", sites=("beside_layer",), per=OVER_LAYERS)
PAL_TOP = replace(PAL, name="pal_top", sites=("on_top",))
PAL_BOTH = replace(PAL, sites=("beside_layer", "on_top"), per={**OVER_LAYERS, "attend": ("task",)})
PALS = {
    "top": (PAL_TOP,),
    "parallel": (PAL,),
    "parallel-gelu": (replace(PAL, activation="gelu"),),  # as in the code of the authors
    "parallel-weighted": (replace(PAL, per={**OVER_LAYERS, GATE: ("layer",)}, scale=0.1),),
    "both-same": (PAL_BOTH,),
    "both-different": (PAL, PAL_TOP),
}


@ShortForm(
    f"pals:{'|'.join(PALS)}",
    source="Stickland and Murray 2019, BERT and PALs; variants of the PALs / EmBERT report",
    pattern="|".join(PALS),
    allowed=f"one of {', '.join(PALS)}",
    examples=tuple(f"pals:{place}" for place in PALS),
)
def pals(argument: str) -> SharingPlan:
    """a small projected attention per task, beside every layer or on top"""
    return adding(f"pals:{argument}", *PALS[argument])


EMBEDDED = Addition(
    name="task_embedding",
    kind="task_embedding",
    sites=("in_attention",),
    per={"vector": ("layer", "task")},
)


@ShortForm("embert", source="EmBERT, task-embedded attention")
def embert(_: str) -> SharingPlan:
    """a vector per task added to the queries, keys and values of every layer"""
    return adding("embert", EMBEDDED)


@ShortForm("embert-pals", source="PALs / EmBERT report, 'Combined'")
def embert_pals(_: str) -> SharingPlan:
    """task vectors in attention, and one small projected attention at all places"""
    return adding("embert-pals", EMBEDDED, PAL_BOTH)


COUNT = "[1-9][0-9]{0,3}"
OWN_PAIR: dict[str, Per] = {"down": ("layer", "task"), "up": ("layer", "task")}


@ShortForm(
    "lora:R",
    source="Hu et al. 2021, LoRA",
    pattern=COUNT,
    allowed="a whole number of 1 or more, as lora:8",
    examples=("lora:8", "frozen+lora:8"),
)
def lora(argument: str) -> SharingPlan:
    """a change of rank R per task to the queries and values of every layer"""
    # The fixed factor is alpha / rank with the usual alpha = 2 x rank.
    sites, rank = ("in_attention",), int(argument)
    row = Addition(name="lora", kind="lora", sites=sites, per=OWN_PAIR, size=rank, scale=2.0)
    return adding(f"lora:{rank}", row)


@ShortForm(
    "adapters:N",
    source="Houlsby et al. 2019, Parameter-Efficient Transfer Learning for NLP",
    pattern=COUNT,
    allowed="a whole number of 1 or more, as adapters:64",
    examples=("adapters:64", "frozen+adapters:64"),
)
def adapters(argument: str) -> SharingPlan:
    """two bottlenecks of width N per layer and task"""
    size = int(argument)
    rows = (
        Addition(name=f"adapter_{n}", kind="bottleneck", sites=(site,), per=OWN_PAIR, size=size)
        for n, site in enumerate(("after_attention", "after_feedforward"), start=1)
    )
    return adding(f"adapters:{size}", *rows)


@ShortForm(
    "low-rank:R",
    source="Stickland and Murray 2019, BERT and PALs: without attention",
    pattern=COUNT,
    allowed="a whole number of 1 or more, as low-rank:100",
    examples=("low-rank:100",),
)
def low_rank(argument: str) -> SharingPlan:
    """a projection to R and back per task, beside every layer"""
    size, sites = int(argument), ("beside_layer",)
    row = Addition(name="low_rank", kind="low_rank", sites=sites, per=OWN_PAIR, size=size)
    return adding(f"low-rank:{size}", row)


@ShortForm(
    "experts:N",
    source="Ma et al. 2018, MMoE; with low-rank experts: Yang et al. 2024, MTL-LoRA",
    pattern="[2-9]|[1-9][0-9]{1,2}",
    allowed="a whole number of 2 or more, as experts:4",
    examples=("experts:4",),
)
def experts(argument: str) -> SharingPlan:
    """N small bottlenecks beside every layer, shared by all; each task weighs them per token"""
    row = Addition(
        name="experts",
        kind="experts",
        sites=("beside_layer",),
        per={"router": ("layer", "task"), "down": ("layer",), "up": ("layer",)},
        experts=int(argument),
    )
    return adding(f"experts:{argument}", row)


@ShortForm("lhuc", source="Swietojanski et al. 2016, LHUC; in the code of BERT and PALs")
def lhuc(_: str) -> SharingPlan:
    """the output of every layer times 2 sigmoid(a), with a vector a per task"""
    return adding("lhuc", replace(EMBEDDED, name="lhuc", kind="amplitude", sites=("after_layer",)))


@ShortForm("bitfit", source="Ben Zaken et al. 2021, BitFit (which leaves the norms' gains alone)")
def bitfit(_: str) -> SharingPlan:
    """a frozen encoder; only biases and norms learn, a copy of them per task"""
    sites = ("in_attention", "after_attention", "in_feedforward", "after_feedforward")
    rows = (replace(EMBEDDED, name=f"bias_{site}", sites=(site,)) for site in sites)
    plan = adding("bitfit", *rows)
    return replace(
        plan,
        copies=(Copies(part="norms", per=("layer", "task")),),
        rates=(Rate(owner="norms*", factor=1.0), *TRUNK_FROZEN, *plan.rates),
    )


@ShortForm(
    "soft:0.01",
    source="Duong et al. 2015; planned in the MOPS project",
    pattern=r"(?!0*\.?0*(e|$))[0-9]*\.?[0-9]+(e-?[0-9]{1,2})?",
    allowed="a number above 0, as soft:0.01",
)
def soft(strength: str) -> SharingPlan:
    """one encoder per task, all copies pulled together by an L2 term of this strength"""
    return SharingPlan(
        name=f"soft:{strength}",
        copies=(Copies(part="*", per=("layer", "task")),),
        pull=tuple(L2Pull(owner=f"{part}*", strength=float(strength)) for part in PARTS),
    )


def parse_plan(text: str) -> SharingPlan:
    """The plan of a short form, with or without the prefix `frozen+`."""
    short = text.removeprefix("frozen+")
    family, _, argument = short.partition(":")
    if family not in SHORT_FORMS:
        raise PlanError(
            f"unknown plan {text!r}; known are {', '.join(s.form for s in SHORT_FORMS.values())}, "
            f"each also with the prefix 'frozen+', or a YAML file.{nearest(family, SHORT_FORMS)}"
        )
    entry = SHORT_FORMS[family]
    if not re.fullmatch(entry.pattern, argument):
        raise PlanError(f"plan {text!r}: after the colon comes {entry.allowed}")
    plan = entry.build(argument)
    plan = replace(plan, about=plan.about or entry.about, source=entry.source)
    return plan if short == text else freeze_encoder(plan)


FLIPS = {"S": "I", "I": "S"}


def neighbours(text: str) -> list[str]:
    """The short forms that differ from this one in one letter: a layer shared or individual."""
    start, _, argument = text.partition(":")
    entry = SHORT_FORMS.get(start.removeprefix("frozen+"))
    letters, slash, groups = argument.partition("/")
    flipped = (
        f"{letters[:n]}{FLIPS[letter]}{letters[n + 1 :]}{slash}{groups}"
        for n, letter in enumerate(letters)
        if letter in FLIPS and entry and entry.has_letters
    )
    found = [f"{start}:{new}" for new in flipped if entry and re.fullmatch(entry.pattern, new)]
    if not found:
        forms = " or ".join(form.form for form in SHORT_FORMS.values() if form.has_letters)
        raise PlanError(f"plan {text!r} has no letters S and I to change; take {forms}")
    return found


def freeze_encoder(plan: SharingPlan) -> SharingPlan:
    """The same plan with frozen pretrained weights; additions and heads still learn."""
    if plan.pull:
        raise PlanError(f"plan 'frozen+{plan.name}': frozen weights cannot be pulled")
    name, about = f"frozen+{plan.name}", f"{plan.about}; the encoder frozen"
    return replace(plan, name=name, about=about, rates=(*TRUNK_FROZEN, *plan.rates))


def is_plan_file(given: Any) -> bool:
    return isinstance(given, str) and given.endswith((".yaml", ".yml"))


def read_plan(given: str | dict[str, Any]) -> SharingPlan:
    """The plan of a short form, of a YAML file, or of the mapping that such a file contains."""
    if not isinstance(given, str):
        return to_value(SharingPlan, given, where="plan", error=PlanError)
    if not is_plan_file(given):
        return parse_plan(given)
    data = read_yaml(Path(given), PlanError)
    return to_value(SharingPlan, data, where=f"plan {given}", error=PlanError)


def every_plan(depth: int, tasks: tuple[str, ...]) -> list[SharingPlan]:
    """An example of each short form that fits an encoder of this depth and these tasks."""
    plans: list[SharingPlan] = []
    for entry in SHORT_FORMS.values():
        examples = entry.examples or (entry.form,)
        plans += map(parse_plan, examples(depth, tasks) if callable(examples) else examples)
    return plans
