"""One step of pretraining, from masked texts to moved weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from mops.encoder.network import Network
from mops.fit.clip import clip, dense
from mops.fit.rates import rate_factor
from mops.fit.step import StepFacts, refuse_nan
from mops.mlm.masking import Masked
from mops.mlm.model import masked_loss
from mops.settings import Training


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
    norm = clip(network, training.max_grad_norm)
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
