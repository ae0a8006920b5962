"""Filling the feature cache before the steps of a stage, as far as the features are used again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mops.data.batches import Segment, TaskData
from mops.data.schedule import PlannedStage, Schedule
from mops.model.network import Network
from mops.model.packing import Packer
from mops.training.checkpoint import TrainerState
from mops.training.feature_cache import FeatureCache, open_cache

if TYPE_CHECKING:
    from mops.training.prepare import TaskObjective

WINDOW = 8192  # rows whose sequences are in memory at a time
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class StagePackers:
    """How packs are made in a stage; None: from token ids, without the cache."""

    train: Packer | None = None
    evaluate: Packer | None = None


def fill_cache(
    objective: TaskObjective, network: Network, state: TrainerState, tell: Callable[[str], None]
) -> StagePackers:
    """Fill the cache for the steps and evaluations that are left in the current stage."""
    started, step, schedule = time.perf_counter(), state.step, objective.schedule
    cache, stage, selection = open_cache(network), schedule.stage_at(step), objective.selection
    if cache is None:
        return StagePackers()
    reused = reused_rows(cache, schedule, stage, step)
    fill_rows(cache, objective.data, reused, tell)
    is_evaluated = evaluations_left(schedule, stage, step) >= cache.least_uses
    if is_evaluated:
        fill_rows(cache, selection, {t: np.arange(len(d)) for t, d in selection.items()}, tell)
    state.frozen_seconds += time.perf_counter() - started
    state.frozen_computed += cache.computed
    state.frozen_found += cache.found
    tell("training")
    return StagePackers(
        train=cache.pack if any(map(len, reused.values())) else None,
        evaluate=cache.pack if is_evaluated else None,
    )


def reused_rows(
    cache: FeatureCache, schedule: Schedule, stage: PlannedStage, step: int
) -> dict[str, Rows]:
    """Task -> the training rows to cache for the steps left; none if texts are augmented."""
    uses = {} if stage.training.augment else count_uses(schedule, stage, step)
    return {task: np.flatnonzero(counts >= cache.least_uses) for task, counts in uses.items()}


def count_uses(schedule: Schedule, stage: PlannedStage, step: int) -> dict[str, Rows]:
    """Task -> how often each of its rows is used in the steps that are left of a stage."""
    before, after = schedule.rows_before(step), schedule.rows_before(stage.stop)
    uses = {}
    for task, size in schedule.sizes.items():
        places = schedule.places(task, before[task], after[task] - before[task])
        rows = np.array([place.row for place in places], dtype=np.int64)
        uses[task] = np.bincount(rows, minlength=size)
    return uses


def evaluations_left(schedule: Schedule, stage: PlannedStage, step: int) -> int:
    """The regular evaluations left in a stage (approximately), and the one at its end."""
    every = stage.training.eval_steps or schedule.steps_per_epoch
    return 1 + (stage.stop - 1) // every - step // every


def fill_rows(
    cache: FeatureCache,
    data: Mapping[str, TaskData],
    rows: Mapping[str, Rows],
    tell: Callable[[str], None],
) -> None:
    """Cache the sequences of some rows of each task."""
    total, before = sum(map(len, rows.values())), 0
    for task, chosen in rows.items():
        for first in range(0, len(chosen), WINDOW):
            window = chosen[first : first + WINDOW]

            def report(done: int, parts: int, row: int = before, rows: int = len(window)) -> None:
                row += rows * done // parts
                tell(f"computing frozen layers, {row:,} of {total:,} rows")

            cache.fill(task, make_segments(task, data[task], window), report)
            before += len(window)


def make_segments(task: str, data: TaskData, rows: Rows) -> Iterator[Segment]:
    """The sequences of some rows."""
    for row in rows.tolist():
        for sequence in data.tokens.row(row):
            yield Segment(*sequence, (task,))
