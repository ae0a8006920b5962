"""Heads: from the vectors of a row to the outputs of its task. The last layer is always linear.

Shapes: R rows, D width of one text's vector, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.encoder.blocks import ACTIVATIONS, Dense
from mops.shapes import HeadShape, Reading
from mops.tasks import Task

FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda u, v: u + v,
    "concat": lambda u, v: torch.cat([u, v], dim=1),
    "product": lambda u, v: u * v,
    "difference": lambda u, v: (u - v).abs(),
}


def build_head(task: Task, reading: Reading, width: int, dropout: float) -> nn.Module:
    shape = reading.head(task.name)
    if shape.kind == "cosine":
        return CosineHead(shape, task, width, dropout)
    return DenseHead(shape, task, reading, width, dropout)


class DenseHead(nn.Module):
    """Pair features, then an mlp of any depth (none: `linear`)."""

    def __init__(
        self, shape: HeadShape, task: Task, reading: Reading, width: int, dropout: float
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-12) if shape.norm else nn.Identity()
        self.features = reading.features if reading.texts_apart(task.is_pair) else ()
        wide = reading.vectors(task.is_pair) * width
        layers: list[nn.Module] = [nn.Dropout(dropout)]
        for _ in range(shape.depth if shape.kind == "mlp" else 0):
            layers += [Dense(wide, shape.width), ACTIVATIONS[shape.activation]]
            layers += [nn.Dropout(dropout)]
            wide = shape.width
        self.layers = nn.Sequential(*layers)
        self.output = Dense(wide, task.outputs)
        if task.range:  # start in the middle of the range instead of at zero
            nn.init.constant_(self.output.bias, sum(task.range) / 2)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        normed = [self.norm(vector_RD) for vector_RD in vectors]
        seen = [FEATURES[name](*normed) for name in self.features] or normed
        output_RO: Tensor = self.output(self.layers(torch.cat(seen, dim=1)))
        return output_RO


COSINE_SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "half": lambda cosine: (cosine + 1) / 2,
    "relu": torch.relu,
    "learned": lambda cosine: cosine,
}


class CosineHead(nn.Module):
    """The cosine of the two texts' vectors, laid onto the range of the task."""

    def __init__(self, shape: HeadShape, task: Task, width: int, dropout: float) -> None:
        super().__init__()
        assert task.range is not None  # the recipe allows a cosine only for a similarity
        self.norm = nn.LayerNorm(width, eps=1e-12) if shape.norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.project = Dense(width, width) if shape.project else nn.Identity()
        self.scale = COSINE_SCALES[shape.scale]
        self.low, self.high = task.range
        is_learned = shape.scale == "learned"
        self.line = nn.Parameter(torch.tensor([0.5, 0.5])) if is_learned else None

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        u_RD, v_RD = (self.project(self.dropout(self.norm(vector))) for vector in vectors)
        share_R = self.scale(F.cosine_similarity(u_RD, v_RD))
        if self.line is not None:
            share_R = self.line[0] * share_R + self.line[1]
        return (self.low + (self.high - self.low) * share_R)[:, None]
