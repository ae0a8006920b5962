"""One step of pretraining, from masked texts to moved weights.

The loop of a pretraining: steps, held-out perplexity, the best state, saves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mops.config.training import Training
from mops.model.network import Network
from mops.training.checkpoint import Curve, Progress, save_best, save_state
from mops.training.mlm.corpus import Corpus, Masked
from mops.training.mlm.model import head_owner, held_out_losses, masked_loss, perplexity
from mops.training.mlm.settings import CONTROL, START, TRAINING, Budget, Settings
from mops.training.optim import clip, dense, rate_factor
from mops.training.prefetch import stop_requests
from mops.training.prepare import give_back_memory
from mops.training.step import StepFacts, refuse_nan
from mops.training.trainer import LOG_STEPS, SAVE_SECONDS, TRIM_STEPS, Interrupted, Watcher


def take_step(
    network: Network,
    optimiser: torch.optim.Optimizer,
    batch: Sequence[Masked],
    training: Training,
    *,
    step: int,
    total: int,
) -> StepFacts:
    """Forward, cross entropy of the chosen words, backward, clip, move."""
    torch.manual_seed(training.seed * 1_000_003 + step)  # dropout follows from seed and step alone
    loss = masked_loss(network, batch)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = clip(network.parameters(), training.max_grad_norm)
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * rate_factor(training, step, total)
    with dense(network):
        optimiser.step()
    value = float(loss.detach())
    return refuse_nan(
        StepFacts(losses={"words": value}, loss=value, gradient_norm=float(norm)), step
    )


def let_learn(network: Network, owners: Collection[str]) -> None:
    """What does not learn takes no gradient and has no dropout."""
    for owner, module in network.bank.items():
        module.requires_grad_(owner in owners)
        module.train(owner in owners)


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
    first_head: Mapping[str, Tensor]
    progress: Progress = field(default_factory=Progress)
    saved_at: float = field(default_factory=time.monotonic)

    def run(self, watcher: Watcher) -> None:
        """Judge the start, run the control, train to the end or until nothing gets better."""
        self.curve.cut(self.progress.curve_bytes)
        watcher.begin(self.budget.total, self.progress.step)
        with stop_requests() as asked:
            if not self.progress.evaluations:
                self.evaluate(START, 0, watcher)
            while self.progress.step < self.budget.total and not self.progress.is_stopped:
                self.one_step(watcher)
                if asked or self.is_save_due():
                    self.save()
                if asked:
                    raise Interrupted("stopped; the same command goes on where it was")
        self.save()

    def one_step(self, watcher: Watcher) -> None:
        now, training = self.progress, self.settings.recipe.training
        phase, step, total = self.budget.place(now.step)
        if step == 0:
            self.begin_phase()
        batch = self.corpus.batch(step, self.settings.batch_size, training.seed)
        started = time.perf_counter()
        let_learn(self.network, self.learners[phase])
        facts = take_step(self.network, self.optimiser, batch, training, step=step, total=total)
        now.seconds += time.perf_counter() - started
        now.step, step = now.step + 1, step + 1
        now.tokens += sum(len(masked.segment.ids) for masked in batch)
        if step % LOG_STEPS == 0 or step == 1:
            self.log(phase, step, {"loss": facts.loss, "gradient_norm": facts.gradient_norm})
        if step % TRIM_STEPS == 0:
            give_back_memory()
        watcher.step(now.step, facts)
        every = training.eval_steps or self.budget.steps_per_epoch
        if step == total or (phase == TRAINING and step % every == 0):
            self.evaluate(phase, step, watcher)

    def begin_phase(self) -> None:
        """The head as it first was, no moments: what the control learnt leaves no trace."""
        self.network.bank[head_owner(self.network)].load_state_dict(self.first_head)
        self.optimiser.state.clear()

    @cached_property
    def curve(self) -> Curve:
        return Curve(self.state / CURVE)

    @cached_property
    def learners(self) -> Mapping[str, Collection[str]]:
        """Phase -> the owners that learn in it."""
        return {CONTROL: {head_owner(self.network)}, TRAINING: set(self.network.bank)}

    # -------------------------------------------------------------- evaluation

    def evaluate(self, phase: str, step: int, watcher: Watcher) -> None:
        """The loss of both held-out halves; the best state is kept, the control's never."""
        losses = held_out_losses(self.network, self.corpus.held_out)
        self.progress.evaluations += 1
        is_best = phase != CONTROL and self.keep_if_best(-losses["selection"], step)
        found = {"perplexity": perplexity(losses["report"]), "best": is_best}
        self.log(phase, step, {"held_out": losses, **found})
        watcher.evaluation(step, {"phase": phase, **found}, is_best)

    def keep_if_best(self, score: float, step: int) -> bool:
        """Whether this score (higher is better) is the best so far; then its state is kept."""
        now, patience = self.progress, self.settings.recipe.training.early_stopping
        is_best = now.best_score is None or score > now.best_score
        if is_best:
            now.best_score, now.best_step, now.evaluations_since_best = score, step, 0
            save_best(self.state / BEST, self.network)
        else:
            now.evaluations_since_best += 1
        now.is_stopped = patience is not None and now.evaluations_since_best >= patience
        return is_best

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
        save_state(self.state / STATE, self.network, self.optimiser, self.progress, self.key, {})
        self.saved_at = time.monotonic()

    def log(self, phase: str, step: int, facts: Mapping[str, Any]) -> None:
        now = self.progress
        line = {"phase": phase, "step": step, "seconds": round(now.seconds, 3), **facts}
        now.curve_bytes = self.curve.write(line)

    def read_curve(self) -> list[dict[str, Any]]:
        lines = self.curve.path.read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]
