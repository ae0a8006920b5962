"""How long trainings would take: matrix products counted, at the speed this machine shows now.

What it is worth: one share of the machine's peak stands for all plans, so a training takes about
a quarter more or less than its estimate, and as much longer as other programs use the machine.
Steps of MiniLM with 8 rows of three tasks on one core, processor seconds measured and estimated:
one encoder 0.64 and 0.69, one per task 0.76 and 0.77, projected attention in every layer 0.75 and
0.72, bottlenecks in a frozen encoder 0.53 and 0.46. Whole trials of 20 steps on the sample: one
encoder 48 and 46, two layers frozen and two per task 46 and 41, late layers on a frozen one 33
and 31. Without torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mops.combining import SUM
from mops.data.budgets import learning_in, rates_in
from mops.data.schedule import PlannedStage, Schedule
from mops.data.tokens import TokenTable, row_flops
from mops.layout import Layout
from mops.sizes import dense, late_widths

# Of the machine's matrix products a training step reaches about this share, measured with MiniLM
# at 8 rows of each of three tasks on one core.
SHARE_OF_PEAK = 0.65
# AdamW, the norm of the gradients and their clipping, for each weight that learns.
SECONDS_PER_WEIGHT = 2e-9
# What a step costs whatever it computes: of a network alone, and of one among many abreast.
STEP_SECONDS, SMALL_STEP_SECONDS = 0.012, 0.003
FORWARD_AND_BACKWARD = 3.0  # a step of a layer that learns, in forward passes


@dataclass(frozen=True)
class Work:
    """What a training computes."""

    flops: float = 0.0  # of the steps
    frozen_flops: float = 0.0  # of frozen layers, once for each row, before the steps
    moved: float = 0.0  # weights that learn, once for each step
    overhead: float = 0.0  # seconds of steps beside their products
    is_frozen: bool = True  # nothing in the encoder learns, and nothing is added inside

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.frozen_flops + other.frozen_flops,
            self.moved + other.moved,
            self.overhead + other.overhead,
            self.is_frozen and other.is_frozen,
        )

    def seconds(self, gflops: float) -> float:
        """Of the training steps."""
        return time_of(self.flops, gflops) + self.moved * SECONDS_PER_WEIGHT + self.overhead


def time_of(flops: float, gflops: float) -> float:
    return flops / (gflops * 1e9 * SHARE_OF_PEAK)


def work_of(layout: Layout, schedule: Schedule, tables: Mapping[str, TokenTable]) -> Work:
    """All stages of a training."""
    per_row = {name: split_flops(layout, name, table) for name, table in tables.items()}
    return sum((stage_work(layout, schedule, s, per_row) for s in schedule.stages), start=Work())


def split_flops(layout: Layout, task: str, table: TokenTable) -> tuple[float, float, float]:
    """Forward, the mean over rows: the encoder's own layers, what is added to them, the top."""
    route = layout.routes[task]
    trunk = row_flops(replace(route, stops=()), layout.encoder, table)
    added = row_flops(route, layout.encoder, table) - trunk
    widths = late_widths(layout.plan, layout.encoder)
    late = 2.0 * table.per_row * sum(map(dense, widths, widths[1:]))
    return trunk, added, late + 2.0 * layout.sizes[route.head]


def stage_work(
    layout: Layout,
    schedule: Schedule,
    stage: PlannedStage,
    per_row: Mapping[str, tuple[float, float, float]],
) -> Work:
    """Layers that are frozen from the bottom up are computed once a row, the rest in every step."""
    learning = learning_in(layout, schedule, stage)
    share, is_whole = frozen_share(layout, stage)
    before, after = schedule.rows_before(stage.first), schedule.rows_before(stage.stop)
    batches = schedule.batches_before(stage.stop), schedule.batches_before(stage.first)
    tasks_in_step = (sum(batches[0].values()) - sum(batches[1].values())) / max(1, len(stage))
    passes = 1.0 if stage.training.gradients == SUM else max(1.0, tasks_in_step)
    backward = backward_passes(layout, learning) * passes
    flops = once = 0.0
    for task, (trunk, added, top) in per_row.items():
        seen = after[task] - before[task]
        once += trunk * share * min(seen, schedule.sizes[task])
        flops += seen * (trunk * (1 - share) + added) * (1 + backward)
        flops += seen * top * FORWARD_AND_BACKWARD
    return Work(
        flops=flops,
        frozen_flops=once,
        moved=float(len(stage) * sum(layout.sizes[owner] for owner in learning)),
        overhead=len(stage) * (SMALL_STEP_SECONDS if is_whole else STEP_SECONDS),
        is_frozen=is_whole,
    )


def frozen_share(layout: Layout, stage: PlannedStage) -> tuple[float, bool]:
    """The part of the layers, from the bottom up, in which nothing learns; and whether it is all.

    All: no place on top learns either, so that a sequence is its pooled vector.
    """
    rates = rates_in(layout, stage)
    routes = layout.routes.values()
    every = zip(*(route.stages for route in routes), strict=True)
    learns = [any(rates[owner] > 0 for owners in at for owner in owners) for at in every]
    stages = (*learns, True).index(True)
    depth = layout.encoder.depth
    return max(0, min(stages - 1, depth)) / depth, stages == len(learns)


def backward_passes(layout: Layout, learning: list[str]) -> float:
    """In forward passes: for the weights and for what is below them; only below, if all is frozen.

    Nothing at all where no owner that the tokens pass learns.
    """
    if any(owner.startswith(("attention", "feedforward")) for owner in learning):
        return 2.0
    passed = {o for route in layout.routes.values() for stage in route.stages for o in stage}
    return 1.0 if passed & set(learning) else 0.0


def evaluations_of(schedule: Schedule) -> int:
    """By number, and one at the end of each stage."""
    found = 0
    for stage in schedule.stages:
        every = stage.training.eval_steps or schedule.steps_per_epoch
        found += math.ceil(stage.stop / every) - stage.first // every
    return found


def matrix_speed() -> float:
    """GFLOP/s of a matrix product of the size that a step has."""
    left = np.ones((512, 384), np.float32)
    right = np.ones((384, 1536), np.float32)
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - started)
    return 2 * 512 * 384 * 1536 / best / 1e9
