"""Before the first step: data read and tokenised, encoder found, plan laid out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from mops.combining import refuse_missing
from mops.data.augment import AugmentedRows
from mops.data.batches import Batch, TaskData, take_rows
from mops.data.kept_tokens import tokenise_once
from mops.data.material import Material, layout_of, read_material, resolve, targets_of
from mops.data.rows import Row
from mops.data.schedule import Place, generator
from mops.data.splits import half
from mops.encoder.sources import EncoderSource, find_encoder
from mops.errors import RecipeError
from mops.fit.machine import prepare_machine
from mops.fit.trackers import refuse_missing_trackers
from mops.layout import Layout
from mops.recipes import Recipe
from mops.records import machine_info

SELECTION_ROWS = 2000  # of a task, for evaluations during training; the whole set at the end


@dataclass(frozen=True)
class Prepared:
    """All that a run is made of."""

    recipe: Recipe  # complete
    material: Material
    source: EncoderSource
    layout: Layout
    device: str

    @cached_property
    def key(self) -> str:
        """Names the recipe, the data and the encoder: what an interrupted run must go on with."""
        recipe = self.recipe.without("report_to")
        parts = [recipe.to_data(), dict(self.material.digests), self.source.digest]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare(recipe: Recipe, tell: Callable[[str], None]) -> Prepared:
    device = prepare_machine(recipe.training)
    refuse_missing(recipe.training.gradients)
    refuse_missing_trackers(recipe.training)
    tell("reading data")
    material = read_material(recipe)
    recipe = resolve(recipe, material)
    source = find_encoder(recipe.encoder)
    return Prepared(recipe, material, source, layout_of(recipe, material, source.shape), device)


def meta_info(device: str, source: EncoderSource, material: Material) -> dict[str, Any]:
    """Where a run was made, and of what."""
    return {
        **machine_info(),
        "device": device,
        "threads": torch.get_num_threads(),
        "encoder": source.name,
        "encoder_sha256": source.digest,
        "data_sha256": dict(material.digests),
        "data_notes": material.notes(),
    }


def training_data(ready: Prepared) -> dict[str, TaskData]:
    return {
        name: task_data(ready, name, splits["train"].good)
        for name, splits in ready.material.splits.items()
    }


def batch_maker(
    ready: Prepared, data: Mapping[str, TaskData]
) -> Callable[[Mapping[str, Sequence[Place]]], Batch]:
    """What makes a batch of chosen training rows, changed where the recipe says so."""
    training, splits = ready.recipe.training, ready.material.splits
    if training.augment is None:
        return partial(take_rows, data)
    texts = {name: [row.texts for row in splits[name]["train"].good] for name in data}
    return AugmentedRows(
        data=data,
        texts=texts,
        tokenizer=ready.source.tokenizer,
        reading=ready.layout.reading,
        augment=training.augment,
        seed=training.seed,
    ).take


def selection_data(ready: Prepared) -> dict[str, TaskData]:
    return {name: task_data(ready, name, rows) for name, rows in selection_rows(ready).items()}


def selection_rows(ready: Prepared) -> dict[str, tuple[Row, ...]]:
    """The selection half of each validation split; of a large one a fixed sample."""
    found = {}
    for name, splits in ready.material.splits.items():
        rows = [row for row in splits["validation"].good if half(row) == "selection"]
        if not rows:
            raise RecipeError(
                f"task {name!r}: the validation rows are too few to be halved; add some"
            )
        draw = generator(ready.recipe.training.seed, "selection", name)
        chosen = np.sort(draw.permutation(len(rows))[:SELECTION_ROWS])
        found[name] = tuple(rows[i] for i in chosen)
    return found


def task_data(ready: Prepared, name: str, rows: tuple[Row, ...]) -> TaskData:
    task = ready.material.tasks[name]
    table = tokenise_once(ready.source.tokenizer, [row.texts for row in rows], ready.layout.reading)
    return TaskData(task, table, targets_of(task, rows))
