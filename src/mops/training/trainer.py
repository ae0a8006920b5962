"""The trainer: steps, evaluations, the best state, checkpoints. It prints nothing.

Three values say what is trained and how:

- an `Objective` gives batches, losses and the score that picks the best state
  (`TaskObjective`: the tasks of a recipe; `MaskedWords`: pretraining),
- a `Strategy` computes the next step of one or more runs that are at the same step
  (`Trainer.run`: a single run; `BatchedRuns`: many small networks on one frozen encoder),
- a `Watcher` is told how it goes.

`run_all` is the loop; a `Trainer` is one run in it.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from mops.config.training import Training
from mops.data.batches import Batch, TaskData
from mops.data.schedule import PlannedStage, Schedule
from mops.errors import RunError
from mops.model.network import Network
from mops.training import checkpoint
from mops.training.checkpoint import STATE, TrainerState
from mops.training.machine import give_back_memory, prefetch, stop_requests
from mops.training.meters import start_energy
from mops.training.optim import rate_factor
from mops.training.step import Learner, StepFacts, check_reach, gradient_shares, take_step
from mops.training.tracking import Curve, Tell, Watcher

LOG_STEPS = 10  # steps between lines of the curve
SAVE_SECONDS = 60.0  # between checkpoints, unless save_steps is set
TRIM_STEPS = 50  # between returns of free memory; after each step it would cost a fifth of its time
KEPT_TIMES = 1000  # step times kept for the median
GUARDED_STEP = 3  # parts that start at zero pass no gradient before their first update
SHARE_STEPS = 50  # steps between measurements; one takes about as long as a step


class Interrupted(KeyboardInterrupt):
    """The user or the system asked the run to stop; its state is saved."""


class Evaluation(NamedTuple):
    """The scores of a state by who chooses, higher is better (without any it is never the best)."""

    scores: Mapping[str, float]
    facts: Mapping[str, Any]  # for the curve and the watcher
    chosen: Mapping[str, Mapping[str, Tensor]] = {}  # chooser -> what it adds to the best weights


class Objective(Protocol):
    """What a run is trained for."""

    schedule: Schedule
    logged: Sequence[str]  # the facts of a step that its line of the curve has

    @property
    def data(self) -> Mapping[str, TaskData]:
        """The training rows of each task."""

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        """The rows of a step (counted from 0), of all its tasks or of some."""

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        """Task -> loss, with a graph for autograd."""

    def enter_stage(self, network: Network, state: TrainerState, tell: Tell) -> None:
        """Called before the first step of a stage, and when a run resumes within one."""

    def evaluate(self, network: Network) -> Evaluation:
        """The quality of the network."""


# Updates the network of each run, all at the same step; returns what it did in their order.
Strategy = Callable[[Sequence["Trainer"]], Sequence[StepFacts]]


@dataclass(kw_only=True)
class Trainer:
    """One run: its learner, objective and state, and its files."""

    folder: Path
    learner: Learner
    objective: Objective
    training: Training
    curve: Curve
    key: str  # names the recipe, the data and the encoder
    state: TrainerState = field(default_factory=TrainerState)
    stage: PlannedStage | None = None  # that was entered last
    error: RunError | None = None  # ended the run
    saved_at: float = field(default_factory=time.monotonic)

    @property
    def network(self) -> Network:
        return self.learner.network

    @property
    def schedule(self) -> Schedule:
        return self.objective.schedule

    @property
    def is_done(self) -> bool:
        now = self.state
        return now.step >= len(self.schedule) or now.is_stopped or self.error is not None

    def run(self, watcher: Watcher, until: float = 1.0) -> None:
        """Train to the end of the budget, to a fraction of it, or until scores no longer rise."""
        steps = range(self.state.step, len(self.schedule))
        with closing(prefetch(self.objective.make_batch, steps)) as batches:
            run_all([self], lambda _: [self.take_step(next(batches))], watcher, until)
        if self.error:
            raise self.error

    def enter_stage(self, tell: Tell) -> None:
        """Before a step: begin its stage, where the last step was not of the same one."""
        stage = self.schedule.stage_at(self.state.step)
        if stage is self.stage:
            return
        self.stage = stage
        if self.state.step == stage.first:
            self.learner.enter_stage(stage)
            self.state.evaluations_since_best = 0  # patience starts anew
        self.objective.enter_stage(self.network, self.state, tell)

    def take_step(self, batch: Batch) -> StepFacts:
        """Update the network by itself."""
        stage, joules = self.schedule.stage_at(self.state.step), start_energy()
        started = time.perf_counter()
        facts = take_step(self.learner, batch, stage, self.state.step, self.objective.losses)
        seconds = time.perf_counter() - started
        tokens = self.learner.group.sum({"": sum(len(s.ids) for s in batch.segments)})[""]
        if (self.state.step + 1) % TRIM_STEPS == 0:
            give_back_memory()
        return replace(facts, tokens=int(tokens), seconds=seconds, joules=joules())

    def note_step(self, facts: StepFacts) -> None:
        """Check and count the step that was taken; now and then log it."""
        now, stage = self.state, self.schedule.stage_at(self.state.step)
        if not facts.is_finite:
            raise RunError(
                f"step {now.step + 1}: the loss or its gradient is not a number (losses "
                f"{dict(facts.losses)}); lower training.learning_rate or "
                "training.head_learning_rate"
            )
        shares: Mapping[str, float] = {}
        if self.learner.group.is_first:
            self.check_gradients()
            shares = self.measure_shares()
        now.step += 1
        now.seconds += facts.seconds
        now.joules += facts.joules
        now.tokens += facts.tokens
        now.step_seconds = [*now.step_seconds, facts.seconds][-KEPT_TIMES:]
        if now.step % LOG_STEPS == 0 or now.step == 1:
            rate = stage.training.learning_rate * rate_factor(stage, now.step - 1)
            line = vars(facts) | {"loss_weights": facts.weights, "learning_rate": rate}
            line = {name: line[name] for name in self.objective.logged}
            self.log(line | ({"gradient_shares": shares} if shares else {}))

    def finish_step(self, facts: StepFacts, watcher: Watcher) -> None:
        """All that follows an update: count it, evaluate, save."""
        self.note_step(facts)
        stage = self.schedule.stage_at(self.state.step - 1)
        every = stage.eval_interval(self.schedule.steps_per_epoch)
        if self.state.step % every == 0 or self.state.step == stage.stop:
            self.evaluate(watcher)
        steps = self.training.save_steps
        is_late = time.monotonic() - self.saved_at > SAVE_SECONDS
        if self.is_done or (self.state.step % steps == 0 if steps else is_late):
            self.save()

    def attempt(self, action: Callable[[], None]) -> None:
        """Keep an error of this run to itself, unless other processes wait for it."""
        try:
            action()
        except RunError as error:
            if self.learner.group.world > 1:
                raise
            self.error = error

    def check_gradients(self) -> None:
        """Once in each stage and for each task: does its loss reach all that should learn?"""
        if tasks := self.guarded_steps.get(self.state.step):
            self.network.train()
            batch = self.objective.make_batch(self.state.step, tasks)
            losses = {} if batch.is_empty else self.objective.losses(self.network, batch)
            check_reach(self.network, losses)

    @cached_property
    def guarded_steps(self) -> dict[int, tuple[str, ...]]:
        """Step -> the tasks whose gradients are checked there."""
        return {
            step: tuple(filter(self.training.weight, tasks))
            for stage in self.schedule.stages
            for step, tasks in self.schedule.nth_batches(stage, GUARDED_STEP).items()
        }

    def measure_shares(self) -> dict[str, float]:
        """After the first step and now and then: each task's share of the shared gradient."""
        step = self.state.step
        if (step + 1) % SHARE_STEPS and step:
            return {}
        batches = {t: self.objective.make_batch(step, [t]) for t in self.schedule.steps[step]}
        seed = self.training.seed + step + 1
        batches = {task: batch for task, batch in batches.items() if not batch.is_empty}
        shares = gradient_shares(self.learner, batches, seed, self.objective.losses)
        for task, share in shares.items():
            self.state.shares.setdefault(task, []).append(share)
        return shares

    def evaluate(self, watcher: Watcher) -> None:
        """The first process evaluates; all of them stop early when it says so."""
        group, parameters = self.learner.group, self.network.parameters()
        group.check_equal("the weights", lambda: [float(p.detach().sum()) for p in parameters])
        if group.is_first:
            with self.learner.averaged():
                self.judge(watcher)
        self.state.is_stopped = group.broadcast(self.state.is_stopped)

    def judge(self, watcher: Watcher) -> None:
        """Score the network; keep its weights for those who find them the best so far."""
        now = self.state
        scores, facts, chosen = self.objective.evaluate(self.network)
        now.evaluations += 1
        higher = {
            chooser: (score, now.step)
            for chooser, score in scores.items()
            if chooser not in now.best or score > now.best[chooser][0]
        }
        now.best |= higher
        checkpoint.save_best(self.folder, higher, self.network, chosen)
        score, is_best = scores[checkpoint.ALL], checkpoint.ALL in higher
        now.last_change = None if now.last_score is None else abs(score - now.last_score)
        now.last_score = score
        now.evaluations_since_best = 0 if is_best else now.evaluations_since_best + 1
        patience = self.training.early_stopping
        now.is_stopped = patience is not None and now.evaluations_since_best >= patience
        line = self.log({**facts, "best": is_best})
        watcher.evaluation(line["step"], line, is_best)

    def save(self) -> None:
        if self.learner.group.is_first:
            self.state.run_seconds, self.saved_at = self.run_seconds, time.monotonic()
            checkpoint.save(self.folder / STATE, self.learner, self.state, self.key)

    @property
    def run_seconds(self) -> float:
        """Wall time of the run so far, with evaluations; its share of that of a batch."""
        return self.state.run_seconds + (time.monotonic() - self.saved_at) / self.state.batched

    def restore_best(self) -> None:
        """Training is over: go back to the best state, if any, without gradients and moments."""
        self.learner.optimizer.zero_grad(set_to_none=True)
        self.learner.optimizer.state.clear()
        if checkpoint.ALL in self.state.best:
            best_step = self.state.best_step
            checkpoint.restore_best(self.folder, checkpoint.ALL, best_step, self.network)

    def log(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """A line of the curve, which the first process writes."""
        step, seconds = self.state.step, round(self.state.seconds, 3)
        epoch = round(step / self.schedule.steps_per_epoch, 4)
        line = {"step": step, "epoch": epoch, "seconds": seconds, **facts}
        if self.learner.group.is_first:
            self.state.curve_bytes = self.curve.write(line)
        return line


def run_all(
    runs: Sequence[Trainer], take_steps: Strategy, watcher: Watcher, until: float = 1.0
) -> None:
    """Train runs that are at the same step to their ends, or to a fraction of their steps.

    A run that fails keeps its error and ends; the others continue.
    """
    first, group = runs[0], runs[0].learner.group
    stop = math.ceil(until * len(first.schedule))
    watcher.begin(len(first.schedule), first.state.step)
    with stop_requests() as requests:
        while left := [run for run in runs if not run.is_done and run.state.step < stop]:
            for run in left:
                run.enter_stage(watcher.phase)
            steps = take_steps(left)
            watcher.step(left[0].state.step + 1, steps[0])
            for run, facts in zip(left, steps, strict=True):
                run.attempt(partial(run.finish_step, facts, watcher))
            if group.sum({"": len(requests)})[""]:
                for run in left:
                    run.attempt(run.save)
                group.wait()
                raise first.error or Interrupted("stopped; the same command goes on where it was")
    for run in (run for run in runs if not run.is_done):
        run.attempt(run.save)
