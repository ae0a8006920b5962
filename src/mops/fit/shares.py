"""The share of each task in the gradient of what tasks share: weights that do nothing show here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from mops.data.batches import Batch
from mops.encoder.network import Network
from mops.encoder.packing import Packer
from mops.fit.gradients import shared_parameters
from mops.fit.step import compute_losses, scaled
from mops.fit.weights import Weighting

Losses = Callable[[str], Mapping[str, Tensor]]  # of one task of the batch
SHARE_STEPS = 50  # between measurements: each takes about the time of a step


def gradient_shares(
    network: Network, weighting: Weighting, batch: Batch, seed: int, pack: Packer | None = None
) -> dict[str, float]:
    """The shares of the tasks of a batch; each task's rows pass alone: together one pass."""
    return shares_of(
        network,
        weighting,
        batch,
        seed,
        lambda task: compute_losses(network, rows_of(batch, task), pack),
    )


def shares_of(
    network: Network, weighting: Weighting, batch: Batch, seed: int, losses: Losses
) -> dict[str, float]:
    """|g_i| / sum_j |g_j| of the weighted losses over all weights that tasks of the batch share.

    Empty where nothing is shared. Between two steps it changes nothing: a step begins with a seed
    of its own.
    """
    shared = shared_parameters(network, batch.targets)
    if not shared:
        return {}
    torch.manual_seed(seed)  # of dropout
    network.train()
    norms = {}
    for task in batch.targets:
        term = scaled(weighting.weigh(losses(task)), batch)[task]
        norms[task] = float(norm_of(term, shared))
    total = sum(norms.values())
    return {task: norm / total for task, norm in norms.items()} if total else {}


def rows_of(batch: Batch, task: str) -> Batch:
    segments = tuple(segment for segment in batch.segments if task in segment.tasks)
    return Batch(segments, {task: batch.targets[task]})


def norm_of(term: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    if not term.requires_grad:
        return torch.zeros(())
    gradients = torch.autograd.grad(term, parameters, allow_unused=True)
    norms = [gradient.to_dense().norm() for gradient in gradients if gradient is not None]
    return torch.stack(norms).norm() if norms else torch.zeros(())
