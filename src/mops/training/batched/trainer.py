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
from mops.training.batched.features import FeatureTable, FeatureTables, Ints
from mops.training.checkpoint import TrainerState
from mops.training.losses import loss_of
from mops.training.prepare import TaskObjective, TaskScores
from mops.training.step import StepFacts
from mops.training.trainer import Trainer


@dataclass(frozen=True)
class RowOrder:
    """The training rows that one run takes from one task, in order."""

    vectors_PK: Tensor  # the places of their vectors in the feature table
    targets_P: Tensor
    tokens: Ints  # in all rows before each one

    @classmethod
    def plan(cls, schedule: Schedule, table: FeatureTable) -> RowOrder:
        rows = training_rows(schedule, table.task.name)
        lengths = table.training.tokens.row_lengths[rows]
        return cls(
            vectors_PK=table.find_vectors(rows),
            targets_P=torch.as_tensor(table.training.targets[rows], dtype=torch.float32),
            tokens=np.concatenate([[0], np.cumsum(lengths)]),
        )


def training_rows(schedule: Schedule, task: str) -> Ints:
    """The rows of all steps of a task, in the order of `Schedule.places`."""
    wanted, size = schedule.rows_before(len(schedule))[task], schedule.sizes[task]
    passes = [shuffled(size, schedule.seed, task, n) for n in range(-(-wanted // size))]
    rows: Ints = np.concatenate([np.zeros(0, np.int64), *passes])[:wanted]
    return rows


@dataclass(frozen=True)
class OrderedRows(Batch):
    """The rows of a step as slices of each task's `RowOrder`."""

    slices: Mapping[str, slice] = field(default_factory=dict)


@dataclass(kw_only=True)
class FeatureObjective(TaskObjective):
    """The tasks of one run, read from feature tables instead of texts."""

    tables: FeatureTables
    orders: Mapping[str, RowOrder]
    selection_rows: Mapping[str, Ints]  # in the feature tables

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> OrderedRows:
        before, rows = self.schedule.rows_before(step), self.schedule.steps[step]
        chosen = rows if tasks is None else tasks
        slices = {task: slice(before[task], before[task] + rows[task]) for task in chosen}
        return OrderedRows((), {}, self.schedule.scale(step), slices=slices)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        """The losses of one network by itself."""
        assert isinstance(batch, OrderedRows)
        losses = {}
        for task, rows in batch.slices.items():
            order, table = self.orders[task], self.tables[task]
            pooled_ND = table.pooled_UD[order.vectors_PK[rows].flatten()]
            outputs_RO = network.task_outputs(task, pooled_ND)
            losses[task] = loss_of(table.task, outputs_RO, order.targets_P[rows])
        return losses

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """Nothing to do: the frozen layers are computed already."""

    def selection_scores(self, network: Network) -> TaskScores:
        scores = {}
        for name, data in self.selection.items():
            outputs = self.tables[name].outputs(network, self.selection_rows[name])
            scores[name] = score(data.task, data.targets, decide(data.task, outputs).values)
        return scores

    def count_tokens(self, slices: Mapping[str, slice]) -> int:
        tokens = {task: self.orders[task].tokens for task in slices}
        return sum(int(tokens[task][s.stop] - tokens[task][s.start]) for task, s in slices.items())


class BatchedRuns:
    """The strategy: the steps of runs with equal schedules are one computation."""

    def __init__(self) -> None:
        self.runs: Sequence[Trainer] = ()
        self.ensemble: Ensemble

    def take_steps(self, runs: Sequence[Trainer]) -> Sequence[StepFacts]:
        if runs != self.runs:  # one has stopped or failed
            self.runs = runs
            stages = [run.schedule.stage_at(run.state.step) for run in runs]
            self.ensemble = Ensemble(
                [
                    Member(run.network, run.learner.optimizer, stage)
                    for run, stage in zip(runs, stages, strict=True)
                ]
            )
        step, objectives = runs[0].state.step, [feature_objective(run) for run in runs]
        rows = objectives[0].make_batch(step)
        started = time.perf_counter()
        batches = {task: gather(objectives, task, rows) for task in rows.slices}
        facts = self.ensemble.take_step(batches, step)
        seconds = (time.perf_counter() - started) / len(runs)
        return [
            replace(own, seconds=seconds, tokens=objective.count_tokens(rows.slices))
            for own, objective in zip(facts, objectives, strict=True)
        ]

    def close(self) -> None:
        return


def gather(objectives: Sequence[FeatureObjective], task: str, rows: OrderedRows) -> FeatureBatch:
    """The rows of a task in one step, each run its own."""
    orders, place = [objective.orders[task] for objective in objectives], rows.slices[task]
    vectors_NT = torch.stack([order.vectors_PK[place].flatten() for order in orders])
    return FeatureBatch(
        vectors_NTD=objectives[0].tables[task].vectors_UD[vectors_NT],
        targets_NR=torch.stack([order.targets_P[place] for order in orders]),
        scale=rows.scale[task],
    )


def feature_objective(run: Trainer) -> FeatureObjective:
    assert isinstance(run.objective, FeatureObjective)
    return run.objective
