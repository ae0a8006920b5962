"""What the candidates of an experiment depend on, and the settings that many of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mops.config.recipe import Recipe
from mops.errors import RecipeError
from mops.model.sources import find_encoder
from mops.plans.shapes import EncoderShape
from mops.surveys.design import Block

Plans = Iterable[str | Mapping[str, Any]]  # short forms, or rows


@dataclass(frozen=True)
class Given:
    """The tasks and the encoder that the blocks of an experiment depend on."""

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
    def half(self) -> str:
        """The plan that shares the lower half of the layers."""
        return f"hybrid:{self.encoder.depth // 2}"

    def fill_in(self, name: str) -> str:
        """A candidate's name in which {width} and the like stand for this encoder."""
        depth, width = (self.encoder.depth, self.encoder.width) if "{" in name else (0, 0)
        return name.format(width=width, all_shared="S" * depth, all_individual="I" * depth)

    def refuse(self, needs: str, advice: str) -> RecipeError:
        """The error for tasks that an experiment cannot use."""
        names = ", ".join(self.recipe.tasks)
        return RecipeError(
            f"experiment {self.name!r} needs {needs}; the tasks are {names}; {advice}"
        )


Build = Callable[[Given], list[Block]]


# ------------------------------------------------------------------ settings


def compare(settings: Mapping[str, Any], plans: Plans, **axes: Iterable[Any]) -> Block:
    """Plans on the same settings, and further axes by keys of `training`; axes win."""
    varied = {f"training.{key}": [*values] for key, values in axes.items()}
    common = {key: value for key, value in settings.items() if key not in varied}
    return Block(set=common, axes={"plan": [*plans], **varied})


def training(**settings: Any) -> dict[str, Any]:
    """Keys of `training`, dotted."""
    return {f"training.{key}": value for key, value in settings.items()}


def rates(rate: float) -> dict[str, Any]:
    """The papers train all weights with one learning rate."""
    return training(learning_rate=rate, head_learning_rate=rate)


def budget(epochs: int, steps: int) -> dict[str, Any]:
    """Epochs of a fixed number of steps, with an evaluation after each."""
    return training(
        stages=[], max_steps=epochs * steps, steps_per_epoch=steps, eval_steps=None, task_steps={}
    )


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


def hybrid_report(**settings: Any) -> dict[str, Any]:
    """Section 5.3: 20 epochs, rate 1e-5, dropout 0.3, decay 1e-3, no scheduler, cross-encoding."""
    head = {"kind": "mlp", "depth": 2, "width": 256}
    own = training(weight_decay=1e-3, pair="cross", head=head, schedule="together")
    return {**PLAIN, **budget(20, 500), **rates(1e-5), **own, **training(**settings)}
