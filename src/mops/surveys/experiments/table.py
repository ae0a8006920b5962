"""The table of named experiments: each is one function from the user's tasks to blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mops.config.recipe import Recipe
from mops.errors import RecipeError
from mops.model.sources import find_encoder
from mops.plans.shapes import EncoderShape
from mops.surveys.design import Block

NOMINAL_GFLOPS = 200.0  # matrix products of a machine with two cores


@dataclass(frozen=True)
class Given:
    """What the blocks of an experiment may depend on."""

    name: str  # of the experiment
    recipe: Recipe

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Names, single texts before pairs, as the papers order them."""
        tasks = self.recipe.task_values().values()
        return tuple(task.name for task in sorted(tasks, key=lambda task: task.is_pair))

    @cached_property
    def pairs(self) -> tuple[str, ...]:
        return tuple(n for n, task in self.recipe.task_values().items() if task.is_pair)

    @cached_property
    def similarities(self) -> tuple[str, ...]:
        return tuple(n for n, task in self.recipe.task_values().items() if task.is_similarity)

    @cached_property
    def encoder(self) -> EncoderShape:
        return find_encoder(self.recipe.encoder, ["config.json"]).shape

    @property
    def half(self) -> int:
        return self.encoder.depth // 2

    def refuse(self, needs: str, advice: str) -> RecipeError:
        """Why an experiment has no meaning for these tasks."""
        names = ", ".join(self.recipe.tasks)
        return RecipeError(
            f"experiment {self.name!r} needs {needs}; the tasks are {names}; {advice}"
        )


Build = Callable[[Given], list[Block]]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One entry of the table."""

    name: str
    about: str
    source: str  # what it reproduces
    differs: str = ""  # from the source
    baseline: str | Callable[[Given], str]  # name of a candidate, or a plan
    single: str | Callable[[Given], str] = ""  # default: the plan with a model per task
    hours: float  # expected, of all trials, on the sample with minilm at NOMINAL_GFLOPS
    seeds: int = 3
    joins: tuple[str, ...] = ()  # tasks that are left out otherwise, and take part where data has
    build: Build = field(repr=False)


ENTRIES: dict[str, Experiment] = {}  # in the order in which families are imported


def experiment(name: str, **facts: Any) -> Callable[[Build], Build]:
    """Enter a function into the table."""

    def enter(build: Build) -> Build:
        ENTRIES[name] = Experiment(name=name, build=build, **facts)
        return build

    return enter


def text_of(given: str | Callable[[Given], str], about: Given) -> str:
    return given if isinstance(given, str) else given(about)


# ------------------------------------------------------------------ words of many entries


def training(**settings: Any) -> dict[str, Any]:
    """Keys of `training`, dotted."""
    return {f"training.{key}": value for key, value in settings.items()}


def rates(rate: float) -> dict[str, Any]:
    """The papers train everything that learns with one rate."""
    return training(learning_rate=rate, head_learning_rate=rate)


def budget(epochs: int, steps: int) -> dict[str, Any]:
    """Epochs of a fixed number of steps, an evaluation after each."""
    return training(
        stages=[], max_steps=epochs * steps, steps_per_epoch=steps, eval_steps=None, task_steps={}
    )


BOTH_RATES = "training.learning_rate+training.head_learning_rate"
# All five reports: AdamW at a constant rate, without decay or clipping, dropout 0.3 before heads.
PLAIN = training(
    lr_scheduler_type="none",
    warmup_steps=0,
    weight_decay=0.0,
    max_grad_norm=0.0,
    dropout=0.1,
    head_dropout=0.3,
    per_task_batch_size=8,
    train_tasks=[],
)
