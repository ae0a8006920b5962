"""One representative of each family of plans under one small budget: the default survey."""

from __future__ import annotations

from mops.plans import fsi
from mops.survey.design.survey import Block
from mops.survey.experiments.table import Given, budget, experiment, training

STEPS, EVALUATIONS = 100, 2


@experiment(
    "everything",
    about="one plan of each family under one small budget",
    source="ours",
    baseline="shared",
    seeds=2,
    hours=0.2,
)
def everything(given: Given) -> list[Block]:
    several = ["progressive"] if len(given.tasks) > 1 else []
    plans = [
        "shared",
        "separate",
        f"hybrid:{given.half}",
        f"layers:{fsi(given.encoder.depth)}",
        *several,
        "pals:parallel",
        "frozen+adapters:64",
        "frozen+shared",
        "frozen+late:SSS",
        "frozen+late:III",
    ]
    told = training(per_task_batch_size=8, schedule="together", learning_rate=2e-4)
    common = {**budget(EVALUATIONS, STEPS // EVALUATIONS), **told}
    return [Block(set=common, axes={"plan": plans})]
