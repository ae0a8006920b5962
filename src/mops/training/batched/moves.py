"""One network of a stack is clipped and moved: AdamW on gradients that lie at fixed places."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from mops.model.network import Network

CLIP_EPSILON = 1e-6  # as in torch's clip_grad_norm_


@dataclass(frozen=True)
class Row:
    """Weights with one rate and one decay, their gradients and moments."""

    group: dict[str, Any]  # of the optimiser: base, weight_decay, eps, betas
    weights: list[Tensor]
    slopes: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


@dataclass(frozen=True)
class Moves:
    """What the tasks of a step move in one network."""

    rows: tuple[Row, ...]
    slopes: tuple[Tensor, ...]  # all of them, flat

    def norm(self) -> float:
        """Of all gradients together."""
        norms = torch._foreach_norm(self.slopes)
        return float(torch.linalg.vector_norm(torch.stack(norms)))

    def move(self, factor: float, norm: float, most: float) -> None:
        """A step of AdamW with all rates times `factor`, clipped to the norm `most` (0: not)."""
        share = most / (norm + CLIP_EPSILON) if most else 1.0
        if share < 1:
            torch._foreach_mul_(self.slopes, share)
        for row in self.rows:
            adamw(
                row.weights,
                row.slopes,
                row.means,
                row.squares,
                [],
                row.steps,
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=row.group["betas"][0],
                beta2=row.group["betas"][1],
                lr=row.group["base"] * factor,
                weight_decay=row.group["weight_decay"],
                eps=row.group["eps"],
            )


def moves_of(network: Network, optimiser: torch.optim.Optimizer, tasks: Collection[str]) -> Moves:
    """The weights on the routes of these tasks: others have no gradient and stay as they are."""
    passed = {owner for task in tasks for owner in network.layout.routes[task].owners}
    taught = {id(p) for owner, _, p in network.owner_parameters() if owner in passed}
    rows = []
    for group in optimiser.param_groups:
        weights = [weight for weight in group["params"] if id(weight) in taught]
        if weights:
            rows.append(row_of(group, weights, optimiser))
    return Moves(tuple(rows), joined([slope for row in rows for slope in row.slopes]))


def joined(slopes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The same numbers in fewer tensors: what lies side by side in memory is one."""
    found: list[Tensor] = []
    for slope in sorted(slopes, key=Tensor.data_ptr):
        last = found[-1] if found else slope
        if found and last.data_ptr() + last.numel() * last.itemsize == slope.data_ptr():
            found[-1] = last.as_strided((last.numel() + slope.numel(),), (1,))
        else:
            found.append(slope.view(-1))
    return tuple(found)


def row_of(
    group: dict[str, Any], weights: Sequence[nn.Parameter], optimiser: torch.optim.Optimizer
) -> Row:
    states = []
    for weight in weights:
        state = optimiser.state[weight]
        if not state:  # as the optimiser's own first step
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = (
                torch.zeros_like(weight),
                torch.zeros_like(weight),
            )
        states.append(state)
    return Row(
        group=group,
        weights=[weight.detach() for weight in weights],
        slopes=[weight.grad for weight in weights if weight.grad is not None],
        means=[state["exp_avg"].detach() for state in states],
        squares=[state["exp_avg_sq"].detach() for state in states],
        steps=[state["step"] for state in states],
    )
