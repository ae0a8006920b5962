"""Batched runs: a strategy of the trainer for small networks on the same frozen vectors.

Each run keeps its own state, curve, best weights and checkpoints, as if it ran alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from mops.data.batches import Batch
from mops.data.schedule import Schedule, shuffled
from mops.evaluate.metrics import score
from mops.model.network import Network
from mops.predict.inference import decide
from mops.training.batched.ensemble import Ensemble, FeatureBatch, Member
from mops.training.batched.vectors import Ints, TaskShelf
from mops.training.checkpoint import TrainerState
from mops.training.losses import loss_of
from mops.training.objective import TaskObjective, TaskScores
from mops.training.step import StepFacts
from mops.training.trainer import Trainer

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


@dataclass(frozen=True)
class RunRows(Batch):
    """The places of a step's rows in the order of each task."""

    places: Mapping[str, slice] = field(default_factory=dict)


@dataclass(kw_only=True)
class FeatureObjective(TaskObjective):
    """The tasks of one run, whose texts are vectors already."""

    shelf: Shelf
    orders: Mapping[str, Order]
    selected: Mapping[str, Ints]  # the selection rows on the shelf

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> RunRows:
        before, rows = self.schedule.rows_before(step), self.schedule.steps[step]
        chosen = rows if tasks is None else tasks
        places = {task: slice(before[task], before[task] + rows[task]) for task in chosen}
        return RunRows((), {}, self.schedule.scale(step), places=places)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        """The losses of one network by itself, from autograd."""
        assert isinstance(batch, RunRows)
        losses = {}
        for task, place in batch.places.items():
            order, shelf = self.orders[task], self.shelf[task]
            pooled_ND = shelf.pooled_UD[order.where_PK[place].flatten()]
            outputs_RO = network.task_outputs(task, pooled_ND)
            losses[task] = loss_of(shelf.task, outputs_RO, order.targets_P[place])
        return losses

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """The frozen layers are computed already."""

    def selection_scores(self, network: Network) -> TaskScores:
        scores = {}
        for name, data in self.selection.items():
            outputs = self.shelf[name].outputs(network, self.selected[name])
            scores[name] = score(data.task, data.targets, decide(data.task, outputs).values)
        return scores

    def tokens(self, places: Mapping[str, slice]) -> int:
        counts = {task: self.orders[task].tokens for task in places}
        return sum(int(counts[task][p.stop] - counts[task][p.start]) for task, p in places.items())


class BatchedRuns:
    """The strategy: runs with the same tasks in every step are one computation."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.runs: Sequence[Trainer] = ()
        self.ensemble: Ensemble

    def take_steps(self, runs: Sequence[Trainer]) -> Sequence[StepFacts]:
        if runs != self.runs:  # one has stopped or failed
            self.runs = runs
            learners = [run.learner for run in runs]
            self.ensemble = Ensemble([
                Member(learner.network, learner.optimizer, run.training)
                for learner, run in zip(learners, runs, strict=True)
            ])  # fmt: skip
        step, schedule = runs[0].state.step, runs[0].schedule
        objectives = [feature_objective(run) for run in runs]
        batch = objectives[0].make_batch(step)
        started = time.perf_counter()
        rows = {
            task: self.take(objectives, task, place, batch.scale[task])
            for task, place in batch.places.items()
        }
        facts = self.ensemble.take_step(rows, step, len(schedule))
        seconds = (time.perf_counter() - started) / len(runs)
        return [
            replace(fact, seconds=seconds, tokens=objective.tokens(batch.places))
            for fact, objective in zip(facts, objectives, strict=True)
        ]

    def take(
        self, objectives: Sequence[FeatureObjective], task: str, place: slice, scale: float
    ) -> FeatureBatch:
        """The next rows of a task, each run its own."""
        orders = [objective.orders[task] for objective in objectives]
        where_NT = torch.stack([order.where_PK[place].flatten() for order in orders])
        return FeatureBatch(
            vectors_NTD=self.shelf[task].vectors_UD[where_NT],
            targets_NR=torch.stack([order.targets_P[place] for order in orders]),
            scale=scale,
        )

    def close(self) -> None:
        return


def feature_objective(run: Trainer) -> FeatureObjective:
    assert isinstance(run.objective, FeatureObjective)
    return run.objective
