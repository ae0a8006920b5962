"""Gradients before the optimiser takes them: clipped, and dense where they were rows.

A step touches a few hundred of the thirty thousand rows of the word embeddings. Their gradient is
made of these rows alone; the optimiser, whose moments move every row, gets it as a dense tensor
that is kept from step to step and is zero everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

KEPT = WeakIdKeyDictionary()  # parameter -> zeros, between two steps


def clip(network: nn.Module, most: float) -> Tensor:
    """Clip by the norm of all gradients together; 0 only measures it."""
    gradients = [values_of(p) for p in network.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if most and norm > most:
        torch._foreach_mul_(gradients, most / (norm + 1e-6))
    return norm


def values_of(parameter: nn.Parameter) -> Tensor:
    """The numbers of a gradient, as they lie in it."""
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return parameter.grad
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad.values()


@contextmanager
def dense(network: nn.Module) -> Iterator[None]:
    """Inside, every gradient is dense."""
    rows = [
        (parameter, parameter.grad.coalesce())
        for parameter in network.parameters()
        if parameter.grad is not None and parameter.grad.is_sparse
    ]
    for parameter, gradient in rows:
        if parameter not in KEPT:
            KEPT[parameter] = torch.zeros_like(parameter)
        room: Tensor = KEPT[parameter]
        parameter.grad = room.index_copy_(0, gradient.indices()[0], gradient.values())
    yield
    for parameter, gradient in rows:
        parameter.grad = gradient
        KEPT[parameter].index_fill_(0, gradient.indices()[0], 0.0)
