"""The loss functions. Each takes the raw outputs of a head.

Shapes: R rows, O outputs, C classes. Dimensions before R (the networks of an ensemble) are kept:
each network has a loss of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from mops.tasks import Task


def cross_entropy(outputs_RO: Tensor, targets_R: Tensor, weights_O: Tensor | None) -> Tensor:
    losses_R = F.cross_entropy(
        outputs_RO.flatten(0, -2), targets_R.flatten().long(), reduction="none"
    ).view(targets_R.shape)
    return mean_by_class(losses_R, targets_R, weights_O)


def binary_cross_entropy(outputs_RO: Tensor, targets_R: Tensor, weights_O: Tensor | None) -> Tensor:
    losses_R = F.binary_cross_entropy_with_logits(
        outputs_RO[..., 0], targets_R.to(outputs_RO.dtype), reduction="none"
    )
    return mean_by_class(losses_R, targets_R, weights_O)


def ordinal(outputs_RO: Tensor, targets_R: Tensor, weights_O: Tensor | None) -> Tensor:
    """Output k is the logit of P(y > k); the sum over k of binary cross-entropies.

    Frank and Hall 2001, with one network for all thresholds as in Cheng et al. 2008 (NNRank).
    """
    steps_O = torch.arange(outputs_RO.shape[-1], device=outputs_RO.device)
    is_above_RO = (targets_R[..., None] > steps_O).to(outputs_RO.dtype)
    losses_RO = F.binary_cross_entropy_with_logits(outputs_RO, is_above_RO, reduction="none")
    return mean_by_class(losses_RO.sum(dim=-1), targets_R, weights_O)


def mean_by_class(losses_R: Tensor, targets_R: Tensor, weights_C: Tensor | None) -> Tensor:
    """The mean weighted by class, as in torch's cross-entropy."""
    if weights_C is None:
        return losses_R.mean(dim=-1)
    row_weights_R = weights_C[targets_R.long()]
    return (losses_R * row_weights_R).sum(dim=-1) / row_weights_R.sum(dim=-1)


def mse(outputs_RO: Tensor, targets_R: Tensor, _: Tensor | None) -> Tensor:
    targets_R = targets_R.to(outputs_RO.dtype)
    return F.mse_loss(outputs_RO[..., 0], targets_R, reduction="none").mean(dim=-1)


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "ordinal": ordinal,
    "mse": mse,
}


def loss_of(task: Task, outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    """The loss of a task on a batch of its rows."""
    given = task.class_weights
    weights = torch.tensor(given, dtype=outputs_RO.dtype).to(outputs_RO.device) if given else None
    return LOSSES[task.loss_name](outputs_RO, targets_R, weights)
