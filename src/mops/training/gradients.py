"""How the gradients of several tasks become one: a sum, or an aggregator such as PCGrad.

Shapes: T tasks, P numbers in all shared weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mops.config.training import AGGREGATORS, SUM
from mops.model.network import Network
from mops.training.distributed import ALONE, ProcessGroup
from mops.training.losses import Stateful

if TYPE_CHECKING:
    from torchjd.aggregation import Aggregator


class Sum(Stateful):
    """One backward pass of the sum of all terms."""

    def backward(
        self, network: Network, terms: Mapping[str, Tensor], group: ProcessGroup = ALONE
    ) -> Tensor:
        """Fill `.grad` of every weight, summed over all processes; returns this process's loss."""
        loss = total_of(terms)
        loss.backward()  # type: ignore[no-untyped-call]
        group.sum_gradients(network.parameters())
        return loss


def total_of(terms: Mapping[str, Tensor]) -> Tensor:
    device = next(iter(terms.values())).device
    return sum(terms.values(), start=torch.zeros((), device=device))


class Combined(Stateful):
    """One gradient per task, combined over the weights that tasks of the step share.

    A task's gradient is one vector over all shared weights, as in PCGrad (Yu et al. 2020), with
    zeros for weights that are not on its route. A weight on the route of a single task of the step
    gets its plain gradient. A task whose vector is zero (its weight is 0) is left out: the shortest
    vector between it and the others would be zero too, and nothing would learn.
    """

    def __init__(self, name: str) -> None:
        # by tasks: some have state
        self.aggregators: dict[tuple[str, ...], Aggregator] = defaultdict(
            partial(build_aggregator, name)
        )

    def backward(
        self, network: Network, terms: Mapping[str, Tensor], group: ProcessGroup = ALONE
    ) -> Tensor:
        shared = shared_parameters(network, terms)
        if not shared:
            return Sum().backward(network, terms, group)
        jacobian_TP, reached = split_gradients(terms, shared)
        reached = group.sum_jacobian(jacobian_TP, reached)
        group.sum_gradients(network.parameters())  # of weights that are not shared
        group.sync_random_state()  # some aggregators draw an order of the tasks
        is_nonzero = jacobian_TP.any(dim=1).tolist()
        tasks = tuple(task for task, is_kept in zip(terms, is_nonzero, strict=True) if is_kept)
        rows_TP = jacobian_TP if all(is_nonzero) else jacobian_TP[is_nonzero]
        combined_P = self.combine(tasks, rows_TP)
        pieces = torch.split(combined_P, [parameter.numel() for parameter in shared])
        for piece, parameter, is_reached in zip(pieces, shared, reached, strict=True):
            parameter.grad = piece.view_as(parameter) if is_reached else None
        return total_of(terms)

    def combine(self, tasks: tuple[str, ...], rows_TP: Tensor) -> Tensor:
        # Solvers fail on NaN; the trainer reports it after the step.
        if len(tasks) < 2 or not rows_TP.isfinite().all():
            return rows_TP.sum(dim=0)
        combined_P: Tensor = self.aggregators[tasks](rows_TP)
        return combined_P

    def state(self) -> Mapping[str, Tensor]:
        return {
            f"{'+'.join(tasks)}/{name}": tensor.clone()  # torchjd names one buffer twice
            for tasks, aggregator in self.aggregators.items()
            for name, tensor in aggregator.state_dict().items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for joined in {key.partition("/")[0] for key in state}:
            tasks = tuple(joined.split("+"))
            aggregator = self.aggregators[tasks]
            aggregator(torch.zeros(len(tasks), 1))  # its buffers are made at the first call
            aggregator.load_state_dict(
                {k.partition("/")[2]: v for k, v in state.items() if k.partition("/")[0] == joined}
            )


Gradients = Sum | Combined


def build_gradients(name: str) -> Gradients:
    return Sum() if name == SUM else Combined(name)


def build_aggregator(name: str) -> Aggregator:
    import torchjd.aggregation

    row = AGGREGATORS[name]
    aggregator: Aggregator = getattr(torchjd.aggregation, row.kind)(**row.options)
    return aggregator


def shared_parameters(network: Network, tasks: Iterable[str]) -> list[nn.Parameter]:
    """The weights that learn and that more than one of these tasks trains."""
    chosen, trained_by = set(tasks), network.layout.trained_by
    return [
        parameter
        for owner, _, parameter in network.owner_parameters()
        if parameter.requires_grad and len(chosen & set(trained_by[owner])) > 1
    ]


def split_gradients(
    terms: Mapping[str, Tensor], shared: Sequence[nn.Parameter]
) -> tuple[Tensor, list[bool]]:
    """One row per task over the shared weights, and which of these weights any task reaches.

    All other weights keep their gradients in `.grad`. Each task has a backward pass through the
    same graph, so the dropout masks are those of a sum.
    """
    sizes = [parameter.numel() for parameter in shared]
    jacobian_TP = shared[0].new_zeros(len(terms), sum(sizes))
    reached = [False] * len(shared)
    for n, term in enumerate(terms.values(), start=1):
        if not term.requires_grad:
            continue
        term.backward(retain_graph=n < len(terms))  # type: ignore[no-untyped-call]
        for i, piece in enumerate(torch.split(jacobian_TP[n - 1], sizes)):
            gradient, shared[i].grad = shared[i].grad, None
            if gradient is not None:
                piece.copy_(gradient.to_dense().flatten())
                reached[i] = True
    return jacobian_TP, reached
