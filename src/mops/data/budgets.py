"""What a schedule gives each task, whether that is too little or too much, and what learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mops.data.schedule import PlannedStage, Schedule
from mops.layout import Layout, lay_out
from mops.parsing import frozen
from mops.settings import Training

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


def rates_in(layout: Layout, stage: PlannedStage) -> Mapping[str, float]:
    """Owner -> factor on its rate: the plan's, or that of the plan after `frozen+`."""
    if not stage.is_frozen:
        return layout.rates
    tasks = list(layout.tasks.values())
    return lay_out(frozen(layout.plan), tasks, layout.encoder, layout.reading).rates


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
        for owner, rate in rates_in(layout, stage).items()
        if rate > 0 and teaching & set(layout.teachers[owner])
    ]
