"""Orders: ways to choose the next task. Each is an endless stream of steps.

A step says how many rows of which tasks it takes. N is a task's number of training rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, cycle

import numpy as np

from mops.config.training import Training

Step = Mapping[str, int]  # task -> rows


@dataclass
class Ground:
    """What an order may look at, and which tasks may still have a batch."""

    sizes: Mapping[str, int]  # rows of the tasks that learn
    batch_sizes: Mapping[str, int]
    training: Training
    draw: np.random.Generator
    open: list[str]  # closed by the planner when a task's own budget is spent
    made: dict[tuple[str, ...], Step] = field(default_factory=dict)

    @property
    def batches(self) -> dict[str, int]:
        """In one pass of each task."""
        return {task: math.ceil(n / self.batch_sizes[task]) for task, n in self.sizes.items()}

    def step(self, *tasks: str) -> Step:
        """A batch of each; equal steps are one value."""
        return self.made.setdefault(tasks, {task: self.batch_sizes[task] for task in tasks})


@dataclass(frozen=True)
class Order:
    """One way to choose the next task."""

    epoch: Callable[[Ground], int]  # steps in which the largest task has one pass
    steps: Callable[[Ground, int, int], Iterator[Step]]  # of an epoch's length and all steps


# ------------------------------------------------------------------ without chance


def together(ground: Ground, epoch: int, total: int) -> Iterator[Step]:
    """A batch of every task in each step."""
    while True:
        yield ground.step(*ground.open)


def in_turn(ground: Ground, epoch: int, total: int) -> Iterator[Step]:
    """One task's pass after the other; a shorter epoch gives each its share of it."""
    while True:
        batches = {task: n for task, n in ground.batches.items() if task in ground.open}
        ends = np.round(np.cumsum(list(batches.values())) * epoch / sum(batches.values()))
        counts = np.diff(ends.astype(int), prepend=0)
        for task, times in zip(batches, counts.tolist(), strict=True):
            yield from (ground.step(task) for _ in range(times) if task in ground.open)


def round_robin(ground: Ground, epoch: int, total: int) -> Iterator[Step]:
    """One task per step, each after the other."""
    for task in cycle(ground.sizes):
        if task in ground.open:
            yield ground.step(task)


def staggered(ground: Ground, epoch: int, total: int) -> Iterator[Step]:
    """The largest set alone for a share of the steps, then all tasks in a round.

    From a CS224N report of 2024: two epochs of Quora alone, then round robin.
    """
    largest = max(ground.sizes, key=lambda task: ground.sizes[task])
    for _ in range(round(ground.training.staggered_share * total)):
        if largest in ground.open:
            yield ground.step(largest)
    yield from round_robin(ground, epoch, total)


# ------------------------------------------------------------------ drawn


def chances(sizes: Mapping[str, int], power: float) -> dict[str, float]:
    """p_i = N_i^power / sum_j N_j^power."""
    weights = {task: float(n) ** power for task, n in sizes.items()}
    return {task: weight / sum(weights.values()) for task, weight in weights.items()}


def draw_tasks(ground: Ground, power: Callable[[int], float]) -> Iterator[Step]:
    """One task per step, drawn among those that are open; the power may change with the step."""
    edges: dict[tuple[float, tuple[str, ...]], list[float]] = {}
    for number in count():
        names, now = tuple(ground.open), power(number)
        if (now, names) not in edges:
            found = chances({task: ground.sizes[task] for task in names}, now)
            edges[now, names] = np.cumsum(list(found.values())).tolist()
        place = int(np.searchsorted(edges[now, names], ground.draw.random(), side="right"))
        yield ground.step(names[min(place, len(names) - 1)])  # the last edge may be rounded down


def drawn_by(power: Callable[[Training], float]) -> Order:
    """Tasks drawn with p_i in proportion to N_i^power; an epoch expects a pass of the largest."""

    def epoch(ground: Ground) -> int:
        found, size = chances(ground.sizes, power(ground.training)), ground.sizes
        largest = max(size, key=lambda task: size[task])
        return math.ceil(round(size[largest] / ground.batch_sizes[largest] / found[largest], 6))

    def steps(ground: Ground, epoch: int, total: int) -> Iterator[Step]:
        now = power(ground.training)
        return draw_tasks(ground, lambda _: now)

    return Order(epoch=epoch, steps=steps)


def annealed_power(step: int, epoch: int, total: int) -> float:
    """alpha = 1 - 0.8 (e - 1) / (E - 1) in epoch e of E (Stickland and Murray 2019, section 4).

    An epoch that the budget cuts short counts as one of the E; a single one has alpha 1.
    """
    epochs = math.ceil(total / epoch)
    return 1.0 - 0.8 * (step // epoch) / max(1, epochs - 1)


def annealed(ground: Ground, epoch: int, total: int) -> Iterator[Step]:
    """By size at first, nearly evenly at last."""
    return draw_tasks(ground, lambda step: annealed_power(step, epoch, total))


def mixed(ground: Ground, epoch: int, total: int) -> Iterator[Step]:
    """Batches out of one shuffled pass after the other over the rows of all tasks together.

    Only the order of the tasks is drawn here. Each task's own rows are shuffled by themselves,
    which together is a uniform shuffle of the union.
    """
    names, width = list(ground.sizes), sum(ground.batch_sizes[task] for task in ground.sizes)
    left, live = np.zeros(0, np.int64), list(range(len(names)))
    while True:
        if len(ground.open) < len(live):
            live = [i for i in live if names[i] in ground.open]
            left = left[np.isin(left, live)]
        while len(left) < width:
            union = np.repeat(live, [ground.sizes[names[i]] for i in live])
            left = np.concatenate([left, ground.draw.permutation(union)])
        counts = np.bincount(left[:width], minlength=len(names)).tolist()
        left = left[width:]
        yield {task: rows for task, rows in zip(names, counts, strict=True) if rows}


# ------------------------------------------------------------------ the table


def longest_pass(ground: Ground) -> int:
    return max(ground.batches.values())


def pass_of_each(ground: Ground) -> int:
    return sum(ground.batches.values())


def rounds(ground: Ground) -> int:
    return len(ground.sizes) * longest_pass(ground)


def pass_of_the_union(ground: Ground) -> int:
    width = sum(ground.batch_sizes[task] for task in ground.sizes)
    return math.ceil(sum(ground.sizes.values()) / width)


BY_SIZE = drawn_by(lambda _: 1.0)
ORDERS = {
    "together": Order(epoch=longest_pass, steps=together),
    "in-turn": Order(epoch=pass_of_each, steps=in_turn),
    "round-robin": Order(epoch=rounds, steps=round_robin),
    "random": drawn_by(lambda _: 0.0),
    "proportional": BY_SIZE,
    "sqrt": drawn_by(lambda _: 0.5),
    "temperature": drawn_by(lambda training: 1.0 / training.temperature),
    "mixed": Order(epoch=pass_of_the_union, steps=mixed),
    "annealed": Order(epoch=BY_SIZE.epoch, steps=annealed),
    "staggered": Order(epoch=rounds, steps=staggered),
}
