"""What one pretraining is: the keys of a recipe that count for it, and two numbers of its own.

Before the first step: data read, texts chosen, encoder found.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mops.config.recipe import Recipe
from mops.data.dataset import Dataset, read_dataset
from mops.errors import UsageError
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.shapes import Reading, check_length
from mops.training.mlm.corpus import (
    Corpus,
    Texts,
    Vocabulary,
    build_corpus,
    gather_texts,
    read_vocabulary,
)
from mops.training.prepare import prepare_machine
from mops.training.tracking import refuse_missing_trackers

BATCH_SIZE = 32
START, CONTROL, TRAINING = "start", "control", "training"  # phases
USED = (  # keys of `training` that mean something here
    "max_length", "num_train_epochs", "steps_per_epoch", "max_steps", "learning_rate",
    "head_learning_rate", "layer_decay", "lr_scheduler_type", "warmup_steps", "weight_decay",
    "adam_epsilon", "max_grad_norm", "dropout", "eval_steps", "save_steps", "early_stopping",
    "seed", "threads", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A recipe whose plan and labels do not count, texts per step, steps of the control."""

    recipe: Recipe
    batch_size: int = BATCH_SIZE
    control_steps: int | None = None  # none: as many as train

    def __post_init__(self) -> None:
        for name, value, least in (
            ("batch size", self.batch_size, 1),
            ("number of control steps", self.control_steps or 0, 0),
        ):
            if value < least:
                raise UsageError(f"the {name} is {value}; it must be at least {least}")

    def to_data(self) -> dict[str, Any]:
        recipe = self.recipe.to_data()
        own = {"batch_size": self.batch_size, "control_steps": self.control_steps}
        return {
            "encoder": recipe["encoder"],
            "tasks": recipe["tasks"],
            "training": {key: recipe["training"][key] for key in USED if key in recipe["training"]},
            **{key: value for key, value in own.items() if value is not None},
        }


@dataclass(frozen=True)
class Budget:
    """The steps of both phases: first the control, then the training itself.

    A new head learns much in its first steps, whatever the encoder. So in the control the head
    learns alone, on the same texts, masks and rates, while the encoder stays as it was; then the
    head is put back. What training reaches below the control is what the encoder has learnt.
    """

    control: int
    steps: int
    steps_per_epoch: int

    @property
    def total(self) -> int:
        return self.control + self.steps

    def place(self, number: int) -> tuple[str, int, int]:
        """Of the step with this number: its phase, its number there, the length of the phase."""
        if number < self.control:
            return CONTROL, number, self.control
        return TRAINING, number - self.control, self.steps


def plan_budget(settings: Settings, texts: int) -> Budget:
    """Steps, from the recipe's epochs or `max_steps`."""
    training = settings.recipe.training
    epoch = training.steps_per_epoch or math.ceil(texts / settings.batch_size)
    steps = training.max_steps or max(1, round(training.num_train_epochs * epoch))
    control = steps if settings.control_steps is None else settings.control_steps
    return Budget(control, steps, epoch)


@dataclass(frozen=True)
class Prepared:
    """All that a pretraining is made of."""

    settings: Settings
    dataset: Dataset
    texts: Texts
    source: EncoderSource
    vocabulary: Vocabulary
    reading: Reading
    device: str

    @cached_property
    def key(self) -> str:
        """Names settings, data and encoder: what an interrupted run must go on with."""
        parts = [self.settings.to_data(), dict(self.dataset.digests), self.source.digest]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @cached_property
    def corpus(self) -> Corpus:
        return build_corpus(self.texts, self.source.tokenizer, self.vocabulary, self.reading)


def prepare(settings: Settings, tell: Callable[[str], None]) -> Prepared:
    recipe = settings.recipe
    device = prepare_machine(recipe.training)
    refuse_missing_trackers(recipe.training)
    source = find_encoder(recipe.encoder)
    reading = Reading(max_length=recipe.training.max_length)
    check_length(reading, source.shape)
    vocabulary = read_vocabulary(source.tokenizer, source.shape.words)
    tell("reading data")
    dataset = read_dataset(recipe)
    return Prepared(settings, dataset, gather_texts(dataset), source, vocabulary, reading, device)
