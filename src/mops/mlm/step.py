"""One step of pretraining, from masked texts to moved weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mops.encoder.network import Network
from mops.fit.step import StepFacts, clip, refuse_nan
from mops.mlm.masking import Masked
from mops.mlm.model import head_owner, masked_loss
from mops.mlm.settings import Budget
from mops.settings import Training


def take_step(
    network: Network,
    optimiser: torch.optim.Optimizer,
    batch: Sequence[Masked],
    training: Training,
    *,
    step: int,
    budget: Budget,
) -> StepFacts:
    """Forward, cross entropy of the chosen words, backward, clip, move."""
    torch.manual_seed(training.seed * 1_000_003 + step)  # dropout follows from seed and step alone
    choose_learners(network, step, budget)
    loss = masked_loss(network, batch)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = clip(network, training.max_grad_norm)
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * budget.rate_factor(training, step)
    optimiser.step()
    value = float(loss.detach())
    return refuse_nan(
        StepFacts(losses={"words": value}, loss=value, gradient_norm=float(norm)), step
    )


def choose_learners(network: Network, step: int, budget: Budget) -> None:
    """First the head alone, on an encoder without dropout and without gradients; then all."""
    head = head_owner(network)
    for owner, module in network.bank.items():
        is_learning = owner == head or step >= budget.head_steps
        module.requires_grad_(is_learning)
        module.train(is_learning)
