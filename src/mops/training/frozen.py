"""What is frozen in a stage of a run is computed before its steps, as far as that is worth it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mops.data.batches import TaskData
from mops.data.schedule import PlannedStage, Schedule
from mops.model.network import Network
from mops.model.packing import Packer
from mops.training.checkpoint import Progress
from mops.training.feature_cache import FrozenCache, open_cache, segments_of

WINDOW = 8192  # rows whose sequences are in memory at a time
Rows = NDArray[np.int64]


class UnderWay(Protocol):
    """A run, as far as it matters here."""

    network: Network
    schedule: Schedule
    progress: Progress
    data: Mapping[str, TaskData]
    selection: Mapping[str, TaskData]


@dataclass
class Frozen:
    """How packs begin in the stage that a run is in; none: with the texts."""

    stage: PlannedStage | None = None
    train: Packer | None = None
    judge: Packer | None = None

    def enter(self, run: UnderWay, tell: Callable[[str], None]) -> None:
        """Once in each stage: fill the cache for the steps and evaluations that are left in it."""
        schedule, selection, step = run.schedule, run.selection, run.progress.step
        stage = schedule.stage_at(step)
        if stage is self.stage:
            return
        started = time.perf_counter()
        self.stage, self.train, self.judge = stage, None, None
        cache = open_cache(run.network)
        if cache is None:
            return
        worth = rows_worth(cache, schedule, stage, step)
        fill(cache, run.data, worth, tell)
        judged = evaluations_left(schedule, stage, step) >= least_uses(cache)
        fill(cache, selection, {t: np.arange(len(d)) for t, d in selection.items() if judged}, tell)
        self.train = cache.pack if any(map(len, worth.values())) else None
        self.judge = cache.pack if judged else None
        run.progress.frozen_seconds += time.perf_counter() - started
        run.progress.frozen_computed += cache.computed
        run.progress.frozen_found += cache.found
        tell("training")


def least_uses(cache: FrozenCache) -> int:
    """Pooled vectors are small and all are kept. Hidden states of all tokens are large: those of
    rows that come once are not.
    """
    return 1 if cache.is_pooled else 2


def rows_worth(
    cache: FrozenCache, schedule: Schedule, stage: PlannedStage, step: int
) -> dict[str, Rows]:
    """Task -> the training rows to keep for the steps that are left; none where rows change."""
    if stage.training.augment:
        return {}
    left, least = rows_left(schedule, stage, step), least_uses(cache)
    return {task: np.flatnonzero(uses >= least) for task, uses in left.items()}


def rows_left(schedule: Schedule, stage: PlannedStage, step: int) -> dict[str, Rows]:
    """Task -> how often each of its rows comes in the steps that are left of a stage."""
    before, after = schedule.rows_before(step), schedule.rows_before(stage.stop)
    found = {}
    for task, size in schedule.sizes.items():
        places = schedule.places(task, before[task], after[task] - before[task])
        rows = np.array([place.row for place in places], dtype=np.int64)
        found[task] = np.bincount(rows, minlength=size)
    return found


def evaluations_left(schedule: Schedule, stage: PlannedStage, step: int) -> int:
    """About: those by number, and the one at the end."""
    every = stage.training.eval_steps or schedule.steps_per_epoch
    return 1 + (stage.stop - 1) // every - step // every


def fill(
    cache: FrozenCache,
    data: Mapping[str, TaskData],
    rows: Mapping[str, Rows],
    tell: Callable[[str], None],
) -> None:
    """Rows of tasks, window by window."""
    total, done = sum(map(len, rows.values())), 0
    for task, window in windows(rows):
        segments = segments_of(task, data[task].tokens, window.tolist())
        cache.fill({task: segments}, partial(say, tell, done, len(window), total))
        done += len(window)


def say(
    tell: Callable[[str], None], before: int, here: int, total: int, done: int, of: int
) -> None:
    """`before` rows are done, and of the sequences of the next `here` rows some."""
    tell(f"computing frozen layers, {before + here * done // of:,} of {total:,} rows")


def windows(rows: Mapping[str, Rows]) -> Iterator[tuple[str, Rows]]:
    for task, chosen in rows.items():
        for first in range(0, len(chosen), WINDOW):
            yield task, chosen[first : first + WINDOW]
