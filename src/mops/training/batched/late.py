"""The late layers of one network, forward and backward by hand: gradients go to fixed places.

torch's own tape would give every gradient a new place in memory. Here the networks of a stack take
turns with one place, so that it can stay in the processor's cache.

Shapes: T vectors of the step, task after task; X and Y widths of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.model.network import Network

Forward = Callable[[Tensor], Tensor]
Backward = Callable[[Tensor, Tensor], Tensor]
# activation -> itself; its gradient out of (the gradient above, what it saw)
ACTIVATIONS: dict[str, tuple[Forward, Backward]] = {
    "relu": (F.relu, lambda grad, seen: torch.ops.aten.threshold_backward(grad, seen, 0)),
    "gelu": (F.gelu, torch.ops.aten.gelu_backward),
    "tanh": (torch.tanh, lambda grad, seen: grad * (1 - torch.tanh(seen).square())),
}
Sizes = Mapping[str, int]  # task -> vectors in this step, in the order of the step


@dataclass(frozen=True)
class Span:
    """Neighbouring tasks that one owner serves, and their vectors."""

    owner: str
    vectors: slice
    weight_YX: nn.Parameter
    bias_Y: nn.Parameter


@dataclass(frozen=True)
class LateLayer:
    """One late layer as the vectors of a step meet it."""

    spans: tuple[Span, ...]
    wide: int
    forward: Forward
    backward: Backward

    def __call__(self, seen_TX: Tensor) -> Tensor:
        """What the activation sees."""
        sums_TY = seen_TX.new_empty(len(seen_TX), self.wide)
        for span in self.spans:
            rows, weight_XY = span.vectors, span.weight_YX.t()
            torch.addmm(span.bias_Y, seen_TX[rows], weight_XY, out=sums_TY[rows])
        return sums_TY

    def slopes_below(self, slopes_TY: Tensor) -> Tensor:
        """The gradient of what the layer saw."""
        below_TX = slopes_TY.new_empty(len(slopes_TY), self.spans[0].weight_YX.shape[1])
        for span in self.spans:
            torch.mm(slopes_TY[span.vectors], span.weight_YX, out=below_TX[span.vectors])
        return below_TX


@dataclass(frozen=True)
class Pass:
    """What a backward pass needs to know of the forward pass."""

    seen: tuple[Tensor, ...]  # by each layer
    sums: tuple[Tensor, ...]  # what each activation saw


@dataclass(frozen=True)
class LateLayers:
    """All late layers of a network."""

    layers: tuple[LateLayer, ...]

    def __call__(self, vectors_TX: Tensor) -> tuple[Tensor, Pass]:
        seen, sums = [], []
        for layer in self.layers:
            seen.append(vectors_TX)
            sums.append(layer(vectors_TX))
            vectors_TX = layer.forward(sums[-1])
        return vectors_TX, Pass(tuple(seen), tuple(sums))

    def slopes(self, slopes_TY: Tensor, done: Pass) -> Iterator[tuple[LateLayer, Tensor, Tensor]]:
        """(layer, gradient of its sums, what it saw), from the top down."""
        for n in reversed(range(len(self.layers))):
            layer = self.layers[n]
            slopes_TY = layer.backward(slopes_TY, done.sums[n])
            yield layer, slopes_TY, done.seen[n]
            if n:
                slopes_TY = layer.slopes_below(slopes_TY)

    def fill_gradients(self, slopes_TY: Tensor, done: Pass) -> None:
        """Write the gradient of every weight to its place."""
        for layer, above_TY, seen_TX in self.slopes(slopes_TY, done):
            filled: set[str] = set()
            for span in layer.spans:
                above, below = above_TY[span.vectors], seen_TX[span.vectors]
                weight, bias = span.weight_YX.grad, span.bias_Y.grad
                assert weight is not None and bias is not None  # places were given to all
                if span.owner in filled:  # an owner whose tasks are no neighbours
                    weight.addmm_(above.t(), below)
                    bias.add_(above.sum(0))
                else:
                    torch.mm(above.t(), below, out=weight)
                    torch.sum(above, 0, out=bias)
                filled.add(span.owner)


def late_layers(network: Network, sizes: Sizes) -> LateLayers:
    """The late layers for steps with so many vectors of each task."""
    starts = dict(zip(sizes, running(list(sizes.values())), strict=True))
    routes = {task: network.layout.routes[task].late for task in sizes}
    layers = []
    for n, row in enumerate(network.layout.plan.late):
        spans = []
        for owner, members in groupby(sizes, key=lambda task, n=n: routes[task][n]):  # type: ignore[misc]
            tasks = list(members)
            dense = network.bank[owner].get_submodule("0")
            rows = slice(starts[tasks[0]], starts[tasks[-1]] + sizes[tasks[-1]])
            weight, bias = dense.get_parameter("weight"), dense.get_parameter("bias")
            spans.append(Span(owner, rows, weight, bias))
        wide = spans[0].weight_YX.shape[0]
        layers.append(LateLayer(tuple(spans), wide, *ACTIVATIONS[row.activation]))
    return LateLayers(tuple(layers))


def running(sizes: Sequence[int]) -> list[int]:
    """Where each of the pieces starts."""
    return [sum(sizes[:n]) for n in range(len(sizes))]
