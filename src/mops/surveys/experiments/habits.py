"""How a network is trained and read: schedulers, pairs, heads, dropout, gradients, schedules."""

from __future__ import annotations

from typing import get_args

from mops.config.training import AGGREGATORS, SUM, ScheduleName
from mops.surveys.design import Block
from mops.surveys.experiments.table import Given, budget, experiment, training
from mops.surveys.experiments.trunks import DIFFERS, HYBRID, hybrid_report

DECAYS = (0.0, 1e-4, 1e-3, 1e-2)
ONE_CYCLE_RISE = 0.3  # torch's share of the steps
POOLS = ("mean", "cls")
FEATURES = (
    ["concat"], ["concat", "product"], ["concat", "difference"], ["difference", "product"], ["sum"],
)  # fmt: skip
DEPTHS, WIDTHS = (1, 2, 3), (64, 256, 512)
WHOLE_BATCH = ("together", "mixed")  # schedules whose steps have rows of every task


@experiment(
    "schedulers",
    about="one-cycle, cosine and constant rates with four weight decays",
    source=f"{HYBRID}, table 3 (seven of the twelve)",
    differs=DIFFERS,
    baseline="shared, lr_scheduler_type=none, weight_decay=0.001",
    hours=35,
)
def schedulers(given: Given) -> list[Block]:
    decay = "training.weight_decay"
    common = {key: value for key, value in hybrid_report().items() if key != decay}
    return [
        Block(
            set={**common, **training(warmup_steps=rise)},
            axes={"plan": ["shared"], "training.lr_scheduler_type": names, decay: [*DECAYS]},
        )
        for names, rise in ((["none", "cosine"], 0), (["one-cycle"], ONE_CYCLE_RISE))
    ]


@experiment(
    "pairs",
    about="pairs as one text and as two, with five kinds of features and two of pooling",
    source=f"{HYBRID}, section 4.2; features and pooling of other CS224N reports",
    differs=DIFFERS,
    baseline="shared, pair=cross, pool=mean",
    hours=35,
)
def pairs(given: Given) -> list[Block]:
    if not given.pairs:
        raise given.refuse("a task with two texts", "add one")
    keys = ("training.pair", "training.head")
    common = {key: value for key, value in hybrid_report().items() if key not in keys}
    common |= training(head="linear")
    pools = {"training.pool": [*POOLS]}
    features = {"training.features": [*FEATURES]}
    return [
        Block(set=common, axes={"plan": ["shared"], "training.pair": ["cross"], **pools}),
        Block(set=common, axes={"plan": ["shared"], "training.pair": ["bi"], **pools, **features}),
    ]


@experiment(
    "heads",
    about="heads of one to three hidden layers and three widths, beside a linear one",
    source=f"{HYBRID}, section 4.2",
    differs=DIFFERS,
    baseline="shared, head=mlp/2/256",
    hours=29,
)
def heads(given: Given) -> list[Block]:
    deep = [{"kind": "mlp", "depth": d, "width": w} for d in DEPTHS for w in WIDTHS]
    common = {key: value for key, value in hybrid_report().items() if key != "training.head"}
    return [Block(set=common, axes={"plan": ["shared"], "training.head": ["linear", *deep]})]


@experiment(
    "dropout",
    about="dropout of the heads, and of the encoder",
    source=f"{HYBRID}, section 5.3",
    differs=DIFFERS,
    baseline="shared, head_dropout=0.3, dropout=0.1",
    hours=20,
)
def dropout(given: Given) -> list[Block]:
    keys = {"heads": "training.head_dropout", "encoder": "training.dropout"}
    common = {k: value for k, value in hybrid_report().items() if k not in keys.values()}
    return [
        Block(
            set=common,
            axes={"plan": ["shared"], keys["heads"]: [*heads], keys["encoder"]: [*encoder]},
        )
        for heads, encoder in (((0.0, 0.1, 0.3, 0.5), (0.1,)), ((0.3,), (0.0, 0.2, 0.3)))
    ]


@experiment(
    "surgery",
    about="ways to combine the tasks' gradients, on one encoder and on half of one",
    source=f"{HYBRID}, section 4.2 (PCGrad); the other ways by their papers",
    differs=DIFFERS,
    baseline="shared, gradients=sum",
    hours=100,
)
def surgery(given: Given) -> list[Block]:
    # `mean` moves as the sum does under Adam; those that need a solver are left to --values.
    ways = [name for name, way in AGGREGATORS.items() if not way.needs and name != "mean"]
    plans = ["shared", f"hybrid:{given.half}"]
    axes = {"plan": plans, "training.gradients": [SUM, *ways]}
    return [Block(set=hybrid_report(), axes=axes)]


@experiment(
    "schedules",
    about="ten ways to choose the next task, with equal rows in every step",
    source="Stickland and Murray 2019 (annealed); Hybrid BERT (in turn, together); CS224N reports",
    differs="where a step has one task, its batch is as large as the batches of all tasks together",
    baseline="shared, schedule=together",
    hours=29,
)
def schedules(given: Given) -> list[Block]:
    keys = ("training.schedule", "training.per_task_batch_size")
    common = {key: value for key, value in hybrid_report().items() if key not in keys}
    rows = hybrid_report()["training.per_task_batch_size"]
    alone = [name for name in get_args(ScheduleName) if name not in WHOLE_BATCH]
    return [
        Block(
            set={**common, **training(per_task_batch_size=size)},
            axes={"plan": ["shared"], "training.schedule": [*names]},
        )
        for names, size in ((WHOLE_BATCH, rows), (alone, rows * len(given.tasks)))
    ]


@experiment(
    "time",
    about="score against training time: many evaluations of one training per plan",
    source="milestone report of the MOPS project, section 4 (planned there)",
    differs="plans and budget are ours; read it from curve.jsonl of each trial",
    baseline="shared",
    seeds=1,
    hours=0.92,
)
def time(given: Given) -> list[Block]:
    plans = ["shared", "separate", f"hybrid:{given.half}", "pals:parallel", "frozen+late:SIS"]
    common = {**hybrid_report(), **budget(10, 200), **training(eval_steps=50)}
    return [Block(set=common, axes={"plan": plans})]
