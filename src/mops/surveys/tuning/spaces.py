"""What a search may change, and the settings that are drawn from it. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
DIGITS = 3  # of a drawn number: more say nothing


@dataclass(frozen=True)
class Draw:
    """How the value of one key is drawn."""

    kind: str
    values: tuple[Any, ...]  # the choices, or the lowest and the highest

    def value(self, chance: np.random.Generator) -> Any:
        return KINDS[self.kind](self.values, chance)


def choose(values: tuple[Any, ...], chance: np.random.Generator) -> Any:
    return values[int(chance.integers(len(values)))]


def uniform(values: tuple[Any, ...], chance: np.random.Generator) -> float:
    return float(f"{chance.uniform(*values):.{DIGITS}g}")


def log_uniform(values: tuple[Any, ...], chance: np.random.Generator) -> float:
    low, high = map(math.log, values)
    return float(f"{math.exp(chance.uniform(low, high)):.{DIGITS}g}")


KINDS: dict[str, Callable[[tuple[Any, ...], np.random.Generator], Any]] = {
    "choice": choose,
    "uniform": uniform,
    "log_uniform": log_uniform,
}
Space = Mapping[str, Draw]  # dotted key of the recipe -> how it is drawn


def default_space(recipe: Recipe) -> dict[str, Draw]:
    """A plan of each family, rates in a sane range, loss weights, half or all of the budget.

    Wider rates than these were searched before: outside, fine-tuning forgets or hardly moves.
    """
    training = recipe.training
    plans = [candidate.recipe.plan for candidate in named_survey(DEFAULT, recipe).candidates()]
    space = {
        "plan": Draw("choice", tuple(plans)),
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
    form = f"allowed: a mapping of one of {', '.join(KINDS)} to a list"
    if not isinstance(value, dict) or len(value) != 1:
        raise RecipeError(f"{where} is {value!r}; {form}, as {{log_uniform: [1e-5, 1e-4]}}")
    ((kind, values),) = value.items()
    if kind not in KINDS:
        raise RecipeError(f"{where} has {kind!r}; {form}.{nearest(str(kind), KINDS)}")
    if not isinstance(values, list) or not values:
        raise RecipeError(f"{where}: {kind} has {values!r}; {form}")
    if kind != "choice":
        check_range(kind, values, where)
    return Draw(kind, tuple(values))


def check_range(kind: str, values: list[Any], where: str) -> None:
    are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    lowest = 0 if kind == "log_uniform" else -math.inf
    if len(values) != 2 or not are_numbers or not lowest < values[0] < values[1] < math.inf:
        above = " above 0" if kind == "log_uniform" else ""
        raise RecipeError(
            f"{where}: {kind} has {values!r}; it needs the lowest and the highest value{above}"
        )


# ------------------------------------------------------------------ the trials of a search


def budgeted(recipe: Recipe) -> Recipe:
    """The same recipe with its budget and its evaluations in steps.

    Every trial is looked at equally often, unless the recipe says how often.
    """
    training = recipe.training
    steps = count_steps(recipe.to_data()["training"]) or steps_of_rows(recipe)
    update: dict[str, Any] = {} if training.stages else {"max_steps": steps}
    update["eval_steps"] = training.eval_steps or math.ceil(steps / EVALUATIONS)
    return recipe.model_copy(update={"training": training.model_copy(update=update)})


def steps_of_rows(recipe: Recipe) -> int:
    """Of a budget in epochs, which follows from the rows."""
    splits = read_dataset(recipe, ("train", "validation")).splits
    sizes = {name: len(of["train"].good) for name, of in splits.items()}
    return len(plan_steps(sizes, recipe.training))


def plan_search(recipe: Recipe, space: Space, trials: int) -> Survey:
    """The recipe itself, and `trials - 1` settings drawn from the space, as a survey.

    What is drawn follows from the seed, the key and the number: more trials begin with the same.
    """
    seed = recipe.training.seed
    points = [
        {key: of.value(generator(seed, "tune", key, str(n))) for key, of in space.items()}
        for n in range(1, trials)
    ]
    blocks = [{"set": with_evaluations(recipe, point)} for point in ({}, *points)]
    return to_survey(
        {"name": "tune", "source": "a search", "blocks": blocks, "seeds": [seed]},
        recipe,
        where="search",
    )


def with_evaluations(recipe: Recipe, point: Mapping[str, Any]) -> dict[str, Any]:
    """As many evaluations as the recipe has, also in another budget."""
    training, steps = recipe.training, point.get("training.max_steps")
    if not steps or not training.max_steps or not training.eval_steps:
        return dict(point)
    every = math.ceil(training.eval_steps * steps / training.max_steps)
    return {**point, "training.eval_steps": every}
