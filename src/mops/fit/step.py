"""One training step, from a batch to moved weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from mops.data.batches import Batch
from mops.encoder.network import Network
from mops.encoder.packing import Packer, pack_segments
from mops.errors import RunError
from mops.fit.clip import clip, dense
from mops.fit.distributed import ALONE, Together
from mops.fit.gradients import Gradients, Sum
from mops.fit.losses import loss_of
from mops.fit.pull import NO_START, Start, pull
from mops.fit.rates import rate_factor
from mops.fit.weights import Weighting, fixed_weights
from mops.settings import Training


@dataclass(frozen=True)
class StepFacts:
    """What one step did."""

    losses: Mapping[str, float]
    loss: float
    gradient_norm: float
    weights: Mapping[str, float] = field(default_factory=dict)  # of all tasks, in this step

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def take_step(
    network: Network,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    training: Training,
    *,
    step: int,
    total: int,
    first: int = 0,
    start: Start = NO_START,
    weighting: Weighting | None = None,
    gradients: Gradients | None = None,
    pack: Packer | None = None,
    together: Together = ALONE,
) -> StepFacts:
    """Forward, losses, their weights, backward and combine, pull, clip, move.

    `total` steps from step `first` on are one rise and fall of the rates. Without a weighting the
    recipe's numbers hold; without `gradients` they are added up. The rows of the batch may be a
    part of those of the step; the facts are those of the whole.
    """
    weighting = weighting or fixed_weights(training, network.layout.tasks)
    gradients = gradients or Sum()
    torch.manual_seed(step_seed(training, step, together.rank))
    network.train()
    losses = together.complete(compute_losses(network, batch, pack), batch.parts)
    weights, terms = weighting.weights(), scaled(weighting.weigh(losses), batch)
    optimiser.zero_grad(set_to_none=True)
    loss = gradients.backward(network, terms, together)
    together.add_gradients(weighting.parameters().values())
    pull(network, start, [task for task in network.layout.tasks if training.learns(task)])
    norm = clip(network, training.max_grad_norm)
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * rate_factor(training, step - first, total)
    with dense(network):
        optimiser.step()
    whole = sum_losses(losses, loss, batch, together)
    facts = StepFacts(*whole, gradient_norm=float(norm), weights=weights)
    weighting.note(facts.losses, step)
    return refuse_nan(facts, step)


def step_seed(training: Training, step: int, rank: int = 0) -> int:
    """Of dropout, which follows from the run's seed, the step and the process alone.

    torch keeps 32 bits of it; the golden ratio of these sets processes far apart.
    """
    return training.seed * 1_000_003 + step + rank * 0x9E3779B1


def scaled(terms: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """A row counts as it does in a usual batch of its task, also where there are more or fewer."""
    scale, parts = batch.scale, batch.parts
    return {task: scale.get(task, 1.0) * parts.get(task, 1.0) * t for task, t in terms.items()}


def compute_losses(network: Network, batch: Batch, pack: Packer | None = None) -> dict[str, Tensor]:
    """The loss of each task in the batch, in one pass."""
    device = next(network.parameters()).device
    pack = pack or partial(pack_segments, layout=network.layout, device=device)
    outputs = network(pack(batch.segments))
    return {
        task: loss_of(
            network.layout.tasks[task],
            outputs[task],
            torch.as_tensor(targets, dtype=torch.float32).to(device),
        )
        for task, targets in batch.targets.items()
    }


def sum_losses(
    losses: Mapping[str, Tensor], loss: Tensor, batch: Batch, together: Together
) -> tuple[Mapping[str, float], float]:
    """The losses of all processes: by task, and as they were weighed."""
    here = {task: batch.parts.get(task, 1.0) * float(losses[task].detach()) for task in losses}
    return together.sum_of(here), together.sum_of({"loss": float(loss.detach())})["loss"]


def refuse_nan(facts: StepFacts, step: int) -> StepFacts:
    if not facts.is_finite:
        raise RunError(
            f"step {step + 1}: the loss or its gradient is not a number "
            f"(losses {dict(facts.losses)}); "
            "lower training.learning_rate or training.head_learning_rate"
        )
    return facts
