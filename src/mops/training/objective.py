"""Objectives: what a run is trained for. That of a recipe is the losses of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from torch import Tensor

from mops.config.training import Training
from mops.data.batches import Batch, TaskData
from mops.data.schedule import Place, Schedule
from mops.evaluate.evaluate import overall_of
from mops.evaluate.metrics import score
from mops.model.network import Network
from mops.predict.inference import compute_outputs, decide
from mops.tasks import Task
from mops.training.checkpoint import TrainerState
from mops.training.distributed import ALONE, ProcessGroup
from mops.training.frozen import StagePackers, fill_cache
from mops.training.step import compute_losses

TaskScores = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Evaluation:
    """The score of a state, higher is better (None: it can never be the best), and its facts."""

    score: float | None
    facts: Mapping[str, Any]  # for the curve and the watcher


class Objective(Protocol):
    """What a run is trained for."""

    schedule: Schedule
    data: Mapping[str, TaskData]  # the training rows of each task
    logged: Sequence[str]  # the facts of a step that its line of the curve has

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        """The rows of a step (counted from 0), of all its tasks or of some."""

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        """Task -> loss, with a graph for autograd."""

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """Called before the first step of a stage, and when a run resumes within one."""

    def evaluate(self, network: Network, step: int) -> Evaluation:
        """The quality of the network after `step` steps."""

    def position(self, step: int) -> Mapping[str, Any]:
        """How lines of the curve name the moment after `step` steps; has the key `step`."""


@dataclass(kw_only=True)
class TaskObjective:
    """Rows of the tasks as the schedule orders them; the best state is that with the best scores
    on the selection half of the validation rows.
    """

    training: Training
    schedule: Schedule
    data: Mapping[str, TaskData]
    selection: Mapping[str, TaskData]
    take: Callable[[Mapping[str, Sequence[Place]]], Batch]
    group: ProcessGroup = ALONE
    packers: StagePackers = field(default_factory=StagePackers)
    logged: Sequence[str] = ("loss", "losses", "gradient_norm", "loss_weights", "learning_rate")

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        """This process's rows of a step, with the weights of their losses."""
        chosen = self.schedule.rows_at(step, tasks)
        batch = self.take(self.group.own(chosen))
        parts = self.group.parts(chosen, self.data)
        return replace(batch, scale=self.schedule.scale(step), parts=parts)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        return compute_losses(network, batch, self.packers.train)

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """Compute the frozen layers of the stage once, for rows that are used again."""

        def fill() -> None:
            self.packers = fill_cache(self, network, state, tell)

        self.group.first_then_others(fill)

    def evaluate(self, network: Network, step: int) -> Evaluation:
        scores = self.selection_scores(network)
        overall = overall_of(self.judged, scores)
        return Evaluation(overall[self.training.best_by], {"selection": scores, **overall})

    def selection_scores(self, network: Network) -> TaskScores:
        """The scores of each task on its selection rows, from one pass over all of them."""
        device = next(network.parameters()).device
        tables = {name: data.tokens for name, data in self.selection.items()}
        outputs = compute_outputs(network, tables, self.packers.evaluate, device)
        return {
            name: score(data.task, data.targets, decide(data.task, outputs[name]).values)
            for name, data in self.selection.items()
        }

    @cached_property
    def judged(self) -> dict[str, Task]:
        """The tasks that pick the best state: those that are trained."""
        tasks = {name: data.task for name, data in self.selection.items()}
        planned = self.schedule.batches_before(len(self.schedule))
        trained = {n: t for n, t in tasks.items() if planned[n] and self.training.weight(n)}
        return trained or tasks

    def position(self, step: int) -> Mapping[str, Any]:
        return {"step": step, "epoch": round(step / self.schedule.steps_per_epoch, 4)}
