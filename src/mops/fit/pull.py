"""Soft sharing: an L2 term that pulls copies together, or weights to where they started.

The term is strength x sum of |w - m|^2 over the owners that a plan's pull row names, with m the
mean of the copies of one part (Duong et al. 2015) or the first weights (L2-SP, Li et al. 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mops.encoder.network import Network

Start = Mapping[str, Tensor]  # owner.name -> first weights
NO_START: Start = {}


def keep_start(network: Network) -> dict[str, Tensor]:
    """The first weights of everything that is pulled back to them."""
    owners = {o for p in network.layout.pulled if p.towards == "start" for o in p.owners}
    return {
        f"{owner}.{name}": parameter.detach().clone()
        for owner, name, parameter in network.owner_parameters()
        if owner in owners
    }


@torch.no_grad()
def pull(network: Network, start: Start, learning: Sequence[str]) -> None:
    """Add the gradient of the L2 terms, 2 x strength x (w - m), for the tasks that learn.

    A copy without a loss of its own would follow the others at the full rate, however weak the
    term: Adam knows only a gradient's direction.
    """
    for owner, parameter, aim, strength in pulled_parameters(network, start):
        if not set(learning) & set(network.layout.users[owner]):
            continue
        if not parameter.requires_grad:  # frozen in this stage
            continue
        if parameter.grad is None:  # no task of this step passes it
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad = parameter.grad.to_dense()  # of word embeddings it has only a few rows
        parameter.grad.add_(parameter - aim, alpha=2 * strength)


def pulled_parameters(
    network: Network, start: Start
) -> Iterator[tuple[str, torch.nn.Parameter, Tensor, float]]:
    """(owner, parameter, where it is pulled, how strongly)."""
    for pulled in network.layout.pulled:
        copies = [dict(network.bank[owner].named_parameters()) for owner in pulled.owners]
        for name in copies[0]:
            same = [parameters[name] for parameters in copies]
            if pulled.towards == "copies":
                aims = [torch.stack([p.detach() for p in same]).mean(0)] * len(same)
            else:
                aims = [start[f"{owner}.{name}"] for owner in pulled.owners]
            for owner, parameter, aim in zip(pulled.owners, same, aims, strict=True):
                yield owner, parameter, aim, pulled.strength
