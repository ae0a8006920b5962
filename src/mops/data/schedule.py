"""The schedule: which task comes next, and which of its rows. A pure function of the recipe.

The whole schedule is known before the first step, so planned and realised numbers are the same,
and a resumed run needs only the number of its step. Samplers choose the next task; each is an
endless stream of steps.
"""

import hashlib
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, count, cycle
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.config.training import Training
from mops.data.dataset import FileRows
from mops.plans.layout import Layout
from mops.record import TaskBudget

Step = Mapping[str, int]  # task -> rows
Files = tuple[FileRows, ...]  # the training files of a task


class Place(NamedTuple):
    """One row of a task in one of the passes over the task."""

    row: int
    number: int  # of the pass


@dataclass(frozen=True)
class PlannedStage:
    """A stage of the schedule: its steps, and the settings that hold in it."""

    first: int
    stop: int  # one past its last step
    training: Training
    is_frozen: bool = False
    counted_from: int = 0  # the step that is number 0 for seeds, evaluations and the curve

    def __len__(self) -> int:
        return self.stop - self.first

    def eval_interval(self, epoch: int) -> int:
        """Steps between evaluations, `epoch` where the recipe does not say."""
        given = self.training.eval_steps or epoch
        return max(1, round(given * len(self))) if given < 1 else int(given)

    def rates(self, layout: Layout) -> Mapping[str, float]:
        """Owner -> factor on its learning rate in this stage; 0 = frozen."""
        return layout.frozen_rates if self.is_frozen else layout.rates

    def number(self, step: int) -> int:
        return step - self.counted_from


@dataclass(frozen=True)
class Schedule:
    """For each step the number of rows of its tasks, and the order of each task's rows."""

    steps: tuple[Step, ...]
    steps_per_epoch: int
    files: Mapping[str, Files]  # of each task
    batch_sizes: Mapping[str, int]
    seed: int
    stages: tuple[PlannedStage, ...]

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Task -> rows of a pass."""
        return {task: pass_size(files) for task, files in self.files.items()}

    def pass_rows(self, task: str, number: int) -> NDArray[np.int64]:
        """The rows of a task in one of its passes, in their order."""
        return shuffled(self.files[task], self.seed, task, number)

    def places(self, task: str, seen: int, rows: int) -> list[Place]:
        """The rows after the first `seen` ones: shuffled passes, one after the other."""
        numbers = (divmod(place, self.sizes[task]) for place in range(seen, seen + rows))
        return [Place(int(self.pass_rows(task, n)[at]), n) for n, at in numbers]

    def rows_at(self, step: int, tasks: Iterable[str] | None = None) -> dict[str, list[Place]]:
        """The rows that each task of a step takes, or that some of them take."""
        before, counts = self.rows_before(step), self.steps[step]
        chosen = counts if tasks is None else tasks
        return {task: self.places(task, before[task], counts[task]) for task in chosen}

    def batches_before(self, step: int) -> dict[str, int]:
        """Task -> its number of batches before a step."""
        return {task: sum(task in tasks for tasks in self.steps[:step]) for task in self.sizes}

    def rows_before(self, step: int) -> dict[str, int]:
        """Task -> its number of rows before a step."""
        return {task: counts[step] for task, counts in self._cumulative_rows.items()}

    @cached_property
    def _cumulative_rows(self) -> dict[str, list[int]]:
        return {
            task: list(accumulate((step.get(task, 0) for step in self.steps), initial=0))
            for task in self.sizes
        }

    def scale(self, step: int) -> dict[str, float]:
        """Task -> its rows in a step divided by its batch size: every row has the same weight."""
        return {task: rows / self.batch_sizes[task] for task, rows in self.steps[step].items()}

    def stage_at(self, step: int) -> PlannedStage:
        """The stage that a step belongs to; the last one after the end."""
        return next((stage for stage in self.stages if step < stage.stop), self.stages[-1])

    def nth_batches(self, stage: PlannedStage, n: int) -> dict[int, tuple[str, ...]]:
        """Step -> the tasks that have their n-th batch of the stage there."""
        counts: Counter[str] = Counter()
        due = {}
        for step in range(stage.first, stage.stop):
            counts.update(self.steps[step].keys())
            due[step] = tuple(task for task in self.steps[step] if counts[task] == n)
        return {step: tasks for step, tasks in due.items() if tasks}


def pass_size(files: Files) -> int:
    """The rows of a pass over a task with these training files."""
    return sum(file.in_pass for file in files)


@lru_cache(maxsize=64)
def shuffled(files: Files, seed: int, task: str, number: int) -> NDArray[np.int64]:
    """The rows of a task in its pass number `number`: of each file a part, all of them shuffled."""
    starts = accumulate((file.rows for file in files), initial=0)
    parts = [
        start + part_of_file(file, number, f"{seed}/{task}/file {n}")
        for n, (file, start) in enumerate(zip(files, starts, strict=False))
    ]
    return np.concatenate(parts)[generator(seed, task, str(number)).permutation(pass_size(files))]


def part_of_file(file: FileRows, number: int, name: str) -> NDArray[np.int64]:
    """The rows of a file in a pass: all of them as often as a whole number says, and a rest, the
    next rows of endless shuffled rounds over the file.
    """
    times, rest = divmod(file.in_pass, file.rows)
    first, begun = divmod(number * rest, file.rows)
    whole = np.tile(np.arange(file.rows), times)
    if not rest:
        return whole
    rounds = [generator(n, name).permutation(file.rows) for n in (first, first + 1)]
    return np.concatenate([whole, np.concatenate(rounds)[begun : begun + rest]])


def generator(seed: int, *names: str) -> np.random.Generator:
    """A generator that depends on the seed and on what it is used for."""
    digest = hashlib.sha256("/".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def plan_steps(rows: Mapping[str, int | Files], training: Training) -> Schedule:
    """The order of tasks over the whole budget, stage after stage.

    `rows` are the number of training rows of each task, or its training files.
    """
    files = {task: (FileRows(own),) if isinstance(own, int) else own for task, own in rows.items()}
    sizes = {task: pass_size(own) for task, own in files.items()}
    budget = dict(training.task_steps)
    steps: list[Step] = []
    stages: list[PlannedStage] = []
    for number, stage in enumerate(training.stages or (None,)):
        settings = training.in_stage(stage) if stage else training
        draw = generator(training.seed, "schedule", *([str(number)] if number else []))
        first = len(steps)
        steps += SamplerState(sizes, settings, draw).take_steps(budget)
        stages.append(PlannedStage(first, len(steps), settings, bool(stage and stage.frozen)))
    return Schedule(
        steps=tuple(steps),
        steps_per_epoch=SamplerState(sizes, training, generator(training.seed)).epoch,
        files=files,
        batch_sizes={task: training.batch_size(task) for task in sizes},
        seed=training.seed,
        stages=tuple(stages),
    )


class SamplerState:
    """The tasks that are trained in the order of the recipe, and which may still get a batch."""

    def __init__(self, sizes: Mapping[str, int], training: Training, draw: np.random.Generator):
        self.training, self.draw = training, draw
        self.sizes = {t: n for t, n in sizes.items() if t in (training.train_tasks or sizes)}
        self.batch_sizes = {task: training.batch_size(task) for task in self.sizes}
        # batches in one pass over each task
        self.batches = {t: math.ceil(n / self.batch_sizes[t]) for t, n in self.sizes.items()}
        self.largest = max(self.sizes, key=self.sizes.__getitem__)
        self.open = list(self.sizes)  # a task is removed when its own budget is spent
        self.cache: dict[tuple[str, ...], Step] = {}
        # Steps of an epoch: the given number, or a pass over the largest task that is trained.
        self.epoch = training.steps_per_epoch or SAMPLERS[training.schedule].epoch(self)
        self.total = training.max_steps or max(1, round(training.num_train_epochs * self.epoch))

    def step(self, *tasks: str) -> Step:
        """A batch of each task; equal steps are the same object."""
        return self.cache.setdefault(tasks, {task: self.batch_sizes[task] for task in tasks})

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
        lambda state: math.ceil(sum(state.sizes.values()) / sum(state.batch_sizes.values())), mixed
    ),
    "annealed": Sampler(BY_SIZE.epoch, annealed),
    "staggered": Sampler(ROUND_ROBIN.epoch, staggered),
}


FEW_PASSES, FEW_BATCHES = 0.5, 50  # a task below both of them has hardly begun
MANY_PASSES = 20  # small sets repeated beside a large one: 16 and more were seen to overfit


def task_budgets(schedule: Schedule, step: int | None = None) -> dict[str, TaskBudget]:
    """The part of each task in the steps before `step`, or in all of them."""
    stop = len(schedule) if step is None else step
    batches, seen = schedule.batches_before(stop), schedule.rows_before(stop)
    return {
        task: TaskBudget(size, batches[task], seen[task], seen[task] / size)
        for task, size in schedule.sizes.items()
    }


def schedule_warnings(schedule: Schedule, training: Training) -> dict[str, str]:
    """Task -> a warning about its budget; tasks that are left out on purpose have none."""
    warnings, more = {}, "raise the budget or choose another training.schedule"
    for task, budget in task_budgets(schedule).items():
        passes, batches = budget.passes, budget.batches
        if not training.learns(task):
            continue
        if batches == 0:
            warnings[task] = f"{task}: no step is planned for it; {more}"
        elif passes < FEW_PASSES and batches < FEW_BATCHES:
            warnings[task] = (
                f"{task}: only {batches} batch{'es' if batches > 1 else ''} planned, "
                f"{passes:.2f} passes over its {budget.rows:,} rows; {more}"
            )
        elif passes > MANY_PASSES:
            warnings[task] = (
                f"{task}: {passes:.1f} passes planned over its {budget.rows:,} rows, more than "
                f"{MANY_PASSES}; it may overfit: limit it with training.task_steps"
            )
    return warnings


def trained_parameters(layout: Layout, schedule: Schedule) -> int:
    """The number of weights that are trained in any stage."""
    trained = {owner for stage in schedule.stages for owner in learning_in(layout, schedule, stage)}
    return sum(layout.sizes[owner] for owner in trained)


def learning_in(layout: Layout, schedule: Schedule, stage: PlannedStage) -> list[str]:
    """The owners that are not frozen in a stage and that one of its tasks trains."""
    before, after = schedule.batches_before(stage.first), schedule.batches_before(stage.stop)
    tasks = {t for t in layout.tasks if after[t] > before[t] and stage.training.weight(t) > 0}
    return [
        owner
        for owner, rate in stage.rates(layout).items()
        if rate > 0 and tasks & set(layout.trained_by[owner])
    ]
