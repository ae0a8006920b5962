"""Short forms: what a person types for a plan. The table is filled by `plans.py`.

The short forms a person types, and the table of plans. No other file knows a plan by its name.

A short form builds a `SharingPlan`: rows of the words in `sharing.py`.
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
    Rate,
    SharingPlan,
)

Build = Callable[[str], SharingPlan]  # from what stands after the colon
Examples = Callable[[int, tuple[str, ...]], tuple[str, ...]]  # for a depth and task names


@dataclass(frozen=True, kw_only=True)
class ShortForm:
    """One line of the table of plans."""

    form: str
    about: str
    source: str
    build: Build
    examples: Examples


SHORT_FORMS: dict[str, ShortForm] = {}


def short_form(
    form: str, *, about: str, source: str, examples: Examples | None = None
) -> Callable[[Build], Build]:
    """Enter a plan into the table, under the word before the colon."""

    def enter(build: Build) -> Build:
        SHORT_FORMS[re.split(r"[:\[]", form)[0]] = ShortForm(
            form=form,
            about=about,
            source=source,
            build=build,
            examples=examples or always(form),
        )
        return build

    return enter


def always(*texts: str) -> Examples:
    return lambda depth, tasks: texts


# ------------------------------------------------------------------ what stands after the colon


def whole_number(form: str, argument: str, *, least: int = 0) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", argument) or int(argument) < least:
        at_least = f" of {least} or more" if least else ""
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stands a whole number{at_least}, "
            f"as {form}:3"
        )
    return int(argument)


def above_zero(form: str, argument: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+(e-?[0-9]+)?", argument) or not float(argument) > 0:
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stands a number above 0, as {form}:0.01"
        )
    return float(argument)


def letters_of(form: str, argument: str, allowed: str) -> str:
    if not argument or set(argument) - set(allowed):
        raise PlanError(
            f"plan '{form}:{argument}': after the colon stand the letters "
            f"{', '.join(allowed)} only, one per layer, as {form}:{allowed * 2}"
        )
    return argument


DEFAULT = "shared"
SINGLE = "separate"  # a model per task
EXAMPLE = "hybrid:3"
FIRST_LOOK = ("shared", "separate", "hybrid:3")  # what a starter recipe names

NORMAL = Rate(owner="*", factor=1.0)
QUICK = 10.0  # what starts at zero learns faster than what is pretrained


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
    first_own = whole_number("hybrid", argument)
    return SharingPlan(
        name=f"hybrid:{first_own}",
        about=f"embeddings and the first {first_own} layers shared, the rest per task",
        copies=(
            Copies(part="pooler", per=PER_TASK),
            Copies(part="*", layers=(first_own, -1), per=PER_LAYER_AND_TASK),
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
    """Dense layers on the pooled vector, S shared (after a slash: only within groups), I own."""
    regime, _, subsets = argument.partition("/")
    letters = letters_of("late", regime, "SI")
    groups = tuple(tuple(group.split("+")) for group in subsets.split(",") if group)
    if groups and "S" not in letters:
        raise PlanError(f"plan 'late:{argument}': no layer is shared, so the groups mean nothing")
    shared_row = Late(per=PER_TASK, groups=groups) if groups else Late(per=ONE)
    rows = {"S": shared_row, "I": Late(per=PER_TASK)}
    return SharingPlan(name=f"late:{argument}", late=tuple(rows[letter] for letter in letters))


@short_form(
    "progressive[:a>b>c]",
    about="the outputs of earlier tasks are inputs of the later tasks' heads",
    source="Progressive Layer Sharing on BERT",
    examples=lambda depth, tasks: tuple("progressive" for _ in tasks[1:2]),  # one alone hears none
)
def progressive(argument: str) -> SharingPlan:
    """`a>b>c`: each task of a chain feeds all later ones; several chains after commas."""
    chains = [chain.split(">") for chain in argument.split(",") if chain]
    if any(len(set(chain)) < max(2, len(chain)) for chain in chains):
        raise PlanError(
            f"plan 'progressive:{argument}': after the colon stand chains of different tasks, "
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


# Where the projections and the small attention of a PAL have copies of their own.
OVER_LAYERS = {"down": PER_TASK, "attend": PER_LAYER_AND_TASK, "up": PER_TASK}
SAME_EVERYWHERE = {"down": PER_TASK, "attend": PER_TASK, "up": PER_TASK}
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
    if argument not in PALS:
        raise PlanError(
            f"plan 'pals:{argument}': after the colon stands one of {', '.join(PALS)}."
            f"{nearest(argument, PALS)}"
        )
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


OWN_PAIR = {"down": PER_LAYER_AND_TASK, "up": PER_LAYER_AND_TASK}


@short_form(
    "lora:R",
    about="a change of rank R per task to the queries and values of every layer",
    source="Hu et al. 2021, LoRA",
    examples=always("lora:8", "frozen+lora:8"),
)
def lora(argument: str) -> SharingPlan:
    rank = whole_number("lora", argument, least=1)
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
    size = whole_number("adapters", argument, least=1)
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
    """A bias is added per task where the encoder has one; norms are so small that they are own."""
    sites = ("in_attention", "after_attention", "in_feedforward", "after_feedforward")
    rows = (replace(EMBEDDED, name=f"bias_{site}", sites=(site,)) for site in sites)
    plan = adding("bitfit", *rows)
    learning = Rate(owner="norms*", factor=1.0)
    return replace(
        plan,
        copies=(Copies(part="norms", per=PER_LAYER_AND_TASK),),
        rates=(learning, *TRUNK_FROZEN, *plan.rates),
    )


@short_form(
    "soft:0.01",
    about="one encoder per task, all copies pulled together by an L2 term of this strength",
    source="Duong et al. 2015; planned in the MOPS project",
)
def soft(argument: str) -> SharingPlan:
    strength = above_zero("soft", argument)
    return SharingPlan(
        name=f"soft:{argument}",
        copies=(Copies(part="*", per=PER_LAYER_AND_TASK),),
        pull=tuple(L2Pull(owner=f"{part}*", strength=strength) for part in PARTS),
    )
