"""The scores that pick the best state, on the selection half of the validation rows.

The loop: steps, evaluations, the best state, saves. It prints nothing; a watcher is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from mops.config.training import Training
from mops.data.batches import Batch, TaskData
from mops.data.schedule import (
    Place,
    PlannedStage,
    Schedule,
    TaskBudget,
    schedule_warnings,
    task_budgets,
)
from mops.evaluate.evaluate import overall_of
from mops.evaluate.metrics import score
from mops.model.network import Network
from mops.model.packing import Packer
from mops.predict.inference import compute_outputs, decide
from mops.tasks import Task
from mops.training.checkpoint import Curve, Part, Progress, save_best, save_state
from mops.training.distributed import ALONE, Together
from mops.training.frozen import Frozen
from mops.training.gradients import Gradients
from mops.training.loss_weights import Weighting
from mops.training.optim import Start, enter, rate_factor
from mops.training.prefetch import Ahead, stop_requests
from mops.training.prepare import give_back_memory
from mops.training.step import (
    GUARDED_STEP,
    SHARE_STEPS,
    StepFacts,
    check_gradients,
    gradient_shares,
    take_step,
)

Scores = Callable[[Network, Mapping[str, TaskData], Packer | None], dict[str, dict[str, float]]]


def selection_scores(
    network: Network, selection: Mapping[str, TaskData], pack: Packer | None = None
) -> dict[str, dict[str, float]]:
    """The scores of each task on its selection rows; all tasks in one pass."""
    device = next(network.parameters()).device
    tables = {name: data.tokens for name, data in selection.items()}
    outputs = compute_outputs(network, tables, pack, device)
    return {
        name: score(data.task, data.targets, decide(data.task, outputs[name]).values)
        for name, data in selection.items()
    }


LOG_STEPS = 10  # steps between lines of the curve
SAVE_SECONDS = 60.0  # between saves, unless save_steps says otherwise
TRIM_STEPS = 50  # between returns of free memory; each step would cost a fifth of its time
KEPT_TIMES = 1000  # step times kept for the median


class Watcher(Protocol):
    """Someone who wants to know how a run is going."""

    def planned(self, tasks: Mapping[str, TaskBudget], warnings: Sequence[str]) -> None: ...
    def begin(self, total: int, done: int) -> None: ...
    def step(self, step: int, facts: StepFacts) -> None: ...
    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None: ...
    def phase(self, name: str) -> None: ...


class Silent:
    """A watcher that does not care."""

    def planned(self, tasks: Mapping[str, TaskBudget], warnings: Sequence[str]) -> None:
        pass

    def begin(self, total: int, done: int) -> None:
        pass

    def step(self, step: int, facts: StepFacts) -> None:
        pass

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        pass

    def phase(self, name: str) -> None:
        pass


class Interrupted(KeyboardInterrupt):
    """The user or the system asked the run to stop; its state is saved."""


@dataclass(kw_only=True)
class Loop:
    """One training from its first (or its next) step to its last."""

    folder: Path
    network: Network
    optimiser: torch.optim.Optimizer
    schedule: Schedule
    data: Mapping[str, TaskData]
    take: Callable[[Mapping[str, Sequence[Place]]], Batch]
    selection: Mapping[str, TaskData]
    training: Training
    key: str
    scores: Scores  # of the network on the selection rows
    start: Start = field(default_factory=dict)  # first weights that something is pulled to
    weighting: Weighting
    gradients: Gradients
    frozen: Frozen = field(default_factory=Frozen)
    together: Together = ALONE  # the processes that train this network
    progress: Progress = field(default_factory=Progress)
    saved_at: float = field(default_factory=time.monotonic)

    @property
    def parts(self) -> dict[str, Part]:
        """What remembers something beside the network, by its name in the state file."""
        return {"weighting": self.weighting, "gradients": self.gradients}

    def run(self, watcher: Watcher) -> None:
        """Train to the end of the budget, or until the scores no longer rise."""
        self.cut_curve()
        watcher.planned(
            task_budgets(self.schedule),
            list(schedule_warnings(self.schedule, self.training).values()),
        )
        watcher.begin(len(self.schedule), self.progress.step)
        with (
            stop_requests() as asked,
            closing(Ahead(self.make_batch, len(self.schedule))) as batches,
        ):
            while self.progress.step < len(self.schedule) and not self.progress.is_stopped:
                if self.progress.step == self.stage.first:
                    self.optimiser = enter(self.network, self.stage, self.weighting)
                    self.progress.evaluations_since_best = 0  # patience is of a stage
                if self.frozen.stage is not self.stage:
                    self.together.first_then_others(lambda: self.frozen.enter(self, watcher.phase))
                self.one_step(batches.take(self.progress.step), watcher)
                if self.is_evaluation_due():
                    self.evaluate(watcher)
                is_asked = self.together.sum_of({"asked": len(asked)})["asked"] > 0
                if is_asked or self.is_save_due():
                    self.save()
                if is_asked:
                    self.together.wait()
                    raise Interrupted("stopped; the same command goes on where it was")
        self.save()

    def make_batch(self, step: int) -> Batch:
        """The rows of a step; while it runs, those of the next are made."""
        chosen = self.chosen(step, self.schedule.steps[step])
        batch = self.take(self.together.own(chosen))
        parts = self.together.parts(chosen, self.data)
        return replace(batch, scale=self.schedule.scale(step), parts=parts)

    def chosen(self, step: int, tasks: Iterable[str]) -> dict[str, list[Place]]:
        """The places of the rows that some tasks of a step take."""
        before = self.schedule.rows_before(step)
        rows = self.schedule.steps[step]
        return {task: self.schedule.places(task, before[task], rows[task]) for task in tasks}

    def one_step(self, batch: Batch, watcher: Watcher) -> None:
        step = self.progress.step
        started = time.perf_counter()
        facts = take_step(
            self.network,
            self.optimiser,
            batch,
            self.stage.training,
            step=step,
            total=len(self.stage),
            first=self.stage.first,
            start=self.start,
            weighting=self.weighting,
            gradients=self.gradients,
            pack=self.frozen.train,
            together=self.together,
        )
        seconds = time.perf_counter() - started
        if (due := self.guarded.get(step)) and self.together.is_first:
            looked_at = self.take(self.together.own(self.chosen(step, due)))
            check_gradients(self.network, looked_at, self.frozen.train)
        tokens = {"tokens": sum(len(segment.ids) for segment in batch.segments)}
        tokens_of_all = int(self.together.sum_of(tokens)["tokens"])
        self.note_step(facts, tokens_of_all, seconds, lambda: self.measure_shares(batch))
        if self.progress.step % TRIM_STEPS == 0:
            give_back_memory()
        watcher.step(self.progress.step, facts)

    def note_step(
        self, facts: StepFacts, tokens: int, seconds: float, measure: Callable[[], dict[str, float]]
    ) -> None:
        """Count the step that was taken; now and then write a line and measure."""
        now, stage = self.progress, self.stage
        factor = rate_factor(stage.training, now.step - stage.first, len(stage))
        now.step += 1
        now.seconds += seconds
        now.tokens += tokens
        now.step_seconds = [*now.step_seconds, seconds][-KEPT_TIMES:]
        measured = self.note_shares(measure)
        if now.step % LOG_STEPS == 0 or now.step == 1:
            line = {"loss": facts.loss, "losses": facts.losses}
            line |= {"gradient_norm": facts.gradient_norm, "loss_weights": facts.weights}
            line |= {"learning_rate": stage.training.learning_rate * factor}
            self.log(line | ({"gradient_shares": measured} if measured else {}))

    @property
    def stage(self) -> PlannedStage:
        """The stage of the next step."""
        return self.schedule.stage_at(self.progress.step)

    @cached_property
    def curve(self) -> Curve:
        return Curve(self.folder / "curve.jsonl")

    @cached_property
    def guarded(self) -> dict[int, tuple[str, ...]]:
        """Step -> the tasks whose gradients are looked at there, once in each stage."""
        found = [self.schedule.nth_batches(stage, GUARDED_STEP) for stage in self.schedule.stages]
        due = {step: tasks for steps in found for step, tasks in steps.items()}
        return {step: tuple(filter(self.training.weight, tasks)) for step, tasks in due.items()}

    def measure_shares(self, batch: Batch) -> dict[str, float]:
        seed = self.training.seed + self.progress.step
        return gradient_shares(self.network, self.weighting, batch, seed, self.frozen.train)

    def note_shares(self, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        """At the first step and now and then: who pulls how much at what is shared."""
        step = self.progress.step
        if (step % SHARE_STEPS and step != 1) or not self.together.is_first:
            return {}
        shares = measure()
        for task, share in shares.items():
            self.progress.shares.setdefault(task, []).append(share)
        return shares

    # -------------------------------------------------------------- evaluation

    def is_evaluation_due(self) -> bool:
        every = self.training.eval_steps or self.schedule.steps_per_epoch
        step = self.progress.step
        return step % every == 0 or any(step == stage.stop for stage in self.schedule.stages)

    @cached_property
    def judged(self) -> dict[str, Task]:
        """The tasks that pick the best state: those that are trained."""
        tasks = {name: data.task for name, data in self.selection.items()}
        planned = self.schedule.batches_before(len(self.schedule))
        trained = {n: t for n, t in tasks.items() if planned[n] and self.training.weight(n)}
        return trained or tasks

    def evaluate(self, watcher: Watcher) -> None:
        """The first process does it; whether to stop early is told to all."""
        self.together.check_alike(self.network.parameters())
        if self.together.is_first:
            self.judge(watcher)
        self.progress.is_stopped = self.together.told(self.progress.is_stopped)

    def judge(self, watcher: Watcher) -> None:
        """Score the selection rows; keep the state when it is the best so far."""
        scores = self.scores(self.network, self.selection, self.frozen.judge)
        overall = overall_of(self.judged, scores)
        now = self.progress
        now.evaluations += 1
        is_best = now.best_score is None or overall[self.training.best_by] > now.best_score
        if is_best:
            now.best_score, now.best_step = overall[self.training.best_by], now.step
            now.evaluations_since_best = 0
            save_best(self.folder / "state" / "best.safetensors", self.network)
        else:
            now.evaluations_since_best += 1
        patience = self.training.early_stopping
        now.is_stopped = patience is not None and now.evaluations_since_best >= patience
        self.log({"selection": scores, **overall, "best": is_best})
        watcher.evaluation(now.step, {**overall, "tasks": scores}, is_best)

    # -------------------------------------------------------------- files and memory

    def release(self) -> None:
        """Give back the memory of gradients and moments: training is over."""
        self.optimiser.zero_grad(set_to_none=True)
        self.optimiser.state.clear()

    def is_save_due(self) -> bool:
        if self.training.save_steps:
            return self.progress.step % self.training.save_steps == 0
        return time.monotonic() - self.saved_at > SAVE_SECONDS

    def save(self) -> None:
        if not self.together.is_first:
            return
        path = self.folder / "state" / "state.safetensors"
        save_state(path, self.network, self.optimiser, self.progress, self.key, self.parts)
        self.saved_at = time.monotonic()

    def log(self, facts: Mapping[str, Any]) -> None:
        if not self.together.is_first:
            return
        epoch = self.progress.step / self.schedule.steps_per_epoch
        line = {"step": self.progress.step, "epoch": round(epoch, 4)}
        line |= {"seconds": round(self.progress.seconds, 3), **facts}
        self.progress.curve_bytes = self.curve.write(line)

    def cut_curve(self) -> None:
        """Forget lines that were written after the state that this run goes on from."""
        if self.together.is_first:
            self.curve.cut(self.progress.curve_bytes)


def median(values: list[float]) -> float:
    return float(np.median(values)) if values else 0.0
