"""Dataset: all rows that a recipe names, read once, with the labels of every task known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mops.config.recipe import Recipe
from mops.config.training import TaskEntry
from mops.data.examples import Row, RowsRead, read_labels, read_rows
from mops.data.splits import split_rows
from mops.errors import DataError
from mops.files import file_digest
from mops.tasks import Task, are_numbers

SPLITS = ("train", "validation", "test")
SPLIT_SEED = 0


@dataclass(frozen=True)
class Dataset:
    """The rows of every split of every task."""

    tasks: Mapping[str, Task]
    splits: Mapping[str, Mapping[str, RowsRead]]  # task -> split -> rows
    digests: Mapping[str, str]  # file -> SHA-256

    def notes(self) -> list[str]:
        return [
            f"{task}: {Path(read.source).name}: {note}"
            for task, splits in self.splits.items()
            for read in splits.values()
            for note in read.notes
        ]


def read_dataset(recipe: Recipe, wanted: tuple[str, ...] = SPLITS) -> Dataset:
    """Read what the recipe names; labels that it does not give come from the training rows."""
    tasks: dict[str, Task] = {}
    splits: dict[str, dict[str, RowsRead]] = {}
    digests: dict[str, str] = {}
    for name, entry in recipe.tasks.items():
        tasks[name], splits[name] = read_task(entry, entry.task(name), wanted)
        digests |= {file: file_digest(file) for file in entry.files().values()}
    return Dataset(tasks, splits, digests)


def dataset_key(recipe: Recipe) -> str:
    """What the rows of a recipe follow from."""
    return json.dumps(recipe.to_data()["tasks"], sort_keys=True)


def read_task(
    entry: TaskEntry, task: Task, wanted: tuple[str, ...]
) -> tuple[Task, dict[str, RowsRead]]:
    if entry.train is None:
        raise DataError(f"task {task.name!r}: no `train` file is named")
    train = read_split(entry, task, entry.train, needs_label=True)
    if not task.is_similarity and not task.labels:
        task = task.with_labels(ordered(task, read_labels(train.good)))
    is_constant = len({row.label for row in train.good}) == 1
    if is_constant:
        raise DataError(
            f"task {task.name!r}: all {len(train.good)} training rows of {entry.train} have the "
            f"label {train.good[0].label!r}; there is nothing to learn. Check `label`"
        )
    splits = {"train": train}
    if entry.validation is None:
        splits |= split_off(entry, train)
    for split, file in entry.files().items():
        if split != "train" and split in wanted:
            splits[split] = read_split(entry, task, file, needs_label=split == "validation")
    return task, splits


def ordered(task: Task, labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels as read; an ordinal loss needs their order, and words in a file have none."""
    if task.loss_name == "ordinal" and not are_numbers(labels):
        raise DataError(
            f"task {task.name!r}: loss ordinal needs the classes in their order, the training file "
            f"has the words {', '.join(labels)}; name them under `labels`, the lowest first"
        )
    return labels


def read_split(entry: TaskEntry, task: Task, file: str, *, needs_label: bool) -> RowsRead:
    return read_rows(
        file,
        task,
        needs_label=needs_label,
        on_bad_row=entry.on_bad_row,
        columns=entry.columns or None,
    )


def split_off(entry: TaskEntry, train: RowsRead) -> dict[str, RowsRead]:
    """A validation split out of the training rows; rows with a common text stay together.

    It does not follow the seed of a training: runs are compared on the same rows.
    """
    if entry.split is None:
        raise DataError(
            f"{train.source}: there is neither a `validation` file nor `split: 0.1`; "
            "name one of them for this task"
        )
    kept, taken = split_rows(train.good, entry.split, SPLIT_SEED)
    return {
        "train": replace(train, rows=tuple(kept)),
        "validation": replace(train, rows=tuple(taken), notes=()),
    }


def encode_targets(task: Task, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Class numbers, or the values as they were written; nan where a row cannot be scored."""
    numbers = {label: float(n) for n, label in enumerate(task.labels)}
    return np.array([target_of(row, numbers) for row in rows], dtype=np.float64)


def target_of(row: Row, numbers: Mapping[str, float]) -> float:
    if row.label is None or row.problem:
        return float("nan")
    return numbers[row.label] if isinstance(row.label, str) else row.label
