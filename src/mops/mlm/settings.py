"""What one pretraining is: the keys of a recipe that count for it, and two numbers of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mops.errors import UsageError
from mops.fit.rates import rate_factor
from mops.recipes import Recipe
from mops.settings import Training

BATCH_SIZE = 32
HEAD_SHARE = 0.1  # of all steps: a new head learns alone, so that there is a baseline
USED = (  # keys of `training` that mean something here
    "max_length", "num_train_epochs", "steps_per_epoch", "max_steps", "learning_rate",
    "head_learning_rate", "layer_decay", "lr_scheduler_type", "warmup_steps", "weight_decay",
    "adam_epsilon", "max_grad_norm", "dropout", "eval_steps", "save_steps", "early_stopping",
    "seed", "threads", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A recipe whose plan and labels do not count, texts per step, steps of the head alone."""

    recipe: Recipe
    batch_size: int = BATCH_SIZE
    head_steps: int | None = None  # none: a share of all steps for a new head, else 0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("batch size", self.batch_size, 1),
            ("number of head steps", self.head_steps or 0, 0),
        ):
            if value < least:
                raise UsageError(f"the {name} is {value}; it must be at least {least}")

    def to_data(self) -> dict[str, Any]:
        recipe = self.recipe.to_data()
        own = {"batch_size": self.batch_size, "head_steps": self.head_steps}
        return {
            "encoder": recipe["encoder"],
            "tasks": recipe["tasks"],
            "training": {key: recipe["training"][key] for key in USED if key in recipe["training"]},
            **{key: value for key, value in own.items() if value is not None},
        }


@dataclass(frozen=True)
class Budget:
    """Steps in all; in the first `head_steps` of them the encoder is frozen."""

    steps: int
    head_steps: int
    steps_per_epoch: int

    def rate_factor(self, training: Training, step: int) -> float:
        """The factor on `learning_rate` in a step (counted from 0).

        The head alone learns at `head_learning_rate`, which falls to 0 so that the head has settled
        when its perplexity is taken. Then all learn together at `learning_rate`, by its schedule.
        """
        if step < self.head_steps:
            share = training.head_learning_rate / training.learning_rate
            return share * (1 - step / self.head_steps)
        return rate_factor(training, step - self.head_steps, self.steps - self.head_steps)


def plan_budget(settings: Settings, texts: int, *, is_new_head: bool) -> Budget:
    """Steps, from the recipe's epochs or `max_steps`."""
    training = settings.recipe.training
    epoch = training.steps_per_epoch or math.ceil(texts / settings.batch_size)
    steps = training.max_steps or max(1, round(training.num_train_epochs * epoch))
    head_steps = settings.head_steps
    if head_steps is None:
        head_steps = math.ceil(HEAD_SHARE * steps) if is_new_head else 0
    if head_steps > steps:
        raise UsageError(
            f"the head is to learn alone for {head_steps} steps, the run has {steps}; allowed: 0 "
            f"to {steps}; lower --head-steps or raise --max-steps"
        )
    return Budget(steps, head_steps, epoch)
