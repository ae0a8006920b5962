"""The loop of a pretraining: steps, held-out perplexity, the best state, saves."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mops.encoder.network import Network
from mops.errors import RunError
from mops.fit.checkpoints import Progress, save_best, save_state
from mops.fit.loop import (
    LOG_STEPS,
    SAVE_SECONDS,
    TRIM_STEPS,
    Interrupted,
    Watcher,
    stop_requests,
)
from mops.fit.machine import give_back_memory
from mops.mlm.corpus import Corpus
from mops.mlm.model import held_out_losses, perplexity
from mops.mlm.settings import Budget, Settings
from mops.mlm.step import take_step

STATE, BEST, CURVE = "state.safetensors", "best.safetensors", "curve.jsonl"


@dataclass(kw_only=True)
class Loop:
    """One pretraining from its first (or its next) step to its last."""

    state: Path  # the folder of what a resumed run needs
    network: Network
    optimiser: torch.optim.Optimizer
    corpus: Corpus
    settings: Settings
    budget: Budget
    key: str
    progress: Progress = field(default_factory=Progress)
    saved_at: float = field(default_factory=time.monotonic)

    def run(self, watcher: Watcher) -> None:
        """Judge the start, train to the end of the budget or until nothing gets better."""
        self.cut_curve()
        watcher.begin(self.budget.steps, self.progress.step)
        with stop_requests() as asked:
            if not self.progress.evaluations:
                self.evaluate(watcher)
            while self.progress.step < self.budget.steps and not self.progress.is_stopped:
                self.one_step(watcher)
                if self.is_evaluation_due():
                    self.evaluate(watcher)
                if asked or self.is_save_due():
                    self.save()
                if asked:
                    raise Interrupted("stopped; the same command goes on where it was")
        self.save()

    def one_step(self, watcher: Watcher) -> None:
        now, training = self.progress, self.settings.recipe.training
        batch = self.corpus.batch(now.step, self.settings.batch_size, training.seed)
        started = time.perf_counter()
        facts = take_step(
            self.network, self.optimiser, batch, training, step=now.step, budget=self.budget
        )
        now.seconds += time.perf_counter() - started
        now.step += 1
        now.tokens += sum(len(masked.segment.ids) for masked in batch)
        if now.step % LOG_STEPS == 0 or now.step == 1:
            self.log({"loss": facts.loss, "gradient_norm": facts.gradient_norm})
        if now.step % TRIM_STEPS == 0:
            give_back_memory()
        watcher.step(now.step, facts)

    # -------------------------------------------------------------- evaluation

    def is_evaluation_due(self) -> bool:
        step, training = self.progress.step, self.settings.recipe.training
        every = training.eval_steps or self.budget.steps_per_epoch
        return step % every == 0 or step in (self.budget.head_steps, self.budget.steps)

    def evaluate(self, watcher: Watcher) -> None:
        """The loss of both held-out halves; from the baseline on the best state is kept."""
        losses = held_out_losses(self.network, self.corpus.held_out)
        now = self.progress
        now.evaluations += 1
        score = -losses["selection"]  # higher is better, as everywhere
        is_candidate = now.step >= self.budget.head_steps
        is_best = is_candidate and (now.best_score is None or score > now.best_score)
        if is_best:
            now.best_score, now.best_step = score, now.step
            now.evaluations_since_best = 0
            save_best(self.state / BEST, self.network)
        elif is_candidate:
            now.evaluations_since_best += 1
        patience = self.settings.recipe.training.early_stopping
        now.is_stopped = patience is not None and now.evaluations_since_best >= patience
        self.log({"held_out": losses, "perplexity": perplexity(losses["report"]), "best": is_best})
        watcher.evaluation(now.step, {"perplexity": perplexity(losses["report"])}, is_best)

    # -------------------------------------------------------------- files and memory

    def release(self) -> None:
        """Give back the memory of gradients and moments: training is over."""
        self.optimiser.zero_grad(set_to_none=True)
        self.optimiser.state.clear()

    def is_save_due(self) -> bool:
        every = self.settings.recipe.training.save_steps
        if every:
            return self.progress.step % every == 0
        return time.monotonic() - self.saved_at > SAVE_SECONDS

    def save(self) -> None:
        save_state(self.state / STATE, self.network, self.optimiser, self.progress, self.key)
        self.saved_at = time.monotonic()

    def log(self, facts: Mapping[str, Any]) -> None:
        now = self.progress
        line = {"step": now.step, "seconds": round(now.seconds, 3), **facts}
        path = self.state / CURVE
        try:
            with path.open("a", encoding="utf-8") as curve:
                curve.write(json.dumps(line) + "\n")
                now.curve_bytes = curve.tell()
        except OSError as cause:
            raise RunError(f"cannot write {path}: {cause.strerror}; free some space") from cause

    def cut_curve(self) -> None:
        """Forget lines that were written after the state that this run goes on from."""
        with (self.state / CURVE).open("ab") as curve:
            curve.truncate(self.progress.curve_bytes)

    def read_curve(self) -> list[dict[str, Any]]:
        lines = (self.state / CURVE).read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]
