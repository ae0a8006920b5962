"""The schedule: which task comes next, and which of its rows. A pure function of the recipe.

The whole schedule is known before the first step, so planned and realised numbers are the same,
and a resumed run needs only the number of its step.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.config.training import MOST_STEPS, Training
from mops.data.dataset import FileRows
from mops.data.samplers import SamplerState, Step
from mops.errors import RecipeError
from mops.plans.layout import Layout
from mops.record import LEAST_BATCHES, LEAST_PASSES, LEAST_ROWS, TaskBudget

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

    def __len__(self) -> int:
        return self.stop - self.first

    def eval_interval(self, epoch: int) -> int:
        """Steps between evaluations, `epoch` where the recipe does not say."""
        given = self.training.eval_steps or epoch
        return math.ceil(round(given * len(self), 6)) if given < 1 else int(given)

    def rates(self, layout: Layout) -> Mapping[str, float]:
        """Owner -> factor on its learning rate in this stage; 0 = frozen."""
        return layout.frozen_rates if self.is_frozen else layout.rates


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

    @property
    def evaluations(self) -> int:
        """At every interval, and at the end of each stage."""
        spans = [(stage, stage.eval_interval(self.steps_per_epoch)) for stage in self.stages]
        return sum(math.ceil(stage.stop / every) - stage.first // every for stage, every in spans)

    def pass_rows(self, task: str, number: int) -> NDArray[np.int64]:
        """The rows of a task in one of its passes, in their order."""
        files = self.files[task]
        return shuffled(files, self.seed, files[0].leader or task, number)

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
    leaders = {task: own[0].leader or task for task, own in files.items()}
    budget = dict(training.task_steps)
    steps: list[Step] = []
    stages: list[PlannedStage] = []
    for number, stage in enumerate(training.stages or (None,)):
        settings = training.in_stage(stage) if stage else training
        draw = generator(training.seed, "schedule", *([str(number)] if number else []))
        first, state = len(steps), SamplerState(sizes, settings, draw, leaders)
        if first + state.total > MOST_STEPS:
            raise RecipeError(
                f"the recipe has {first + state.total:,} steps or more; allowed: {MOST_STEPS:,}; "
                "lower training.max_steps, training.num_train_epochs or the steps of its stages"
            )
        steps += state.take_steps(budget)
        stages.append(PlannedStage(first, len(steps), settings, bool(stage and stage.frozen)))
    return Schedule(
        steps=tuple(steps),
        steps_per_epoch=SamplerState(sizes, training, generator(training.seed), leaders).epoch,
        files=files,
        batch_sizes={task: training.batch_size(task) for task in sizes},
        seed=training.seed,
        stages=tuple(stages),
    )


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
        elif budget.is_starved:
            warnings[task] = (
                f"{task}: only {batches:,} batch{'es' if batches > 1 else ''} planned, "
                f"{passes:.2f} passes over its {budget.rows:,} rows: below {LEAST_PASSES:g} "
                f"passes and {LEAST_ROWS:,} rows (or {LEAST_BATCHES} batches); {more}"
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
    tasks = {t for t in after if after[t] > before[t] and stage.training.weight(t) > 0}
    return [
        owner
        for owner, rate in stage.rates(layout).items()
        if rate > 0 and tasks & set(layout.trained_by[owner])
    ]
