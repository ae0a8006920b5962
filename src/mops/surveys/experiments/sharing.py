"""Experiments on the plan: families, trunks, depths, frozen mixtures, additions, feeds, sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, Literal

from mops.plans.catalog import fsi
from mops.plans.parser import parse_plan
from mops.plans.rows import Feed, SharingPlan
from mops.surveys.design import Block
from mops.surveys.experiments.given import (
    PLAIN,
    Build,
    Given,
    budget,
    compare,
    hybrid_report,
    rates,
    training,
)

STEPS, QUICK_STEPS, EVALUATIONS = 100, 70, 2
# Fractions of frozen, shared and individual layers, in twelfths: all mixtures in steps of a third,
# and the 1-7-4 of Pahari and Shimada.
MIXTURES = (
    (0, 12, 0), (0, 8, 4), (0, 4, 8), (0, 0, 12), (4, 8, 0), (4, 4, 4), (4, 0, 8), (8, 4, 0),
    (8, 0, 4), (12, 0, 0), (1, 7, 4),
)  # fmt: skip
STRENGTHS = ("0.001", "0.01", "0.1", "1")
# In the order of the report's tables; its single-task model is one model per task here.
NINE = (
    "separate", "shared", "embert", "pals:top", "pals:parallel", "pals:parallel-weighted",
    "pals:both-same", "pals:both-different", "embert-pals",
)  # fmt: skip
WIDTHS = (1 / 8, 1 / 4, 1 / 2, 1, 2)  # of late layers, in widths of the encoder
BOTTLENECKS, RANKS = (4, 16, 64, 256), (2, 8, 32)
Gradient = Literal["stop", "full"]
GRADIENTS: tuple[Gradient, ...] = ("stop", "full")  # beside frozen-head, the short form's


def everything(given: Given) -> list[Block]:
    plans = [
        *("shared", "separate", given.half, f"layers:{fsi(given.encoder.depth)}"),
        *feeding_plans(given),
        *("pals:parallel", "frozen+adapters:64", "frozen+shared"),
        *("frozen+late:SSS", "frozen+late:III"),
    ]
    own = training(per_task_batch_size=8, schedule="together", learning_rate=2e-4)
    return [compare({**budget(EVALUATIONS, STEPS // EVALUATIONS), **own}, plans)]


def first_look(given: Given) -> list[Block]:
    """Pairs are read apart: the bundled encoder was made for single sentences, and pairs as one
    sequence need more steps."""
    plans = ["shared", "separate", given.half, *feeding_plans(given), "pals:parallel",
             "frozen+shared", "frozen+late:SSS", "frozen+late:III"]  # fmt: skip
    own = training(pair="bi", per_task_batch_size=8, learning_rate=1e-4, head_learning_rate=3e-3)
    return [compare({**budget(EVALUATIONS, QUICK_STEPS // EVALUATIONS), **own}, plans)]


def feeding_plans(given: Given) -> list[str]:
    return ["progressive"] if len(given.tasks) > 1 else []


def hybrid_depth(given: Given) -> list[Block]:
    depths = [f"hybrid:{k}" for k in range(given.encoder.depth)]  # with all layers it is shared
    return [compare(hybrid_report(), ["separate", *depths, "shared"])]


def soft(given: Given) -> list[Block]:
    plans = ["shared", *(f"soft:{strength}" for strength in STRENGTHS), "separate"]
    return [compare(hybrid_report(), plans)]


def encoders(given: Given) -> list[Block]:
    axes = {"plan": ["shared", "separate"], "encoder": [given.recipe.encoder]}
    return [Block(set=hybrid_report(), axes=axes)]


def mixtures(given: Given) -> list[Block]:
    letters = dict.fromkeys(write_layers(given.encoder.depth, *shares) for shares in MIXTURES)
    return [compare(hybrid_report(), [f"layers:{word}" for word in letters])]


def write_layers(depth: int, frozen: int, shared: int, individual: int) -> str:
    """Twelfths of the depth as letters."""
    ends = [round(depth * part / 12) for part in (frozen, frozen + shared, 12)]
    return "F" * ends[0] + "S" * (ends[1] - ends[0]) + "I" * (ends[2] - ends[1])


def stages(given: Given) -> list[Block]:
    common = {**PLAIN, **budget(10, 1000), **training(schedule="together")}
    return [
        compare({**common, **rates(1e-5)}, ["shared"]),
        compare({**common, **rates(1e-3)}, ["frozen+shared"]),
        compare({**common, **rates(1e-5), **frozen_first()}, ["shared"]),
    ]


def frozen_first(epochs: int = 10, steps: int = 1000) -> dict[str, Any]:
    """Ten epochs of the heads at 1e-3, then ten of everything at 1e-5."""
    parts = [
        {"steps": epochs * steps, "frozen": True, "head_learning_rate": 1e-3},
        {"steps": epochs * steps, "learning_rate": 1e-5, "head_learning_rate": 1e-5},
    ]
    return training(stages=parts, max_steps=None)


def single_task(given: Given) -> list[Block]:
    alone = [task for task in given.tasks if task not in given.pairs] or list(given.tasks)
    own = training(max_steps=None, steps_per_epoch=None, num_train_epochs=10, eval_steps=None)
    common = {**PLAIN, **own, **training(stages=[], task_steps={}, loss_weights={})}
    return [
        compare({**common, **rates(rate)}, [plan], train_tasks=[[task] for task in alone])
        for plan, rate in (("shared", 1e-5), ("frozen+shared", 1e-3))
    ]


def pals(given: Given) -> list[Block]:
    own = training(schedule="annealed", loss_weights={}, gradients="sum")
    return [compare({**PLAIN, **budget(10, 400), **rates(1e-5), **own}, NINE)]


def progressive(given: Given) -> list[Block]:
    if len(given.tasks) < 2:
        raise given.refuse("two tasks or more", "add one")
    norms = [{"kind": "mlp", "depth": 1, "norm": has_norm} for has_norm in (False, True)]
    own = training(pair="bi", features=["concat"], schedule="together", loss_weights={})
    common = {**PLAIN, **budget(10, 1000), **rates(1e-5), **frozen_first(), **own}
    edges: list[Any] = [*list_edges(given.tasks), *map(write_feeds, GRADIENTS)]
    return [
        compare(common, ["shared", "progressive"], head=norms),
        compare({**common, "training.head": norms[0]}, edges),
    ]


def list_edges(tasks: tuple[str, ...]) -> list[str]:
    """Each edge alone, and the first task to all others; two tasks have only one edge."""
    if len(tasks) == 2:
        return []
    alone = [f"progressive:{a}>{b}" for a, b in combinations(tasks, 2)]
    first = ",".join(f"{tasks[0]}>{later}" for later in tasks[1:])
    return [*alone, f"progressive:{first}"]


def write_feeds(gradient: Gradient) -> dict[str, Any]:
    """All edges with another gradient."""
    row = Feed(source="*", target="*", gradient=gradient)
    plan = parse_plan("progressive")
    return replace(plan, name=f"progressive-{gradient}", feeds=(row,)).to_data()


def width(given: Given) -> list[Block]:
    own = given.encoder.width
    plans: list[Any] = [widen("frozen+late:SIS", round(own * part)).to_data() for part in WIDTHS]
    plans += [f"frozen+adapters:{size}" for size in BOTTLENECKS]
    plans += [f"frozen+lora:{rank}" for rank in RANKS]
    common = training(schedule="together", head_dropout=0.3, per_task_batch_size=8)
    common |= training(learning_rate=1e-4, head_learning_rate=1e-3)
    return [compare({**budget(10, 100), **common}, plans)]


def widen(short: str, width: int) -> SharingPlan:
    """The plan with late layers of this width."""
    plan = parse_plan(short)
    rows = tuple(replace(row, width=width) for row in plan.late)
    return replace(plan, name=f"{plan.name} of {width}", late=rows)


SHARING: dict[str, Build] = {
    "everything": everything,
    "first-look": first_look,
    "trunks": lambda given: [compare(hybrid_report(), ["shared", "separate", given.half])],
    "hybrid-depth": hybrid_depth,
    "fsi": mixtures,
    "soft": soft,
    "stages": stages,
    "single-task": single_task,
    "encoders": encoders,
    "pals": pals,
    "progressive": progressive,
    "width": width,
}
