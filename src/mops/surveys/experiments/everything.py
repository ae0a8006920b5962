"""Plans of many families under one small budget: the default survey, and a first look."""

from __future__ import annotations

from mops.plans.catalog import fsi
from mops.surveys.design import Block
from mops.surveys.experiments.table import Given, budget, experiment, training

STEPS, QUICK_STEPS, EVALUATIONS = 100, 70, 2


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


@experiment(
    "first-look",
    about="eight plans in a few minutes: the quickstart",
    source="ours",
    baseline="shared",
    seeds=2,
    hours=0.15,
)
def first_look(given: Given) -> list[Block]:
    """Texts are read apart: the bundled encoder was made for single sentences, and pairs as one
    sequence need more steps."""
    several = ["progressive"] if len(given.tasks) > 1 else []
    plans = ["shared", "separate", f"hybrid:{given.half}", *several, "pals:parallel",
             "frozen+shared", "frozen+late:SSS", "frozen+late:III"]  # fmt: skip
    told = training(pair="bi", per_task_batch_size=8, learning_rate=1e-4, head_learning_rate=3e-3)
    return [Block(set={**budget(EVALUATIONS, QUICK_STEPS // EVALUATIONS), **told},
                  axes={"plan": plans})]  # fmt: skip
