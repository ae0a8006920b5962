"""What of the encoder is shared: trunks, depths, frozen mixtures, soft sharing, stages, sizes."""

from __future__ import annotations

from typing import Any

from mops.surveys.design import Block
from mops.surveys.experiments.table import PLAIN, Given, budget, experiment, rates, training

HYBRID = "Hybrid BERT"
MILESTONE = "milestone report of the MOPS project"
DIFFERS = (
    "500 steps an epoch with 8 rows of each task (the report gives neither); pooling as "
    "in the recipe; no ReLU on the logits"
)
# Shares of frozen, shared and individual layers, in twelfths: all mixtures in steps of a third,
# and the 1-7-4 of Pahari and Shimada.
MIXTURES = (
    (0, 12, 0), (0, 8, 4), (0, 4, 8), (0, 0, 12), (4, 8, 0), (4, 4, 4), (4, 0, 8), (8, 4, 0),
    (8, 0, 4), (12, 0, 0), (1, 7, 4),
)  # fmt: skip
STRENGTHS = ("0.001", "0.01", "0.1", "1")


def hybrid_report(**settings: Any) -> dict[str, Any]:
    """Section 5.3: 20 epochs, rate 1e-5, dropout 0.3, decay 1e-3, no scheduler, cross-encoding."""
    head = {"kind": "mlp", "depth": 2, "width": 256}
    told = training(weight_decay=1e-3, pair="cross", head=head, schedule="together")
    return {**PLAIN, **budget(20, 500), **rates(1e-5), **told, **training(**settings)}


@experiment(
    "trunks",
    about="one encoder, one per task, and the lower half shared",
    source=f"{HYBRID}, table 1 (1-bert, 3-bert, hybrid-bert)",
    differs=DIFFERS,
    baseline="shared",
    hours=9.6,
)
def trunks(given: Given) -> list[Block]:
    plans = ["shared", "separate", f"hybrid:{given.half}"]
    return [Block(set=hybrid_report(), axes={"plan": plans})]


@experiment(
    "hybrid-depth",
    about="every number of shared layers, from none to all",
    source=f"{HYBRID}, section 7 (planned there)",
    differs=DIFFERS,
    baseline="shared",
    hours=25,
)
def hybrid_depth(given: Given) -> list[Block]:
    depths = [f"hybrid:{k}" for k in range(given.encoder.depth)]  # with all layers it is shared
    return [Block(set=hybrid_report(), axes={"plan": ["separate", *depths, "shared"]})]


@experiment(
    "fsi",
    about="layers frozen, shared and individual, from the bottom up, in many mixtures",
    source=f"Pahari and Shimada; {MILESTONE}",
    differs=DIFFERS,
    baseline=lambda given: f"layers:{'S' * given.encoder.depth}",
    single=lambda given: f"layers:{'I' * given.encoder.depth}",
    hours=21,
)
def fsi(given: Given) -> list[Block]:
    depth = given.encoder.depth
    letters = dict.fromkeys(mixture(depth, *shares) for shares in MIXTURES)
    plans = [f"layers:{word}" for word in letters]
    return [Block(set=hybrid_report(), axes={"plan": plans})]


def mixture(depth: int, frozen: int, shared: int, individual: int) -> str:
    """Twelfths of the depth as letters."""
    ends = [round(depth * part / 12) for part in (frozen, frozen + shared, 12)]
    return "F" * ends[0] + "S" * (ends[1] - ends[0]) + "I" * (ends[2] - ends[1])


@experiment(
    "soft",
    about="one encoder per task, pulled together by an L2 term of growing strength",
    source=f"Duong et al. 2015; {MILESTONE} (planned there)",
    differs="strengths and budget are ours",
    baseline="shared",
    hours=21,
)
def soft(given: Given) -> list[Block]:
    plans = ["shared", *(f"soft:{strength}" for strength in STRENGTHS), "separate"]
    return [Block(set=hybrid_report(), axes={"plan": plans})]


@experiment(
    "stages",
    about="the heads on a frozen encoder, everything at once, and one after the other",
    source="Progressive Layer Sharing on BERT, section 5.3",
    differs="epochs of 1000 steps with 8 rows of each task",
    baseline="shared",
    hours=5.8,
)
def stages(given: Given) -> list[Block]:
    common = {**PLAIN, **budget(10, 1000), **training(schedule="together")}
    return [
        Block(set={**common, **rates(1e-5)}, axes={"plan": ["shared"]}),
        Block(set={**common, **rates(1e-3)}, axes={"plan": ["frozen+shared"]}),
        Block(set={**common, **rates(1e-5), **frozen_first()}, axes={"plan": ["shared"]}),
    ]


def frozen_first(epochs: int = 10, steps: int = 1000) -> dict[str, Any]:
    """Ten epochs of the heads at 1e-3, then ten of everything at 1e-5."""
    parts = [
        {"steps": epochs * steps, "frozen": True, "head_learning_rate": 1e-3},
        {"steps": epochs * steps, "learning_rate": 1e-5, "head_learning_rate": 1e-5},
    ]
    return training(stages=parts, max_steps=None)


@experiment(
    "single-task",
    about="one single-text task alone, frozen and fine-tuned; the others are scored untrained",
    source=f"{MILESTONE}, experiments 1 and 2",
    differs="pooling as in the recipe; a network that one task trains is both of its experiments: "
    "the task alone, and a multi-task network that only this task trains",
    baseline="shared",
    joins=("movies",),
    hours=0.13,
)
def single_task(given: Given) -> list[Block]:
    alone = [task for task in given.tasks if task not in given.pairs] or list(given.tasks)
    how = training(max_steps=None, steps_per_epoch=None, num_train_epochs=10, eval_steps=None)
    common = {**PLAIN, **how, **training(stages=[], task_steps={}, loss_weights={})}
    return [
        Block(
            set={key: value for key, value in common.items() if key != "training.train_tasks"}
            | rates(rate),
            axes={"plan": [plan], "training.train_tasks": [[task] for task in alone]},
        )
        for plan, rate in (("shared", 1e-5), ("frozen+shared", 1e-3))
    ]


@experiment(
    "encoders",
    about="the same plans on encoders of other sizes",
    source="Hybrid BERT, section 7; milestone report (planned in both)",
    differs="the encoders are those you have: with_values('encoder', [...]) adds them",
    baseline="shared",
    hours=6.5,
)
def encoders(given: Given) -> list[Block]:
    axes = {"plan": ["shared", "separate"], "encoder": [given.recipe.encoder]}
    return [Block(set=hybrid_report(), axes=axes)]
