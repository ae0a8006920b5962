"""Experiments on training settings: schedulers, pairs, heads, dropout, gradients, schedules."""

from __future__ import annotations

from typing import Any, get_args

from mops.config.methods import AGGREGATORS, SUM
from mops.config.training import ScheduleName
from mops.surveys.design import Block
from mops.surveys.experiments.given import (
    Build,
    Given,
    budget,
    compare,
    hybrid_report,
    training,
)

DECAYS = (0.0, 1e-4, 1e-3, 1e-2)
ONE_CYCLE_RISE = 0.3  # torch's fraction of the steps
POOLS = ("mean", "cls")
FEATURES = (
    ["concat"], ["concat", "product"], ["concat", "difference"], ["difference", "product"], ["sum"],
)  # fmt: skip
HEADS: list[Any] = ["linear"]
HEADS += [{"kind": "mlp", "depth": d, "width": w} for d in (1, 2, 3) for w in (64, 256, 512)]
DROPOUTS = (((0.0, 0.1, 0.3, 0.5), (0.1,)), ((0.3,), (0.0, 0.2, 0.3)))  # of heads, of the encoder
WHOLE_BATCH = ("together", "mixed")  # schedules whose steps have rows of every task


def schedulers(given: Given) -> list[Block]:
    return [
        compare(
            hybrid_report(warmup_steps=rise),
            ["shared"],
            lr_scheduler_type=names,
            weight_decay=DECAYS,
        )
        for names, rise in ((["none", "cosine"], 0), (["one-cycle"], ONE_CYCLE_RISE))
    ]


def pairs(given: Given) -> list[Block]:
    if not given.pairs:
        raise given.refuse("a task with two texts", "add one")
    common = hybrid_report(head="linear")
    return [
        compare(common, ["shared"], pair=["cross"], pool=POOLS),
        compare(common, ["shared"], pair=["bi"], pool=POOLS, features=FEATURES),
    ]


def surgery(given: Given) -> list[Block]:
    # `mean` moves as the sum does under Adam; those that need a solver are left to --values.
    ways = [name for name, way in AGGREGATORS.items() if not way.needs and name != "mean"]
    return [compare(hybrid_report(), ["shared", given.half], gradients=[SUM, *ways])]


def schedules(given: Given) -> list[Block]:
    rows = hybrid_report()["training.per_task_batch_size"]
    alone = [name for name in get_args(ScheduleName) if name not in WHOLE_BATCH]
    return [
        compare(hybrid_report(per_task_batch_size=size), ["shared"], schedule=names)
        for names, size in ((WHOLE_BATCH, rows), (alone, rows * len(given.tasks)))
    ]


def time(given: Given) -> list[Block]:
    plans = ["shared", "separate", given.half, "pals:parallel", "frozen+late:SIS"]
    return [compare({**hybrid_report(), **budget(10, 200), **training(eval_steps=50)}, plans)]


SETTINGS: dict[str, Build] = {
    "schedulers": schedulers,
    "pairs": pairs,
    "heads": lambda given: [compare(hybrid_report(), ["shared"], head=HEADS)],
    "dropout": lambda given: [
        compare(hybrid_report(), ["shared"], head_dropout=heads, dropout=encoder)
        for heads, encoder in DROPOUTS
    ],
    "surgery": surgery,
    "schedules": schedules,
    "time": time,
}
