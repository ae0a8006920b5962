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
class SamplerState:
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
class Sampler:
    """One way to choose the next task."""

    epoch: Callable[[SamplerState], int]  # steps in which the largest task has one pass
    steps: Callable[[SamplerState, int, int], Iterator[Step]]  # of an epoch's length and all steps


# ------------------------------------------------------------------ without chance


def together(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """A batch of every task in each step."""
    while True:
        yield state.step(*state.open)


def in_turn(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """One task's pass after the other; a shorter epoch gives each its share of it."""
    while True:
        batches = {task: n for task, n in state.batches.items() if task in state.open}
        ends = np.round(np.cumsum(list(batches.values())) * epoch / sum(batches.values()))
        counts = np.diff(ends.astype(int), prepend=0)
        for task, times in zip(batches, counts.tolist(), strict=True):
            yield from (state.step(task) for _ in range(times) if task in state.open)


def round_robin(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """One task per step, each after the other."""
    for task in cycle(state.sizes):
        if task in state.open:
            yield state.step(task)


def staggered(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """The largest set alone for a share of the steps, then all tasks in a round.

    From a CS224N report of 2024: two epochs of Quora alone, then round robin.
    """
    largest = max(state.sizes, key=lambda task: state.sizes[task])
    for _ in range(round(state.training.staggered_share * total)):
        if largest in state.open:
            yield state.step(largest)
    yield from round_robin(state, epoch, total)


# ------------------------------------------------------------------ drawn


def chances(sizes: Mapping[str, int], power: float) -> dict[str, float]:
    """p_i = N_i^power / sum_j N_j^power."""
    weights = {task: float(n) ** power for task, n in sizes.items()}
    return {task: weight / sum(weights.values()) for task, weight in weights.items()}


def draw_tasks(state: SamplerState, power: Callable[[int], float]) -> Iterator[Step]:
    """One task per step, drawn among those that are open; the power may change with the step."""
    edges: dict[tuple[float, tuple[str, ...]], list[float]] = {}
    for number in count():
        names, now = tuple(state.open), power(number)
        if (now, names) not in edges:
            found = chances({task: state.sizes[task] for task in names}, now)
            edges[now, names] = np.cumsum(list(found.values())).tolist()
        place = int(np.searchsorted(edges[now, names], state.draw.random(), side="right"))
        yield state.step(names[min(place, len(names) - 1)])  # the last edge may be rounded down


def drawn_by(power: Callable[[Training], float]) -> Sampler:
    """Tasks drawn with p_i in proportion to N_i^power; an epoch expects a pass of the largest."""

    def epoch(state: SamplerState) -> int:
        found, size = chances(state.sizes, power(state.training)), state.sizes
        largest = max(size, key=lambda task: size[task])
        return math.ceil(round(size[largest] / state.batch_sizes[largest] / found[largest], 6))

    def steps(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
        now = power(state.training)
        return draw_tasks(state, lambda _: now)

    return Sampler(epoch=epoch, steps=steps)


def annealed_power(step: int, epoch: int, total: int) -> float:
    """alpha = 1 - 0.8 (e - 1) / (E - 1) in epoch e of E (Stickland and Murray 2019, section 4).

    An epoch that the budget cuts short counts as one of the E; a single one has alpha 1.
    """
    epochs = math.ceil(total / epoch)
    return 1.0 - 0.8 * (step // epoch) / max(1, epochs - 1)


def annealed(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """By size at first, nearly evenly at last."""
    return draw_tasks(state, lambda step: annealed_power(step, epoch, total))


def mixed(state: SamplerState, epoch: int, total: int) -> Iterator[Step]:
    """Batches out of one shuffled pass after the other over the rows of all tasks together.

    Only the order of the tasks is drawn here. Each task's own rows are shuffled by themselves,
    which together is a uniform shuffle of the union.
    """
    names, width = list(state.sizes), sum(state.batch_sizes[task] for task in state.sizes)
    left, live = np.zeros(0, np.int64), list(range(len(names)))
    while True:
        if len(state.open) < len(live):
            live = [i for i in live if names[i] in state.open]
            left = left[np.isin(left, live)]
        while len(left) < width:
            union = np.repeat(live, [state.sizes[names[i]] for i in live])
            left = np.concatenate([left, state.draw.permutation(union)])
        counts = np.bincount(left[:width], minlength=len(names)).tolist()
        left = left[width:]
        yield {task: rows for task, rows in zip(names, counts, strict=True) if rows}


# ------------------------------------------------------------------ the table


def longest_pass(state: SamplerState) -> int:
    return max(state.batches.values())


def pass_of_each(state: SamplerState) -> int:
    return sum(state.batches.values())


def rounds(state: SamplerState) -> int:
    return len(state.sizes) * longest_pass(state)


def pass_of_the_union(state: SamplerState) -> int:
    width = sum(state.batch_sizes[task] for task in state.sizes)
    return math.ceil(sum(state.sizes.values()) / width)


BY_SIZE = drawn_by(lambda _: 1.0)
SAMPLERS = {
    "together": Sampler(epoch=longest_pass, steps=together),
    "in-turn": Sampler(epoch=pass_of_each, steps=in_turn),
    "round-robin": Sampler(epoch=rounds, steps=round_robin),
    "random": drawn_by(lambda _: 0.0),
    "proportional": BY_SIZE,
    "sqrt": drawn_by(lambda _: 0.5),
    "temperature": drawn_by(lambda training: 1.0 / training.temperature),
    "mixed": Sampler(epoch=pass_of_the_union, steps=mixed),
    "annealed": Sampler(epoch=BY_SIZE.epoch, steps=annealed),
    "staggered": Sampler(epoch=rounds, steps=staggered),
}
