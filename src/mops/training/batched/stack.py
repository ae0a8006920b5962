"""Many small networks on the same frozen vectors take their steps together.

A step of one network is a few dozen calls of torch on little work. Heads and losses of all networks
are computed at once, each network with its own weights, rows and draws; the late layers, where the
work is, network by network (products of a stack were measured no faster than those of one network).
No gradient passes between networks.

Shapes: N networks, T vectors of a step, R rows of a task, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mops.config.training import Training
from mops.model.network import Network
from mops.training.batched.heads import Draws, stack_heads
from mops.training.batched.late import LateLayers, late_layers
from mops.training.batched.moves import Moves, moves_of
from mops.training.losses import loss_of
from mops.training.optim import rate_factor
from mops.training.step import StepFacts, step_seed


@dataclass(frozen=True)
class Member:
    """One network of a stack: how it is trained, and the optimiser that holds its moments."""

    network: Network
    optimiser: torch.optim.Optimizer
    training: Training


@dataclass(frozen=True)
class Rows:
    """What the networks take of one task in a step."""

    vectors_NTD: Tensor  # of frozen features, text after text
    targets_NR: Tensor
    scale: float = 1.0  # factor on the loss, as in Batch


@dataclass(frozen=True)
class Pattern:
    """All that follows from the tasks of a step and their numbers of vectors."""

    late: tuple[LateLayers, ...]
    moves: tuple[Moves, ...]
    vectors: Mapping[str, slice]


class Stack:
    """Networks with the same tasks and heads, and with late layers of their own."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self.layout = members[0].network.layout
        self.draws = Draws(len(members))
        self.heads = {
            task: stack_heads([m.network.bank[route.head] for m in members], self.draws.masks)
            for task, route in self.layout.routes.items()
        }
        weights = [[m.training.weight(task) for m in members] for task in self.layout.tasks]
        dtype = next(members[0].network.parameters()).dtype
        self.weights = dict(zip(self.layout.tasks, torch.tensor(weights, dtype=dtype), strict=True))
        self.patterns: dict[tuple[tuple[str, int], ...], Pattern] = {}
        give_places([member.network for member in members])

    def take_step(self, rows: Mapping[str, Rows], step: int, total: int) -> list[StepFacts]:
        """`take_step` for every network, each on its own rows; one that fails does not move."""
        self.draws.begin([step_seed(m.training, step) for m in self.members])
        pattern = self.pattern({task: of.vectors_NTD.shape[1] for task, of in rows.items()})
        with torch.no_grad():
            passed = [late(x) for late, x in zip(pattern.late, join(rows), strict=True)]
            vectors_NTD = torch.stack([vectors for vectors, _ in passed])
        losses, slopes_NTD = self.backward(vectors_NTD, rows, pattern)
        facts = []
        for n, member in enumerate(self.members):
            with torch.no_grad():
                pattern.late[n].fill_gradients(slopes_NTD[n], passed[n][1])
                facts.append(self.move(member, pattern.moves[n], losses, n, step, total))
        return facts

    def backward(
        self, vectors_NTD: Tensor, rows: Mapping[str, Rows], pattern: Pattern
    ) -> tuple[dict[str, list[float]], Tensor]:
        """The losses (their sums as ''); the gradients of the vectors, at place those of heads."""
        vectors_NTD.requires_grad_()
        losses_N = {
            task: self.loss(task, vectors_NTD[:, pattern.vectors[task]], of)
            for task, of in rows.items()
        }
        totals_N = torch.stack(
            [rows[task].scale * self.weights[task] * loss for task, loss in losses_N.items()]
        ).sum(0)
        for task in rows:
            for weight in self.heads[task].parameters():
                assert weight.grad is not None
                weight.grad.zero_()
        totals_N.sum().backward()  # type: ignore[no-untyped-call]
        assert vectors_NTD.grad is not None
        found = {task: loss.tolist() for task, loss in losses_N.items()}
        return {"": totals_N.tolist(), **found}, vectors_NTD.grad

    def loss(self, task: str, vectors_NTD: Tensor, rows: Rows) -> Tensor:
        count, texts = vectors_NTD.shape[1], vectors_NTD.shape[1] // rows.targets_NR.shape[1]
        shape = (len(vectors_NTD), count // texts, texts, vectors_NTD.shape[2])
        outputs_NRO = self.heads[task](vectors_NTD.reshape(shape).unbind(2))
        return loss_of(self.layout.tasks[task], outputs_NRO, rows.targets_NR)

    def move(
        self,
        member: Member,
        moves: Moves,
        losses: Mapping[str, Sequence[float]],
        n: int,
        step: int,
        total: int,
    ) -> StepFacts:
        training = member.training
        facts = StepFacts(
            losses={task: values[n] for task, values in losses.items() if task},
            loss=losses[""][n],
            gradient_norm=moves.norm(),
            weights={task: training.weight(task) for task in self.layout.tasks},
        )
        if facts.is_finite:
            factor = rate_factor(training, step, total)
            moves.move(factor, facts.gradient_norm, training.max_grad_norm)
        return facts

    def pattern(self, sizes: Mapping[str, int]) -> Pattern:
        key = tuple(sizes.items())
        if key not in self.patterns:
            ends = [sum(list(sizes.values())[: n + 1]) for n in range(len(sizes))]
            self.patterns[key] = Pattern(
                late=tuple(late_layers(m.network, sizes) for m in self.members),
                moves=tuple(moves_of(m.network, m.optimiser, sizes) for m in self.members),
                vectors={
                    task: slice(end - sizes[task], end)
                    for task, end in zip(sizes, ends, strict=True)
                },
            )
        return self.patterns[key]


def join(rows: Mapping[str, Rows]) -> Tensor:
    return torch.cat([of.vectors_NTD for of in rows.values()], dim=1)


def give_places(networks: Sequence[Network]) -> None:
    """One place for the gradients of late layers, large enough for each network in its turn."""
    owned = [
        [p for o in late_owners(network) for p in network.bank[o].parameters()]
        for network in networks
    ]
    sizes = [sum(weight.numel() for weight in weights) for weights in owned]
    place = next(networks[0].parameters()).new_zeros(max(sizes))
    for weights, size in zip(owned, sizes, strict=True):
        pieces = torch.split(place[:size], [weight.numel() for weight in weights])
        for weight, piece in zip(weights, pieces, strict=True):
            weight.grad = piece.view_as(weight)


def late_owners(network: Network) -> list[str]:
    return list(dict.fromkeys(o for route in network.layout.routes.values() for o in route.late))
