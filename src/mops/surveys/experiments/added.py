"""What is added to a shared encoder: projected attention, feeds between tasks, sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

from mops.plans.parser import parse_plan
from mops.plans.rows import Feed, Gradient, SharingPlan
from mops.surveys.design import Block
from mops.surveys.experiments.table import PLAIN, Given, budget, experiment, rates, training
from mops.surveys.experiments.trunks import frozen_first

# In the order of the report's tables; its single-task model is one model per task here.
NINE = (
    "separate", "shared", "embert", "pals:top", "pals:parallel", "pals:parallel-weighted",
    "pals:both-same", "pals:both-different", "embert-pals",
)  # fmt: skip
WIDTHS = (1 / 8, 1 / 4, 1 / 2, 1, 2)  # of late layers, in widths of the encoder
BOTTLENECKS, RANKS = (4, 16, 64, 256), (2, 8, 32)
GRADIENTS: tuple[Gradient, ...] = ("stop", "full")  # beside frozen-head, the short form's


@experiment(
    "pals",
    about="task-embedded attention and projected attention layers in nine configurations",
    source="PALs / EmBERT report, tables 1 to 3",
    differs="batches of 8 (not given there); what is added learns ten times as fast and starts at "
    "identity; the single-task model is one model per task, so that each task has one",
    baseline="shared",
    hours=5.2,
)
def pals(given: Given) -> list[Block]:
    told = training(schedule="annealed", loss_weights={}, gradients="sum")
    return [Block(set={**PLAIN, **budget(10, 400), **rates(1e-5), **told}, axes={"plan": [*NINE]})]


@experiment(
    "progressive",
    about="earlier tasks feed later ones: single edges, all edges, three kinds of gradient, norm",
    source="Progressive Layer Sharing on BERT, section 5",
    differs="epochs of 1000 steps with 8 rows of each task; logits are fed, and the last layer is "
    "linear; pooling as in the recipe",
    baseline="shared",
    hours=30,
)
def progressive(given: Given) -> list[Block]:
    if len(given.tasks) < 2:
        raise given.refuse("two tasks or more", "add one")
    norm = [{"kind": "mlp", "depth": 1, "norm": is_there} for is_there in (False, True)]
    told = training(pair="bi", features=["concat"], schedule="together", loss_weights={})
    common = {**PLAIN, **budget(10, 1000), **rates(1e-5), **frozen_first(), **told}
    plain = {**common, "training.head": norm[0]}
    return [
        Block(set=common, axes={"plan": ["shared", "progressive"], "training.head": norm}),
        Block(set=plain, axes={"plan": [*edges(given.tasks), *map(feeding, GRADIENTS)]}),
    ]


def edges(tasks: tuple[str, ...]) -> list[str]:
    """Each edge alone, and the first task to all others; with two tasks `progressive` is all."""
    if len(tasks) == 2:
        return []
    alone = [f"progressive:{a}>{b}" for a, b in combinations(tasks, 2)]
    first = ",".join(f"{tasks[0]}>{later}" for later in tasks[1:])
    return [*alone, f"progressive:{first}"]


def feeding(gradient: Gradient) -> dict[str, Any]:
    """All edges with another gradient."""
    plan = parse_plan("progressive")
    row = Feed(source="*", target="*", gradient=gradient)
    return replace(plan, name=f"progressive-{gradient}", feeds=(row,)).to_data()


@experiment(
    "width",
    about="score against the size of late layers, bottlenecks and ranks on a frozen encoder",
    source="milestone report of the MOPS project, section 4 (planned there)",
    differs="sizes and budget are ours",
    baseline=lambda given: wide("frozen+late:SIS", given.encoder.width).name,
    hours=1.5,
)
def width(given: Given) -> list[Block]:
    own = given.encoder.width
    late = [wide("frozen+late:SIS", round(own * share)).to_data() for share in WIDTHS]
    added = [f"frozen+adapters:{size}" for size in BOTTLENECKS]
    added += [f"frozen+lora:{rank}" for rank in RANKS]
    told = training(schedule="together", head_dropout=0.3, per_task_batch_size=8)
    common = {**budget(10, 100), **told, **training(learning_rate=1e-4, head_learning_rate=1e-3)}
    return [Block(set=common, axes={"plan": [*late, *added]})]


def wide(short: str, width: int) -> SharingPlan:
    """The plan with late layers of this width."""
    plan = parse_plan(short)
    rows = tuple(replace(row, width=width) for row in plan.late)
    return replace(plan, name=f"{plan.name} of {width}", late=rows)
