"""The space of a hyperparameter search, and the settings that are drawn from it. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mops.config.recipe import Recipe
from mops.data.dataset import read_dataset
from mops.data.schedule import generator, plan_steps
from mops.errors import RecipeError, nearest
from mops.surveys.design import Survey, to_survey
from mops.surveys.expansion import count_steps
from mops.surveys.experiments import DEFAULT, named_survey
from mops.yaml_io import read_yaml

EVALUATIONS = 8  # of every trial, evenly over its own budget
KINDS = ("choice", "uniform", "log_uniform")


@dataclass(frozen=True)
class Draw:
    """How the value of one key is drawn."""

    kind: str
    values: tuple[Any, ...]  # the choices, or the lowest and the highest

    def value(self, rng: np.random.Generator) -> Any:
        """Numbers have three digits; more say nothing."""
        if self.kind == "choice":
            return self.values[int(rng.integers(len(self.values)))]
        if self.kind == "uniform":
            return float(f"{rng.uniform(*self.values):.3g}")
        low, high = map(math.log, self.values)
        return float(f"{math.exp(rng.uniform(low, high)):.3g}")


def default_space(recipe: Recipe) -> dict[str, Draw]:
    """A plan of each family, learning rates, loss weights, half or all of the budget.

    At learning rates outside these ranges fine-tuning forgets or hardly moves.
    """
    training = recipe.training
    candidates = named_survey(DEFAULT, recipe).candidates()
    space = {
        "plan": Draw("choice", tuple(candidate.recipe.plan for candidate in candidates)),
        "training.learning_rate": Draw("log_uniform", (1e-5, 1e-4)),
        "training.head_learning_rate": Draw("log_uniform", (1e-4, 3e-3)),
    }
    if isinstance(training.loss_weights, dict) and len(recipe.tasks) > 1:
        weight = Draw("log_uniform", (0.25, 4.0))
        space |= {f"training.loss_weights.{task}": weight for task in recipe.tasks}
    if training.max_steps and training.max_steps > 1:
        half = math.ceil(training.max_steps / 2)
        space["training.max_steps"] = Draw("choice", (half, training.max_steps))
    return space


def read_space(path: Path) -> dict[str, Draw]:
    """`training.learning_rate: {log_uniform: [1e-5, 1e-4]}`, one line for each key."""
    return {str(key): to_draw(value, f"{path}: {key}") for key, value in read_yaml(path).items()}


def to_draw(value: Any, where: str) -> Draw:
    kind, values = next(iter(value.items()), ("", [])) if isinstance(value, dict) else ("", [])
    is_valid = kind in KINDS and len(value) == 1 and isinstance(values, list) and len(values) > 0
    if is_valid and kind != "choice":
        are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        lowest = 0 if kind == "log_uniform" else -math.inf
        is_valid = len(values) == 2 and are_numbers and lowest < values[0] < values[1] < math.inf
    if not is_valid:
        raise RecipeError(
            f"{where} is {value!r}; allowed: a mapping of one of {', '.join(KINDS)} to a list, as "
            "{log_uniform: [1e-5, 1e-4]}; a range has the lowest and the highest value, "
            f"log_uniform above 0.{nearest(str(kind), KINDS)}"
        )
    return Draw(kind, tuple(values))


# ------------------------------------------------------------------ the trials of a search


def budget_in_steps(recipe: Recipe) -> Recipe:
    """The same recipe with its budget and its evaluations in steps.

    Every trial has equally many evaluations, unless the recipe says how many.
    """
    training = recipe.training
    steps = count_steps(recipe.to_data()["training"])
    if steps is None:  # a budget in epochs depends on the rows
        splits = read_dataset(recipe, ("train", "validation")).splits
        sizes = {name: len(parts["train"].good) for name, parts in splits.items()}
        steps = len(plan_steps(sizes, training))
    update: dict[str, Any] = {} if training.stages else {"max_steps": steps}
    update["eval_steps"] = training.eval_steps or math.ceil(steps / EVALUATIONS)
    return recipe.model_copy(update={"training": training.model_copy(update=update)})


def plan_search(recipe: Recipe, space: Mapping[str, Draw], trials: int) -> Survey:
    """The recipe itself and `trials - 1` settings drawn from the space, as a survey.

    A draw depends on the seed, the key and its number: more trials begin with the same ones. Every
    trial has as many evaluations as the recipe, also with another budget.
    """
    training = recipe.training
    blocks: list[dict[str, dict[str, Any]]] = [{}]  # the recipe itself
    for n in range(1, trials):
        rngs = (generator(training.seed, "tune", key, str(n)) for key in space)
        point = {key: draw.value(rng) for (key, draw), rng in zip(space.items(), rngs, strict=True)}
        steps = point.get("training.max_steps")
        if steps and training.max_steps and training.eval_steps:
            interval = math.ceil(training.eval_steps * steps / training.max_steps)
            point["training.eval_steps"] = interval
        blocks.append({"set": point})
    data = {"name": "tune", "source": "a search", "blocks": blocks, "seeds": [training.seed]}
    return to_survey(data, recipe, where="search")
