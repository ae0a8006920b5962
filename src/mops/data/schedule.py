"""The schedule: which task comes next, and which of its rows. A pure function of the recipe.

The whole order is known before the first step, so expected and realised numbers are the same, and
a resumed run needs only the number of its step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mops.settings import Training


@dataclass(frozen=True)
class Schedule:
    """For each step the tasks in it, and for each task its k-th batch of rows."""

    steps: tuple[tuple[str, ...], ...]
    steps_per_epoch: int
    sizes: Mapping[str, int]
    batch_sizes: Mapping[str, int]
    seed: int

    def __len__(self) -> int:
        return len(self.steps)

    def rows(self, task: str, batch: int) -> list[int]:
        """The rows of a task's batch number `batch`: shuffled passes, one after the other."""
        size, count = self.sizes[task], self.batch_sizes[task]
        places = range(batch * count, (batch + 1) * count)
        return [
            int(shuffled(size, self.seed, task, place // size)[place % size]) for place in places
        ]

    def batches_before(self, step: int) -> dict[str, int]:
        """How many batches each task has had before a step."""
        counts = dict.fromkeys(self.sizes, 0)
        for tasks in self.steps[:step]:
            for task in tasks:
                counts[task] += 1
        return counts

    def passes(self, task: str, batches: int) -> float:
        return batches * self.batch_sizes[task] / self.sizes[task]


@lru_cache(maxsize=64)
def shuffled(size: int, seed: int, task: str, number: int) -> NDArray[np.int64]:
    """The order of a task's rows in its pass number `number`."""
    return generator(seed, task, str(number)).permutation(size)


def generator(seed: int, *names: str) -> np.random.Generator:
    digest = hashlib.sha256("/".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def plan_steps(sizes: Mapping[str, int], training: Training) -> Schedule:
    """The order of tasks over the whole budget."""
    batch_sizes = {task: training.batch_size(task) for task in sizes}
    batches = {task: math.ceil(size / batch_sizes[task]) for task, size in sizes.items()}
    order = ORDERS[training.schedule]
    epoch_steps = training.steps_per_epoch or order.epoch(batches)
    total = training.max_steps or max(1, round(training.num_train_epochs * epoch_steps))
    steps = order.steps(batches, epoch_steps, total, generator(training.seed, "schedule"))
    return Schedule(tuple(steps), epoch_steps, dict(sizes), batch_sizes, training.seed)


@dataclass(frozen=True)
class Order:
    """One way to choose the next task."""

    epoch: Callable[[Mapping[str, int]], int]  # steps in which the largest task has one pass
    steps: Callable[[Mapping[str, int], int, int, np.random.Generator], list[tuple[str, ...]]]


def together(
    batches: Mapping[str, int], epoch: int, total: int, draw: np.random.Generator
) -> list[tuple[str, ...]]:
    """A batch of every task in each step."""
    return [tuple(batches)] * total


def proportional(
    batches: Mapping[str, int], epoch: int, total: int, draw: np.random.Generator
) -> list[tuple[str, ...]]:
    """One task per step, drawn in proportion to its size."""
    names, weights = list(batches), np.array(list(batches.values()), dtype=float)
    drawn = draw.choice(len(names), size=total, p=weights / weights.sum())
    return [(names[i],) for i in drawn]


def in_turn(
    batches: Mapping[str, int], epoch: int, total: int, draw: np.random.Generator
) -> list[tuple[str, ...]]:
    """One task's pass after the other; a shorter epoch gives each its share of it."""
    whole = sum(batches.values())
    ends = np.round(np.cumsum(list(batches.values())) * epoch / whole).astype(int)
    names = list(batches)
    one: list[tuple[str, ...]] = [
        (names[int(np.searchsorted(ends, step, side="right"))],) for step in range(epoch)
    ]
    return (one * math.ceil(total / epoch))[:total]


ORDERS = {
    "together": Order(epoch=lambda batches: max(batches.values()), steps=together),
    "proportional": Order(epoch=lambda batches: sum(batches.values()), steps=proportional),
    "in-turn": Order(epoch=lambda batches: sum(batches.values()), steps=in_turn),
}
