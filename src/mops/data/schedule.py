"""The schedule: which task comes next, and which of its rows. A pure function of the recipe.

The whole schedule is known before the first step, so planned and realised numbers are the same,
and a resumed run needs only the number of its step.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.config.training import Training
from mops.data.samplers import SAMPLERS, SamplerState, Step
from mops.plans.layout import Layout
from mops.record import TaskBudget


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
    sizes: Mapping[str, int]
    batch_sizes: Mapping[str, int]
    seed: int
    stages: tuple[PlannedStage, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def places(self, task: str, seen: int, rows: int) -> list[Place]:
        """The rows after the first `seen` ones: shuffled passes, one after the other."""
        size = self.sizes[task]
        numbers = (divmod(place, size) for place in range(seen, seen + rows))
        return [Place(int(shuffled(size, self.seed, task, n)[at]), n) for n, at in numbers]

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
        return {task: int(counts[step]) for task, counts in self._cumulative_rows.items()}

    @cached_property
    def _cumulative_rows(self) -> dict[str, NDArray[np.int64]]:
        rows = {task: [0, *(step.get(task, 0) for step in self.steps)] for task in self.sizes}
        return {task: np.cumsum(counts) for task, counts in rows.items()}

    def scale(self, step: int) -> dict[str, float]:
        """Task -> its rows in a step divided by its batch size: every row has the same weight."""
        return {task: rows / self.batch_sizes[task] for task, rows in self.steps[step].items()}

    def stage_at(self, step: int) -> PlannedStage:
        """The stage that a step belongs to; the last one after the end."""
        return next((stage for stage in self.stages if step < stage.stop), self.stages[-1])

    def nth_batches(self, stage: PlannedStage, n: int) -> dict[int, tuple[str, ...]]:
        """Step -> the tasks that have their n-th batch of the stage there."""
        counts: Counter[str] = Counter()
        due: dict[int, tuple[str, ...]] = {}
        for step in range(stage.first, stage.stop):
            counts.update(self.steps[step].keys())
            if tasks := tuple(task for task in self.steps[step] if counts[task] == n):
                due[step] = tasks
        return due


@lru_cache(maxsize=64)
def shuffled(size: int, seed: int, task: str, number: int) -> NDArray[np.int64]:
    """The order of a task's rows in its pass number `number`."""
    return generator(seed, task, str(number)).permutation(size)


def generator(seed: int, *names: str) -> np.random.Generator:
    """A generator that depends on the seed and on what it is used for."""
    digest = hashlib.sha256("/".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def plan_steps(sizes: Mapping[str, int], training: Training) -> Schedule:
    """The order of tasks over the whole budget, stage after stage."""
    budget = dict(training.task_steps)
    steps: list[Step] = []
    stages: list[PlannedStage] = []
    for number, stage in enumerate(training.stages or (None,)):
        settings = training.in_stage(stage) if stage else training
        draw = generator(training.seed, "schedule", *([str(number)] if number else []))
        first = len(steps)
        steps += sample_steps(SamplerState(sizes, settings, draw), budget)
        stages.append(PlannedStage(first, len(steps), settings, bool(stage and stage.frozen)))
    return Schedule(
        steps=tuple(steps),
        steps_per_epoch=SamplerState(sizes, training, generator(training.seed)).epoch,
        sizes=dict(sizes),
        batch_sizes={task: training.batch_size(task) for task in sizes},
        seed=training.seed,
        stages=tuple(stages),
    )


def sample_steps(state: SamplerState, budget: dict[str, int]) -> Iterator[Step]:
    """The steps of a stage; `budget` counts down, and a task that has spent its own is closed."""
    state.open = [task for task in state.open if budget.get(task, 1) > 0]
    steps = SAMPLERS[state.training.schedule].steps(state)
    for _ in range(state.total):
        if not state.open:
            return
        step = next(steps)
        for task in budget.keys() & step.keys():
            budget[task] -= 1
            if budget[task] == 0:
                state.open.remove(task)
        yield step


# ------------------------------------------------------------------ the budget of each task

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


# ------------------------------------------------------------------ trained weights


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
