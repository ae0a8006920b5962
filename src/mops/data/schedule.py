"""The schedule: which task comes next, and which of its rows. A pure function of the recipe.

The whole order is known before the first step, so expected and realised numbers are the same, and
a resumed run needs only the number of its step.

What a schedule gives each task, whether that is too little or too much, and what learns.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.config.training import Training
from mops.data.samplers import SAMPLERS, SamplerState, Step
from mops.plans.layout import Layout


class Place(NamedTuple):
    """One row of a task in one of its passes."""

    row: int
    number: int  # of the pass


@dataclass(frozen=True)
class PlannedStage:
    """A stage as it lies in the schedule: its steps, and the settings that hold in it."""

    first: int
    stop: int  # one past its last step
    training: Training
    is_frozen: bool = False

    def __len__(self) -> int:
        return self.stop - self.first

    def rates(self, layout: Layout) -> Mapping[str, float]:
        """Owner -> factor on its learning rate in this stage; 0 = frozen."""
        return layout.frozen_rates if self.is_frozen else layout.rates


@dataclass(frozen=True)
class Schedule:
    """For each step the tasks in it with their numbers of rows, and each task's rows in order."""

    steps: tuple[Step, ...]
    steps_per_epoch: int
    sizes: Mapping[str, int]
    batch_sizes: Mapping[str, int]
    seed: int
    stages: tuple[PlannedStage, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def places(self, task: str, seen: int, rows: int) -> list[Place]:
        """The rows that follow the first `seen` ones: shuffled passes, one after the other."""
        size = self.sizes[task]
        found = []
        for place in range(seen, seen + rows):
            number, at = divmod(place, size)
            found.append(Place(int(shuffled(size, self.seed, task, number)[at]), number))
        return found

    def batches_before(self, step: int) -> dict[str, int]:
        """How many batches each task has had before a step."""
        counts = Counter(task for tasks in self.steps[:step] for task in tasks)
        return {task: counts[task] for task in self.sizes}

    def rows_before(self, step: int) -> dict[str, int]:
        """How many rows each task has had before a step."""
        return {task: int(counts[step]) for task, counts in self.rows_so_far.items()}

    @cached_property
    def rows_so_far(self) -> dict[str, NDArray[np.int64]]:
        """Task -> its rows before each step, and before the end."""
        rows = {task: [0, *(step.get(task, 0) for step in self.steps)] for task in self.sizes}
        return {task: np.cumsum(counts) for task, counts in rows.items()}

    def scale(self, step: int) -> dict[str, float]:
        """Rows of each task in a step, in usual batches of the task: each row counts as there."""
        return {task: rows / self.batch_sizes[task] for task, rows in self.steps[step].items()}

    def stage_at(self, step: int) -> PlannedStage:
        """The stage that a step belongs to; the last one after the end."""
        return next((stage for stage in self.stages if step < stage.stop), self.stages[-1])

    def nth_batches(self, stage: PlannedStage, n: int) -> dict[int, tuple[str, ...]]:
        """Step -> the tasks that have their n-th batch of the stage there."""
        counts: Counter[str] = Counter()
        found: dict[int, tuple[str, ...]] = {}
        for step in range(stage.first, stage.stop):
            counts.update(self.steps[step].keys())
            if due := tuple(task for task in self.steps[step] if counts[task] == n):
                found[step] = due
        return found


@lru_cache(maxsize=64)
def shuffled(size: int, seed: int, task: str, number: int) -> NDArray[np.int64]:
    """The order of a task's rows in its pass number `number`."""
    return generator(seed, task, str(number)).permutation(size)


def generator(seed: int, *names: str) -> np.random.Generator:
    digest = hashlib.sha256("/".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def plan_steps(sizes: Mapping[str, int], training: Training) -> Schedule:
    """The order of tasks over the whole budget, stage after stage."""
    budget = dict(training.task_steps)
    steps: list[Step] = []
    planned: list[PlannedStage] = []
    for number, stage in enumerate(training.stages or (None,)):
        how = training.in_stage(stage) if stage else training
        state = sampler_state(sizes, how, "schedule", *([str(number)] if number else []))
        first = len(steps)
        steps += walk(state, budget)
        planned.append(PlannedStage(first, len(steps), how, bool(stage and stage.frozen)))
    return Schedule(
        steps=tuple(steps),
        steps_per_epoch=epoch_steps(sampler_state(sizes, training)),
        sizes=dict(sizes),
        batch_sizes={task: training.batch_size(task) for task in sizes},
        seed=training.seed,
        stages=tuple(planned),
    )


def sampler_state(sizes: Mapping[str, int], training: Training, *names: str) -> SamplerState:
    """The tasks that learn, in the order of the recipe."""
    learning = [task for task in sizes if task in (training.train_tasks or sizes)]
    return SamplerState(
        sizes={task: sizes[task] for task in learning},
        batch_sizes={task: training.batch_size(task) for task in learning},
        training=training,
        draw=generator(training.seed, *names),
        open=learning,
    )


def walk(state: SamplerState, budget: dict[str, int]) -> Iterator[Step]:
    """The steps of a stage; `budget` counts down, and a task that has spent its own is closed."""
    epoch, training = epoch_steps(state), state.training
    total = training.max_steps or max(1, round(training.num_train_epochs * epoch))
    state.open = [task for task in state.open if budget.get(task, 1) > 0]
    steps = SAMPLERS[training.schedule].steps(state, epoch, total)
    for _ in range(total):
        if not state.open:
            return
        step = next(steps)
        for task in budget.keys() & step.keys():
            budget[task] -= 1
            if budget[task] == 0:
                state.open.remove(task)
        yield step


def epoch_steps(state: SamplerState) -> int:
    """Steps of an epoch: those that are given, or a pass over the largest task that learns."""
    return state.training.steps_per_epoch or SAMPLERS[state.training.schedule].epoch(state)


# A task that saw neither half of its rows nor this many batches has hardly begun.
FEW_PASSES, FEW_BATCHES = 0.5, 50
# Small sets repeated beside a large one: 16 passes and more were seen to overfit.
MANY_PASSES = 20


@dataclass(frozen=True)
class Share:
    """One task's part of a run."""

    rows: int  # of its training split
    batches: int
    examples: int  # rows seen, each as often as it was
    passes: float


def shares(schedule: Schedule, step: int | None = None) -> dict[str, Share]:
    """The part of each task in the steps before `step`, or in all of them."""
    stop = len(schedule) if step is None else step
    batches, seen = schedule.batches_before(stop), schedule.rows_before(stop)
    return {
        task: Share(size, batches[task], seen[task], seen[task] / size)
        for task, size in schedule.sizes.items()
    }


def doubts(schedule: Schedule, training: Training) -> dict[str, str]:
    """Task -> what is wrong with its planned part; tasks that are left out on purpose are not."""
    found = {}
    for task, share in shares(schedule).items():
        if training.learns(task) and (doubt := doubt_of(share)):
            found[task] = f"{task}: {doubt}"
    return found


def doubt_of(share: Share) -> str:
    if share.batches == 0:
        return "no step is planned for it; raise the budget or choose another training.schedule"
    if share.passes < FEW_PASSES and share.batches < FEW_BATCHES:
        return (
            f"only {count(share.batches, 'batch', 'batches')} planned, {share.passes:.2f} passes "
            f"over its {share.rows:,} rows; raise the budget or choose another training.schedule"
        )
    if share.passes > MANY_PASSES:
        return (
            f"{share.passes:.1f} passes planned over its {share.rows:,} rows, more than "
            f"{MANY_PASSES}; it may be learnt by heart: limit it with training.task_steps"
        )
    return ""


def count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


# ------------------------------------------------------------------ what learns


def trained_parameters(layout: Layout, schedule: Schedule) -> int:
    """Weights that learn in any stage."""
    learning = {
        owner for stage in schedule.stages for owner in learning_in(layout, schedule, stage)
    }
    return sum(layout.sizes[owner] for owner in learning)


def learning_in(layout: Layout, schedule: Schedule, stage: PlannedStage) -> list[str]:
    """The owners whose rate is above 0 and that a task teaches in a stage."""
    before, after = schedule.batches_before(stage.first), schedule.batches_before(stage.stop)
    teaching = {t for t in layout.tasks if after[t] > before[t] and stage.training.weight(t) > 0}
    return [
        owner
        for owner, rate in stage.rates(layout).items()
        if rate > 0 and teaching & set(layout.trained_by[owner])
    ]
