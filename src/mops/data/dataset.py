"""The dataset of a recipe: the rows of all its tasks, read once, with every task's labels known."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mops.config.recipe import Recipe
from mops.config.training import TaskEntry
from mops.data.examples import Row, RowsRead, read_rows, split_rows
from mops.errors import DataError
from mops.files import file_digest
from mops.tasks import Task, are_numbers, sorted_labels

SPLITS = ("train", "validation", "test")
SPLIT_SEED = 0  # not the seed of a training: runs are compared on the same rows


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
    """Read the files of a recipe; labels that it does not list come from the training rows."""
    tasks: dict[str, Task] = {}
    splits: dict[str, dict[str, RowsRead]] = {}
    digests: dict[str, str] = {}
    for name, entry in recipe.tasks.items():
        tasks[name], splits[name] = read_task(entry, entry.task(name), wanted)
        digests |= {file: file_digest(file) for file in entry.files().values()}
    return Dataset(tasks, splits, digests)


def dataset_key(recipe: Recipe) -> str:
    """Recipes with equal keys read equal rows."""
    return json.dumps(recipe.to_data()["tasks"], sort_keys=True)


def read_task(
    entry: TaskEntry, task: Task, wanted: tuple[str, ...]
) -> tuple[Task, dict[str, RowsRead]]:
    """The task with its labels, and its splits."""
    if entry.train is None:
        raise DataError(f"task {task.name!r}: no `train` file is named")
    train = read_split(entry, task, entry.train, needs_label=True)
    labels = {row.label for row in train.good}
    if len(labels) == 1:
        raise DataError(
            f"task {task.name!r}: all {len(train.good)} training rows of {entry.train} have the "
            f"label {train.good[0].label!r}; there is nothing to learn. Check `label`"
        )
    if not task.range and not task.labels:
        task = replace(task, labels=sorted_labels({str(label) for label in labels}))
        if task.loss_name == "ordinal" and not are_numbers(task.labels):
            raise DataError(
                f"task {task.name!r}: loss ordinal needs ordered classes, the training file has "
                f"the words {', '.join(task.labels)}; list them under `labels`, the lowest first"
            )
    splits = {"train": train}
    if entry.validation is None:
        splits |= split_off(entry, train)
    for split, file in entry.files().items():
        if split != "train" and split in wanted:
            splits[split] = read_split(entry, task, file, needs_label=split == "validation")
    return task, splits


def read_split(entry: TaskEntry, task: Task, file: str, *, needs_label: bool) -> RowsRead:
    bad, columns = entry.on_bad_row, entry.columns
    return read_rows(file, task, needs_label=needs_label, on_bad_row=bad, columns=columns)


def split_off(entry: TaskEntry, train: RowsRead) -> dict[str, RowsRead]:
    """A validation split out of the training rows; rows with a common text stay together."""
    if entry.split is None:
        raise DataError(
            f"{train.source}: there is neither a `validation` file nor `split: 0.1`; "
            "give one of them for this task"
        )
    kept, taken = split_rows(train.good, entry.split, SPLIT_SEED)
    return {"train": replace(train, rows=kept), "validation": replace(train, rows=taken, notes=())}


def encode_targets(task: Task, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Class numbers, or the values as written; nan where a row cannot be scored."""
    classes = {label: float(n) for n, label in enumerate(task.labels)}

    def target(row: Row) -> float:
        if row.label is None or row.problem:
            return float("nan")
        return classes[row.label] if isinstance(row.label, str) else row.label

    return np.array([target(row) for row in rows], dtype=np.float64)
