"""What one step leaves in the gradients: those of its own batch, clipped."""

from __future__ import annotations

import torch

from building import build_network, mixed_batch
from mops.config.training import Training
from mops.model.network import Network
from mops.training.optim import build_optimizer
from stepping import take_step

STILL = {"learning_rate": 1e-12, "head_learning_rate": 1e-12, "weight_decay": 0.0}


def gradient_norm(network: Network) -> float:
    dense = (p.grad.to_dense() for p in network.parameters() if p.grad is not None)
    return float(torch.stack([gradient.norm() for gradient in dense]).norm())


def test_a_step_forgets_the_gradients_of_the_last_one() -> None:
    network, training = build_network("shared"), Training(max_steps=3, max_grad_norm=0.0, **STILL)
    optimizer, batch = build_optimizer(network, training), mixed_batch(network)
    first, second = (take_step(network, optimizer, batch, training, total=3) for _ in range(2))
    torch.testing.assert_close(second.gradient_norm, first.gradient_norm, rtol=1e-4, atol=0)


def test_gradients_are_clipped_to_the_given_norm() -> None:
    network, training = build_network("shared"), Training(max_steps=3, max_grad_norm=0.01, **STILL)
    optimizer = build_optimizer(network, training)
    facts = take_step(network, optimizer, mixed_batch(network), training, total=3)
    assert facts.gradient_norm > 0.02
    torch.testing.assert_close(gradient_norm(network), 0.01, rtol=1e-3, atol=0)
