"""Batches: the sequences and targets of the rows that one step or one prediction takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mops.data.schedule import Place
from mops.data.tokens import TokenTable
from mops.tasks import Task


@dataclass(frozen=True)
class Segment:
    """One token sequence and the tasks that ask for it."""

    ids: NDArray[np.int32]
    types: NDArray[np.int32]
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """Rows of one or more tasks: their sequences in order, and the targets of each task."""

    segments: tuple[Segment, ...]
    targets: Mapping[str, NDArray[np.float64]]
    # Factor on a task's loss where its rows are more or fewer than its usual batch; else 1.
    scale: Mapping[str, float] = field(default_factory=dict)
    # What the rows here count in the mean over all rows of the step, on all processes; else 1.
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskData:
    """One split of one task, tokenised, with its targets."""

    task: Task
    tokens: TokenTable
    targets: NDArray[np.float64]  # class number, or the value as it was written

    def __len__(self) -> int:
        return len(self.targets)


def make_batch(data: Mapping[str, TaskData], chosen: Mapping[str, Sequence[int]]) -> Batch:
    """The chosen rows of each task as one batch."""
    segments = tuple(
        Segment(ids, types, (task,))
        for task, rows in chosen.items()
        for row in rows
        for ids, types in data[task].tokens.row(row)
    )
    targets = {task: data[task].targets[list(rows)] for task, rows in chosen.items()}
    return Batch(segments, targets)


def take_rows(data: Mapping[str, TaskData], chosen: Mapping[str, Sequence[Place]]) -> Batch:
    """The rows at these places, as they were read."""
    rows = {task: [place.row for place in places] for task, places in chosen.items()}
    return make_batch(data, rows)
