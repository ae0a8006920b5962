"""Samplers: which task comes next. Each is an endless stream of steps."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count, cycle
from typing import NamedTuple

import numpy as np

from mops.config.training import Training

Step = Mapping[str, int]  # task -> rows


class SamplerState:
    """The tasks that are trained in the order of the recipe, and which may still get a batch."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        training: Training,
        draw: np.random.Generator,
        leaders: Mapping[str, str],
    ):
        self.training, self.draw = training, draw
        self.sizes = {t: n for t, n in sizes.items() if t in (training.train_tasks or sizes)}
        self.batch_sizes = {task: training.batch_size(task) for task in self.sizes}
        # batches in one pass over each task
        self.batches = {t: math.ceil(n / self.batch_sizes[t]) for t, n in self.sizes.items()}
        units: dict[str, list[str]] = {}  # tasks on the same rows
        for task in self.sizes:
            units.setdefault(leaders[task], []).append(task)
        self.units = list(units.values())
        self.largest = max(self.sizes, key=self.sizes.__getitem__)
        self.open = list(self.sizes)  # a task is removed when its own budget is spent
        self.cache: dict[tuple[str, ...], Step] = {}
        # Steps of an epoch: the given number, or a pass over the largest task that is trained.
        self.epoch = training.steps_per_epoch or SAMPLERS[training.schedule].epoch(self)
        self.total = training.max_steps or max(1, round(training.num_train_epochs * self.epoch))

    def step(self, *tasks: str) -> Step:
        """A batch of each task; equal steps are the same object."""
        return self.cache.setdefault(tasks, {task: self.batch_sizes[task] for task in tasks})

    def open_of(self, tasks: Sequence[str]) -> list[str]:
        return [task for task in tasks if task in self.open]

    def take_steps(self, budget: dict[str, int]) -> Iterator[Step]:
        """All steps; `budget` counts down, and a task that has spent its own is closed."""
        self.open = [task for task in self.open if budget.get(task, 1) > 0]
        steps = SAMPLERS[self.training.schedule].steps(self)
        for _ in range(self.total):
            if not self.open:
                return
            step = next(steps)
            for task in budget.keys() & step.keys():
                budget[task] -= 1
                if budget[task] == 0:
                    self.open.remove(task)
            yield step


class Sampler(NamedTuple):
    """One way to choose the next task."""

    epoch: Callable[[SamplerState], int]  # steps in which the largest task has one pass
    steps: Callable[[SamplerState], Iterator[Step]]


def together(state: SamplerState) -> Iterator[Step]:
    """A batch of every task in each step."""
    while True:
        yield state.step(*state.open)


def in_turn(state: SamplerState) -> Iterator[Step]:
    """One task's pass after the other; a shorter epoch shortens all passes in proportion."""
    while True:
        batches = {task: n for task, n in state.batches.items() if task in state.open}
        ends = np.round(np.cumsum(list(batches.values())) * state.epoch / sum(batches.values()))
        counts = np.diff(ends.astype(int), prepend=0)
        for task, times in zip(batches, counts.tolist(), strict=True):
            yield from (state.step(task) for _ in range(times) if task in state.open)


def round_robin(state: SamplerState) -> Iterator[Step]:
    """One task per step, in turn."""
    yield from (state.step(task) for task in cycle(state.sizes) if task in state.open)


def staggered(state: SamplerState) -> Iterator[Step]:
    """The largest task alone for a fraction of the steps, then all tasks in turn.

    From a CS224N report of 2024: two epochs of Quora alone, then round robin.
    """
    for _ in range(round(state.training.staggered_share * state.total)):
        if state.largest in state.open:
            yield state.step(state.largest)
    yield from round_robin(state)


@lru_cache
def probabilities(sizes: tuple[int, ...], power: float) -> list[float]:
    """p_i = N_i^power / sum_j N_j^power, with N_i training rows of task i."""
    weights = [float(n) ** power for n in sizes]
    return [weight / sum(weights) for weight in weights]


def draw_tasks(state: SamplerState, power: Callable[[int], float]) -> Iterator[Step]:
    """One task per step, drawn among the open ones; the power may change with the step."""
    for number in count():
        chances = probabilities(tuple(state.sizes[task] for task in state.open), power(number))
        place = bisect_right(list(accumulate(chances)), state.draw.random())
        yield state.step(state.open[min(place, len(chances) - 1)])  # the last edge is rounded


def drawn_by(power: Callable[[Training], float]) -> Sampler:
    """Tasks drawn with p_i proportional to N_i^power; an epoch expects a pass of the largest."""

    def epoch(state: SamplerState) -> int:
        batches = state.sizes[state.largest] / state.batch_sizes[state.largest]
        chances = probabilities(tuple(state.sizes.values()), power(state.training))
        return math.ceil(round(batches / max(chances), 6))

    return Sampler(epoch, lambda state: draw_tasks(state, lambda _: power(state.training)))


def annealed(state: SamplerState) -> Iterator[Step]:
    """By size at first, nearly uniformly at the end (Stickland and Murray 2019, section 4).

    alpha = 1 - 0.8 (e - 1) / (E - 1) in epoch e of E. An epoch that the budget cuts short counts
    as one of the E; a single one has alpha 1.
    """
    later_epochs = max(1, math.ceil(state.total / state.epoch) - 1)
    return draw_tasks(state, lambda step: 1.0 - 0.8 * (step // state.epoch) / later_epochs)


def mixed(state: SamplerState) -> Iterator[Step]:
    """Batches from one shuffled pass after the other over the rows of all tasks.

    Tasks on the same rows take them together. Only the order of the tasks is drawn here. Each
    task's own rows are shuffled separately; the combination is a uniform shuffle of the union.
    """
    units, width = state.units, mixed_width(state)
    queue, live = np.zeros(0, np.int64), list(range(len(units)))
    while True:
        if any(not state.open_of(units[i]) for i in live):
            live = [i for i in live if state.open_of(units[i])]
            queue = queue[np.isin(queue, live)]
        while len(queue) < width:
            union = np.repeat(live, [state.sizes[units[i][0]] for i in live])
            queue = np.concatenate([queue, state.draw.permutation(union)])
        counts = np.bincount(queue[:width], minlength=len(units)).tolist()
        queue = queue[width:]
        steps = zip(units, counts, strict=True)
        yield {task: rows for unit, rows in steps if rows for task in state.open_of(unit)}


def mixed_width(state: SamplerState) -> int:
    """The rows of a step; those that several tasks read count once."""
    return sum(state.batch_sizes[unit[0]] for unit in state.units)


BY_SIZE = drawn_by(lambda _: 1.0)
ROUND_ROBIN = Sampler(lambda state: len(state.sizes) * max(state.batches.values()), round_robin)
SAMPLERS = {
    "together": Sampler(lambda state: max(state.batches.values()), together),
    "in-turn": Sampler(lambda state: sum(state.batches.values()), in_turn),
    "round-robin": ROUND_ROBIN,
    "random": drawn_by(lambda _: 0.0),
    "proportional": BY_SIZE,
    "sqrt": drawn_by(lambda _: 0.5),
    "temperature": drawn_by(lambda training: 1.0 / training.temperature),
    "mixed": Sampler(
        lambda state: math.ceil(
            sum(state.sizes[unit[0]] for unit in state.units) / mixed_width(state)
        ),
        mixed,
    ),
    "annealed": Sampler(BY_SIZE.epoch, annealed),
    "staggered": Sampler(ROUND_ROBIN.epoch, staggered),
}
