"""Task samplers: ways to choose the next task, each an endless stream of steps.

A step maps tasks to the number of rows it takes of them. N is a task's number of training rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import NamedTuple

import numpy as np

from mops.config.training import Training

Step = Mapping[str, int]  # task -> rows


@dataclass
class SamplerState:
    """The information a sampler can use, and the tasks that may still get a batch."""

    sizes: Mapping[str, int]  # rows of the tasks that are trained
    batch_sizes: Mapping[str, int]
    training: Training
    draw: np.random.Generator
    open: list[str]  # a task is removed when its own budget is spent
    cache: dict[tuple[str, ...], Step] = field(default_factory=dict)

    @property
    def batches(self) -> dict[str, int]:
        """The number of batches in one pass over each task."""
        return {task: math.ceil(n / self.batch_sizes[task]) for task, n in self.sizes.items()}

    @property
    def largest(self) -> str:
        return max(self.sizes, key=lambda task: self.sizes[task])

    def step(self, *tasks: str) -> Step:
        """A batch of each task; equal steps are the same object."""
        return self.cache.setdefault(tasks, {task: self.batch_sizes[task] for task in tasks})


class Sampler(NamedTuple):
    """One way to choose the next task."""

    epoch: Callable[[SamplerState], int]  # steps in which the largest task has one pass
    steps: Callable[[SamplerState, int, int], Iterator[Step]]  # of steps per epoch and all steps


# ------------------------------------------------------------------ deterministic


def rounds(state: SamplerState) -> int:
    return len(state.sizes) * max(state.batches.values())


def together(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """A batch of every task in each step."""
    while True:
        yield state.step(*state.open)


def in_turn(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """One task's pass after the other; a shorter epoch shortens all passes in proportion."""
    while True:
        batches = {task: n for task, n in state.batches.items() if task in state.open}
        ends = np.round(np.cumsum(list(batches.values())) * epoch / sum(batches.values()))
        counts = np.diff(ends.astype(int), prepend=0)
        for task, times in zip(batches, counts.tolist(), strict=True):
            yield from (state.step(task) for _ in range(times) if task in state.open)


def round_robin(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """One task per step, in turn."""
    yield from (state.step(task) for task in cycle(state.sizes) if task in state.open)


def staggered(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """The largest task alone for a fraction of the steps, then all tasks in turn.

    From a CS224N report of 2024: two epochs of Quora alone, then round robin.
    """
    for _ in range(round(state.training.staggered_share * total)):
        if state.largest in state.open:
            yield state.step(state.largest)
    yield from round_robin(state, epoch, total)


# ------------------------------------------------------------------ random


def probabilities(sizes: Mapping[str, int], power: float) -> dict[str, float]:
    """p_i = N_i^power / sum_j N_j^power."""
    weights = {task: float(n) ** power for task, n in sizes.items()}
    return {task: weight / sum(weights.values()) for task, weight in weights.items()}


def draw_tasks(state: SamplerState, power: Callable[[int], float]) -> Iterator[Step]:
    """One task per step, drawn among the open ones; the power may change with the step."""
    edges: dict[tuple[float, tuple[str, ...]], list[float]] = {}
    for number in count():
        names, now = tuple(state.open), power(number)
        if (now, names) not in edges:
            chances = probabilities({task: state.sizes[task] for task in names}, now)
            edges[now, names] = np.cumsum(list(chances.values())).tolist()
        place = int(np.searchsorted(edges[now, names], state.draw.random(), side="right"))
        yield state.step(names[min(place, len(names) - 1)])  # the last edge may be rounded down


def drawn_by(power: Callable[[Training], float]) -> Sampler:
    """Tasks drawn with p_i proportional to N_i^power; an epoch expects a pass of the largest."""

    def epoch(state: SamplerState) -> int:
        largest = state.largest
        chance = probabilities(state.sizes, power(state.training))[largest]
        return math.ceil(round(state.sizes[largest] / state.batch_sizes[largest] / chance, 6))

    return Sampler(epoch, lambda state, *_: draw_tasks(state, lambda _: power(state.training)))


def annealed(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """By size at first, nearly uniformly at the end (Stickland and Murray 2019, section 4).

    alpha = 1 - 0.8 (e - 1) / (E - 1) in epoch e of E. An epoch that the budget cuts short counts
    as one of the E; a single one has alpha 1.
    """
    later_epochs = max(1, math.ceil(total / epoch) - 1)
    return draw_tasks(state, lambda step: 1.0 - 0.8 * (step // epoch) / later_epochs)


def union_pass(state: SamplerState) -> int:
    return math.ceil(sum(state.sizes.values()) / sum(state.batch_sizes.values()))


def mixed(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """Batches from one shuffled pass after the other over the rows of all tasks.

    Only the order of the tasks is drawn here. Each task's own rows are shuffled separately; the
    combination is a uniform shuffle of the union.
    """
    names, width = list(state.sizes), sum(state.batch_sizes.values())
    queue, live = np.zeros(0, np.int64), list(range(len(names)))
    while True:
        if len(state.open) < len(live):
            live = [i for i in live if names[i] in state.open]
            queue = queue[np.isin(queue, live)]
        while len(queue) < width:
            union = np.repeat(live, [state.sizes[names[i]] for i in live])
            queue = np.concatenate([queue, state.draw.permutation(union)])
        counts = np.bincount(queue[:width], minlength=len(names)).tolist()
        queue = queue[width:]
        yield {task: rows for task, rows in zip(names, counts, strict=True) if rows}


BY_SIZE = drawn_by(lambda _: 1.0)
SAMPLERS = {
    "together": Sampler(lambda state: max(state.batches.values()), together),
    "in-turn": Sampler(lambda state: sum(state.batches.values()), in_turn),
    "round-robin": Sampler(rounds, round_robin),
    "random": drawn_by(lambda _: 0.0),
    "proportional": BY_SIZE,
    "sqrt": drawn_by(lambda _: 0.5),
    "temperature": drawn_by(lambda training: 1.0 / training.temperature),
    "mixed": Sampler(union_pass, mixed),
    "annealed": Sampler(BY_SIZE.epoch, annealed),
    "staggered": Sampler(rounds, staggered),
}
