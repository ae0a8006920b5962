"""Loops abreast: runs on the same frozen vectors take every step together.

Each keeps its own progress, curve, best state and saves, as if it ran alone; one that fails or
stops early leaves, the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mops.data.batches import Batch
from mops.data.schedule import Schedule, shuffled
from mops.errors import RunError
from mops.training.batched.ensemble import Ensemble, FeatureBatch, Member
from mops.training.batched.vectors import Ints, TaskShelf
from mops.training.losses import loss_of
from mops.training.prefetch import stop_requests
from mops.training.step import StepFacts, check_reach, refuse_nan, shares_of
from mops.training.trainer import Interrupted, Loop, Watcher

Shelf = Mapping[str, TaskShelf]


@dataclass(frozen=True)
class Order:
    """The training rows that one run takes of one task, one after the other."""

    where_PK: Tensor  # the vectors of the row at each place
    targets_P: Tensor
    tokens: Ints  # of all rows before each place

    @classmethod
    def of(cls, schedule: Schedule, task: str, shelf: TaskShelf) -> Order:
        rows = training_rows(schedule, task)
        data = shelf.training
        lengths = data.tokens.row_lengths[rows]
        return cls(
            where_PK=shelf.where(rows),
            targets_P=torch.as_tensor(data.targets[rows], dtype=torch.float32),
            tokens=np.concatenate([[0], np.cumsum(lengths)]),
        )


def training_rows(schedule: Schedule, task: str) -> Ints:
    """The rows of all steps of a task in order, as `Schedule.places` gives them."""
    wanted, size = schedule.rows_before(len(schedule))[task], schedule.sizes[task]
    passes = [shuffled(size, schedule.seed, task, n) for n in range(-(-wanted // size))]
    rows: Ints = np.concatenate([np.zeros(0, np.int64), *passes])[:wanted]
    return rows


@dataclass
class Runner:
    """One run among others: its loop, and the rows that it takes."""

    loop: Loop
    orders: Mapping[str, Order]

    @property
    def member(self) -> Member:
        return Member(self.loop.network, self.loop.optimiser, self.loop.training)


@dataclass
class Abreast:
    """Runs with the same tasks in every step; all are at the same step."""

    runners: list[Runner]  # those that still train
    shelf: Shelf
    failed: dict[Path, RunError] = field(default_factory=dict)

    def run(self, watcher: Watcher) -> None:
        """Train all to the end of the budget; each may stop or fail on its own."""
        if not self.runners:
            return
        first = self.runners[0].loop
        taken = first.schedule.rows_before(first.progress.step)
        watcher.begin(len(first.schedule), first.progress.step)
        for runner in self.runners:
            runner.loop.cut_curve()
            runner.loop.progress.batched = len(self.runners)
        self.leave()
        with stop_requests() as asked:
            while self.runners:
                stack = Ensemble([runner.member for runner in self.runners])
                count = len(self.runners)
                while len(self.runners) == count:
                    self.one_step(stack, taken, watcher)
                    self.leave()
                    if asked:
                        self.interrupt()

    def one_step(self, stack: Ensemble, taken: dict[str, int], watcher: Watcher) -> None:
        loop = self.runners[0].loop
        step, schedule = loop.progress.step, loop.schedule
        scale, sizes = schedule.scale(step), schedule.steps[step]
        places = {task: slice(taken[task], taken[task] + rows) for task, rows in sizes.items()}
        started = time.perf_counter()
        rows = {task: self.take(task, place, scale[task]) for task, place in places.items()}
        facts = stack.take_step(rows, step, len(schedule))
        seconds = (time.perf_counter() - started) / len(self.runners)
        for task, place in places.items():
            taken[task] = place.stop
        for runner, fact in zip(self.runners, facts, strict=True):
            try:
                self.note(runner, fact, places, seconds)
                if runner.loop.is_evaluation_due():
                    runner.loop.evaluate(watcher)
                if runner.loop.is_save_due():
                    runner.loop.save()
            except RunError as problem:
                self.failed[runner.loop.folder] = problem
        watcher.step(step + 1, facts[0])

    def take(self, task: str, place: slice, scale: float) -> FeatureBatch:
        """The next rows of a task, of each run its own."""
        shelf, orders = self.shelf[task], [runner.orders[task] for runner in self.runners]
        where_NT = torch.stack([order.where_PK[place].flatten() for order in orders])
        return FeatureBatch(
            vectors_NTD=shelf.vectors_UD[where_NT],
            targets_NR=torch.stack([order.targets_P[place] for order in orders]),
            scale=scale,
        )

    def note(
        self, runner: Runner, facts: StepFacts, places: Mapping[str, slice], seconds: float
    ) -> None:
        """What `Loop.one_step` does after a step."""
        loop = runner.loop
        step = loop.progress.step
        refuse_nan(facts, step)
        if due := loop.guarded.get(step):
            loop.network.train()
            check_reach(loop.network, self.losses(runner, {task: places[task] for task in due}))
        tokens = sum(
            int(runner.orders[task].tokens[place.stop] - runner.orders[task].tokens[place.start])
            for task, place in places.items()
        )
        loop.note_step(facts, tokens, seconds, lambda: self.shares(runner, places, step))

    def shares(self, runner: Runner, places: Mapping[str, slice], step: int) -> dict[str, float]:
        """The tasks' shares in the gradient of what they share, after this step."""
        loop = runner.loop
        targets = {task: np.zeros(0) for task in places}  # only their names count
        batch = Batch((), targets, loop.schedule.scale(step))
        seed = loop.training.seed + loop.progress.step
        return shares_of(
            loop.network,
            loop.weighting,
            batch,
            seed,
            lambda task: self.losses(runner, {task: places[task]}),
        )

    def losses(self, runner: Runner, places: Mapping[str, slice]) -> dict[str, Tensor]:
        """The losses of one network by itself, with torch's own tape."""
        found = {}
        for task, place in places.items():
            order, shelf = runner.orders[task], self.shelf[task]
            pooled_ND = shelf.pooled_UD[order.where_PK[place].flatten()]
            outputs_RO = runner.loop.network.task_outputs(task, pooled_ND)
            found[task] = loss_of(shelf.task, outputs_RO, order.targets_P[place])
        return found

    def leave(self) -> None:
        """Those that are through, have stopped or have failed go; their states are saved."""
        staying = []
        for runner in self.runners:
            loop = runner.loop
            if loop.folder in self.failed:
                continue
            if loop.progress.step >= len(loop.schedule) or loop.progress.is_stopped:
                loop.save()
            else:
                staying.append(runner)
        self.runners = staying

    def interrupt(self) -> None:
        for runner in self.runners:
            runner.loop.save()
        raise Interrupted("stopped; the same call goes on where it was")
