"""Heads: from the vectors of a row to the outputs of its task. The last layer is always linear.

Shapes: R rows, D width of one text's vector, F fields, H hidden width.
Dimensions before R (networks that are trained as a batch) are carried along.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.model.attention import Dropout
from mops.model.blocks import ACTIVATIONS, Dense
from mops.plans.layout import HeadInput
from mops.plans.shapes import Reading
from mops.tasks import Task

FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda u, v: u + v,
    "concat": lambda u, v: torch.cat([u, v], dim=-1),
    "product": lambda u, v: u * v,
    "difference": lambda u, v: (u - v).abs(),
}


def build_head(task: Task, reading: Reading, inputs: HeadInput, dropout: float) -> nn.Module:
    """The head of a task with its initial weights."""
    kind = CosineHead if reading.head(task.name).kind == "cosine" else DenseHead
    return kind(task, reading, inputs, dropout)


class FieldAttention(nn.Module):
    """A learned weight for each field: sum_j softmax_j(q . P_j x_j / sqrt(d)) P_j x_j.

    The combination of task outputs in MTRec (Bi et al. 2022), with one query for all rows.
    """

    def __init__(self, inputs: HeadInput) -> None:
        super().__init__()
        self.projections = nn.ModuleList(Dense(width, inputs.width) for width in inputs.fields)
        self.query = nn.Parameter(torch.zeros(inputs.width))  # equal weights at first

    def forward(self, fields: Sequence[Tensor]) -> Tensor:
        pairs = zip(self.projections, fields, strict=True)
        projected_RFD = torch.stack([project(field) for project, field in pairs], dim=1)
        scores_RF = (projected_RFD * self.query).sum(2) / self.query.shape[0] ** 0.5
        return (scores_RF.softmax(1)[:, :, None] * projected_RFD).sum(1)


class DenseHead(nn.Module):
    """Pair features and fed outputs of other tasks, then an MLP (`linear`: of depth 0)."""

    def __init__(self, task: Task, reading: Reading, inputs: HeadInput, dropout: float) -> None:
        super().__init__()
        shape, width = reading.head(task.name), inputs.wide
        self.norm = nn.LayerNorm(inputs.width, eps=1e-12) if shape.norm else nn.Identity()
        self.features = reading.features if reading.texts_apart(task.is_pair) else ()
        self.combine: Callable[..., Tensor] = partial(torch.cat, dim=-1)
        if inputs.combine == "attention":
            self.combine = FieldAttention(inputs)
        layers: list[nn.Module] = [Dropout(dropout)]
        for _ in range(shape.depth if shape.kind == "mlp" else 0):
            layers += [Dense(width, shape.width), ACTIVATIONS[shape.activation], Dropout(dropout)]
            width = shape.width
        self.layers = nn.Sequential(*layers)
        self.output = Dense(width, task.outputs)
        if task.range:  # start in the middle of the range instead of at zero
            nn.init.constant_(self.output.bias, sum(task.range) / 2)

    def forward(
        self, vectors: Sequence[Tensor], fed: Sequence[Tensor] = (), what: str = "logits"
    ) -> Tensor:
        """The outputs, or the last hidden vector before them (`hidden`)."""
        normed = [self.norm(vector_RD) for vector_RD in vectors]
        own = [FEATURES[name](*normed) for name in self.features] or normed
        hidden_RH = self.layers(self.combine([torch.cat(own, dim=-1), *fed]))
        return hidden_RH if what == "hidden" else self.output(hidden_RH)


COSINE_SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "half": lambda cosine: (cosine + 1) / 2,
    "relu": torch.relu,
    "learned": lambda cosine: cosine,
}


class CosineHead(nn.Module):
    """The cosine of the two texts' vectors, scaled to the range of the task."""

    def __init__(self, task: Task, reading: Reading, inputs: HeadInput, dropout: float) -> None:
        super().__init__()
        assert task.range is not None  # recipes allow it only for a similarity
        shape, width = reading.head(task.name), inputs.width
        self.norm = nn.LayerNorm(width, eps=1e-12) if shape.norm else nn.Identity()
        self.dropout = Dropout(dropout)
        self.project = Dense(width, width) if shape.project else nn.Identity()
        self.scale = COSINE_SCALES[shape.scale]
        self.low, self.high = task.range
        is_learned = shape.scale == "learned"
        self.line = nn.Parameter(torch.tensor([0.5, 0.5])) if is_learned else None

    def forward(
        self, vectors: Sequence[Tensor], fed: Sequence[Tensor] = (), what: str = "logits"
    ) -> Tensor:
        u_RD, v_RD = (self.project(self.dropout(self.norm(vector))) for vector in vectors)
        fraction_R = self.scale(F.cosine_similarity(u_RD, v_RD, dim=-1))
        if self.line is not None:
            fraction_R = self.line[..., 0, None] * fraction_R + self.line[..., 1, None]
        return (self.low + (self.high - self.low) * fraction_R)[..., None]
