"""Adapters: small additions of a task beside, inside or on top of the encoder's layers.

Each kind is one equation over its parts, which are owners of the bank. All start at the identity:
the last projection, or the vector, is zero, so that the first hidden states are those of the
encoder alone. Gates do not start at zero, because then nothing would learn.

Shapes: T tokens, D width, S size of the adapter, X the width at the site.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from mops.model.attention import Buckets, Dropout, attend
from mops.model.blocks import ACTIVATIONS, Dense, product
from mops.plans.rows import GATE, AdapterSite

Parts = Mapping[str, nn.Module]
Equation = Callable[[Parts, Tensor, Buckets], Tensor]


def pal(parts: Parts, hidden_TD: Tensor, buckets: Buckets, heads: int) -> Tensor:
    """V^D attention(V^E h), no output matrix (Stickland and Murray 2019, equation 3).

    Their code (Bert-n-Pals) applies GELU to it: `activation: gelu`.
    """
    small_TS = parts["attend"](parts["down"](hidden_TD), buckets, heads)
    return parts["up"](small_TS)


def bottleneck(parts: Parts, hidden_TD: Tensor, _: Buckets, heads: int) -> Tensor:
    """W_up GELU(W_down h) (Houlsby et al. 2019)."""
    return parts["up"](nn.functional.gelu(parts["down"](hidden_TD)))


def low_rank(parts: Parts, hidden_TD: Tensor, _: Buckets, heads: int) -> Tensor:
    """V^D V^E h, without attention (Stickland and Murray 2019; with GELU: a bottleneck)."""
    return parts["up"](parts["down"](hidden_TD))


def experts(parts: Parts, hidden_TD: Tensor, _: Buckets, heads: int) -> Tensor:
    """sum_i softmax_i(W h) W_up,i GELU(W_down,i h): each task weighs experts that all tasks share.

    Multi-gate mixture of experts (MMoE, Ma et al. 2018), with bottlenecks as experts.
    """
    weights_TN = parts["router"](hidden_TD).softmax(1)
    inner_TNS = nn.functional.gelu(parts["down"](hidden_TD)).view(*weights_TN.shape, -1)
    return parts["up"]((weights_TN[:, :, None] * inner_TNS).flatten(1))


def lora(parts: Parts, hidden_TD: Tensor, _: Buckets, heads: int) -> Tensor:
    """B A h for the queries and for the values, nothing for the keys (Hu et al. 2021)."""
    query_TD, value_TD = parts["up"](parts["down"](hidden_TD))
    return torch.cat([query_TD, torch.zeros_like(query_TD), value_TD], dim=1)


def task_embedding(parts: Parts, input_TX: Tensor, _: Buckets, heads: int) -> Tensor:
    """One vector for every token: Q + Q_i, K + K_i, V + V_i in attention (EmBERT)."""
    return parts["vector"](len(input_TX))


def amplitude(parts: Parts, hidden_TD: Tensor, _: Buckets, heads: int) -> Tensor:
    """(2 sigmoid(a) - 1) h; added to h it is 2 sigmoid(a) h (LHUC, Swietojanski et al. 2016)."""
    return (2 * torch.sigmoid(parts["vector"](1)) - 1) * hidden_TD


EQUATIONS: dict[str, Callable[..., Tensor]] = {
    equation.__name__: equation
    for equation in (pal, bottleneck, low_rank, experts, lora, task_embedding, amplitude)
}


def equation_of(adapter: AdapterSite) -> Equation:
    """The equation of an adapter at its site, with its activation, times its gate or its factor."""
    equation: Equation = partial(EQUATIONS[adapter.addition.kind], heads=adapter.heads)
    if adapter.addition.activation:
        equation = activated(equation, ACTIVATIONS[adapter.addition.activation])
    if GATE in adapter.parts:
        return lambda parts, *inputs: parts[GATE](equation(parts, *inputs))
    if adapter.addition.scale != 1:
        return lambda parts, *inputs: adapter.addition.scale * equation(parts, *inputs)
    return equation


def activated(equation: Equation, activation: nn.Module) -> Equation:
    return lambda *inputs: activation(equation(*inputs))


def projection(n_in: int, n_out: int, *, std: float = 0.02) -> Dense:  # as in BERT
    layer = Dense(n_in, n_out)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


class SmallAttention(nn.Module):
    """Multi-head attention without an output matrix."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.query_key_value = projection(size, 3 * size)
        self.dropout = Dropout(dropout)

    def forward(self, small_TS: Tensor, buckets: Buckets, heads: int) -> Tensor:
        return attend(self.query_key_value(small_TS), buckets, heads, self.dropout.active)


class Vector(nn.Module):
    """The same vector for every token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(width))

    def forward(self, tokens: int) -> Tensor:
        return self.vector.expand(tokens, -1)


class LowRankUp(nn.Module):
    """B of the queries and B of the values; their A are the halves of one matrix."""

    def __init__(self, rank: int, width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(width, rank))
        self.value = nn.Parameter(torch.zeros(width, rank))

    def forward(self, small_TS: Tensor) -> tuple[Tensor, Tensor]:
        query_TR, value_TR = small_TS.chunk(2, dim=1)
        return product(query_TR, self.query), product(value_TR, self.value)


class Gate(nn.Module):
    """A learned number; with a bound b it is b tanh(g / b)."""

    def __init__(self, start: float, bound: float) -> None:
        super().__init__()
        self.bound = bound
        first = bound * math.atanh(start / bound) if bound else start
        self.gate = nn.Parameter(torch.tensor(first))

    def forward(self, added_TX: Tensor) -> Tensor:
        factor = self.bound * torch.tanh(self.gate / self.bound) if self.bound else self.gate
        return factor * added_TX


PARTS: dict[str, Callable[[AdapterSite, float], nn.Module]] = {  # keys as in ADDITION_SIZES
    "down": lambda a, _: projection(a.encoder.width, a.size),
    "up": lambda a, _: projection(a.size, a.encoder.width, std=0),
    "attend": lambda a, dropout: SmallAttention(a.size, dropout),
    "router": lambda a, _: projection(a.encoder.width, a.addition.experts),
    "vector": lambda a, _: Vector(a.width),
    GATE: lambda a, _: Gate(a.addition.scale, a.addition.bound),
    "lora down": lambda a, _: Dense(a.encoder.width, 2 * a.size, bias=False),
    "lora up": lambda a, _: LowRankUp(a.size, a.encoder.width),
}


def build_part(adapter: AdapterSite, part: str, dropout: float) -> nn.Module:
    """A part of an adapter with its initial weights."""
    return adapter.find(PARTS, part)(adapter, dropout)
