"""The catalog of plans: the short forms a person types. No other file knows a plan by its name.

A new plan is one decorated function that returns a `SharingPlan` made of the rows in `rows.py`;
the decorator enters it into `SHORT_FORMS`, from which parser, help and tests follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

from mops.errors import PlanError, nearest
from mops.plans.rows import (
    GATE,
    ONE,
    PARTS,
    PER_LAYER,
    PER_LAYER_AND_TASK,
    PER_TASK,
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

Build = Callable[[str], SharingPlan]  # receives the text after the colon
Examples = Callable[[int, tuple[str, ...]], tuple[str, ...]]  # for a depth and task names


@dataclass(frozen=True, kw_only=True)
class ShortForm:
    """One entry of the catalog."""

    form: str
    about: str
    source: str
    build: Build
    examples: Examples


SHORT_FORMS: dict[str, ShortForm] = {}


def short_form(
    form: str, *, about: str, source: str, examples: Examples | None = None
) -> Callable[[Build], Build]:
    """Enter a plan into the catalog, under the word before the colon."""

    def enter(build: Build) -> Build:
        SHORT_FORMS[re.split(r"[:\[]", form)[0]] = ShortForm(
            form=form, about=about, source=source, build=build, examples=examples or always(form)
        )
        return build

    return enter


def always(*texts: str) -> Examples:
    return lambda depth, tasks: texts


def checked(form: str, argument: str, pattern: str, allowed: str) -> str:
    """The text after the colon if it matches the pattern."""
    if not re.fullmatch(pattern, argument):
        raise PlanError(f"plan '{form}:{argument}': after the colon comes {allowed}")
    return argument


DEFAULT = "shared"
SINGLE = "separate"  # a model per task
EXAMPLE = "hybrid:3"
FIRST_LOOK = ("shared", "separate", "hybrid:3")  # the plans of a starter recipe

NORMAL = Rate(owner="*", factor=1.0)
QUICK = 10.0  # weights that start at zero learn faster than pretrained ones


@short_form(
    "shared",
    about="one encoder for all tasks; only the heads differ",
    source="multi-task BERT; '1-bert' of Hybrid BERT",
)
def shared(_: str) -> SharingPlan:
    return SharingPlan(name="shared")


@short_form(
    "separate",
    about="one encoder per task; nothing is shared",
    source="single-task BERT; '3-bert' of Hybrid BERT",
)
def separate(_: str) -> SharingPlan:
    return SharingPlan(name="separate", copies=(Copies(part="*", per=PER_LAYER_AND_TASK),))


@short_form(
    "hybrid:K",
    about="embeddings and the first K layers shared, the rest and the pooler per task",
    source="Hybrid BERT",
    examples=lambda depth, tasks: tuple(
        f"hybrid:{k}" for k in sorted({depth // 3, depth // 2, 2 * depth // 3})
    ),
)
def hybrid(argument: str) -> SharingPlan:
    shared_layers = int(checked("hybrid", argument, r"[0-9]{1,4}", "a whole number, as hybrid:3"))
    return SharingPlan(
        name=f"hybrid:{shared_layers}",
        about=f"embeddings and the first {shared_layers} layers shared, the rest per task",
        copies=(
            Copies(part="pooler", per=PER_TASK),
            Copies(part="*", layers=(shared_layers, -1), per=PER_LAYER_AND_TASK),
        ),
    )


def fsi(depth: int) -> str:
    third = depth // 3
    return "F" * third + "S" * (depth - 2 * third) + "I" * third


@short_form(
    "layers:FFSSII",
    about="one letter per layer: F frozen, S shared, I individual",
    source="Pahari and Shimada; milestone report of the MOPS project",
    examples=lambda depth, tasks: (f"layers:{fsi(depth)}",),
)
def layers(argument: str) -> SharingPlan:
    """Embeddings follow the first letter, the pooler the last."""
    letters = checked("layers", argument, "[FSI]+", "F, S, I only, as layers:FFSSII")
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
        rates=(*(Rate(owner=owner, factor=0.0) for owner in frozen), NORMAL),
    )


@short_form(
    "late:SIS[/a+b]",
    about="dense layers before the heads, S shared, I individual; after a slash who shares",
    source="Memory Occupancy and Performance Surveying",
    examples=lambda depth, tasks: (
        "late:SIS",
        "frozen+late:SIS",
        *(f"late:ISS/{tasks[-2]}+{tasks[-1]}" for _ in tasks[2:3]),
    ),
)
def late(argument: str) -> SharingPlan:
    """Dense layers on the pooled vector: S shared (after a slash: within groups), I individual."""
    regime, _, subsets = argument.partition("/")
    letters = checked("late", regime, "[SI]+", "S, I only, as late:SIS")
    groups = tuple(tuple(group.split("+")) for group in subsets.split(",") if group)
    if groups and "S" not in letters:
        raise PlanError(f"plan 'late:{argument}': no layer is shared, so the groups have no effect")
    shared_row = Late(per=PER_TASK, groups=groups) if groups else Late(per=ONE)
    rows = {"S": shared_row, "I": Late(per=PER_TASK)}
    return SharingPlan(name=f"late:{argument}", late=tuple(rows[letter] for letter in letters))


@short_form(
    "progressive[:a>b>c]",
    about="the outputs of earlier tasks are inputs of the later tasks' heads",
    source="Progressive Layer Sharing on BERT",
    examples=lambda depth, tasks: tuple("progressive" for _ in tasks[1:2]),
)
def progressive(argument: str) -> SharingPlan:
    """`a>b>c`: each task of a chain feeds all later ones; several chains after commas."""
    chains = [chain.split(">") for chain in argument.split(",") if chain]
    if any(len(set(chain)) < max(2, len(chain)) for chain in chains):
        raise PlanError(
            f"plan 'progressive:{argument}': after the colon come chains of different tasks, "
            "as progressive:a>b>c or progressive:a>b,a>c"
        )
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
OVER_LAYERS: dict[str, Per] = {"down": PER_TASK, "attend": PER_LAYER_AND_TASK, "up": PER_TASK}
SAME_EVERYWHERE: dict[str, Per] = {"down": PER_TASK, "attend": PER_TASK, "up": PER_TASK}
PAL = Addition(name="pal", kind="pal", sites=("beside_layer",), per=OVER_LAYERS)
PAL_TOP = replace(PAL, name="pal_top", sites=("on_top",))
PAL_BOTH = replace(PAL, sites=("beside_layer", "on_top"), per=SAME_EVERYWHERE)
PALS = {
    "top": (PAL_TOP,),
    "parallel": (PAL,),
    "parallel-weighted": (replace(PAL, per={**OVER_LAYERS, GATE: PER_LAYER}, scale=0.1),),
    "both-same": (PAL_BOTH,),
    "both-different": (PAL, PAL_TOP),
}


@short_form(
    f"pals:{'|'.join(PALS)}",
    about="a small projected attention per task, beside every layer or on top",
    source="Stickland and Murray 2019, BERT and PALs; variants of the PALs / EmBERT report",
    examples=always(*(f"pals:{place}" for place in PALS)),
)
def pals(argument: str) -> SharingPlan:
    allowed = f"one of {', '.join(PALS)}.{nearest(argument, PALS)}"
    checked("pals", argument, "|".join(PALS), allowed)
    return adding(f"pals:{argument}", *PALS[argument])


EMBEDDED = Addition(
    name="task_embedding",
    kind="task_embedding",
    sites=("in_attention",),
    per={"vector": PER_LAYER_AND_TASK},
)


@short_form(
    "embert",
    about="a vector per task added to the queries, keys and values of every layer",
    source="EmBERT, task-embedded attention",
)
def embert(_: str) -> SharingPlan:
    return adding("embert", EMBEDDED)


@short_form(
    "embert-pals",
    about="task vectors in attention, and one small projected attention at all places",
    source="PALs / EmBERT report, 'Combined'",
)
def embert_pals(_: str) -> SharingPlan:
    return adding("embert-pals", EMBEDDED, PAL_BOTH)


COUNT = "[1-9][0-9]{0,3}"
OWN_PAIR: dict[str, Per] = {"down": PER_LAYER_AND_TASK, "up": PER_LAYER_AND_TASK}


@short_form(
    "lora:R",
    about="a change of rank R per task to the queries and values of every layer",
    source="Hu et al. 2021, LoRA",
    examples=always("lora:8", "frozen+lora:8"),
)
def lora(argument: str) -> SharingPlan:
    rank = int(checked("lora", argument, COUNT, "a whole number of 1 or more, as lora:8"))
    # The fixed factor is alpha / rank with the usual alpha = 2 x rank.
    row = Addition(
        name="lora", kind="lora", sites=("in_attention",), per=OWN_PAIR, size=rank, scale=2.0
    )
    return adding(f"lora:{rank}", row)


@short_form(
    "adapters:N",
    about="two bottlenecks of width N per layer and task",
    source="Houlsby et al. 2019, Parameter-Efficient Transfer Learning for NLP",
    examples=always("adapters:64", "frozen+adapters:64"),
)
def adapters(argument: str) -> SharingPlan:
    size = int(checked("adapters", argument, COUNT, "a whole number of 1 or more, as adapters:64"))
    rows = (
        Addition(name=f"adapter_{n}", kind="bottleneck", sites=(site,), per=OWN_PAIR, size=size)
        for n, site in enumerate(("after_attention", "after_feedforward"), start=1)
    )
    return adding(f"adapters:{size}", *rows)


@short_form(
    "bitfit",
    about="a frozen encoder; only biases and norms learn, a copy of them per task",
    source="Ben Zaken et al. 2021, BitFit (which leaves the norms' gains alone)",
)
def bitfit(_: str) -> SharingPlan:
    """A bias per task is added wherever the encoder has one; the norms are copied per task."""
    sites = ("in_attention", "after_attention", "in_feedforward", "after_feedforward")
    rows = (replace(EMBEDDED, name=f"bias_{site}", sites=(site,)) for site in sites)
    plan = adding("bitfit", *rows)
    return replace(
        plan,
        copies=(Copies(part="norms", per=PER_LAYER_AND_TASK),),
        rates=(Rate(owner="norms*", factor=1.0), *TRUNK_FROZEN, *plan.rates),
    )


@short_form(
    "soft:0.01",
    about="one encoder per task, all copies pulled together by an L2 term of this strength",
    source="Duong et al. 2015; planned in the MOPS project",
)
def soft(argument: str) -> SharingPlan:
    number = r"(?!0*\.?0*(e|$))[0-9]*\.?[0-9]+(e-?[0-9]{1,2})?"
    strength = float(checked("soft", argument, number, "a number above 0, as soft:0.01"))
    return SharingPlan(
        name=f"soft:{argument}",
        copies=(Copies(part="*", per=PER_LAYER_AND_TASK),),
        pull=tuple(L2Pull(owner=f"{part}*", strength=strength) for part in PARTS),
    )
