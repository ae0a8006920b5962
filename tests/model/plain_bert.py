"""BERT with additions, one sequence at a time and with plain torch operations only.

What the packed loop must give: no pack, no padding, no spans; the weights are read from the bank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear

from mops.data.batches import Segment

# site -> what is added there, from (number of the layer or of the place on top, what is seen)
Added = Mapping[str, Callable[[int, Tensor], Tensor]]


def attention(qkv_LE: Tensor, heads: int) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V, head by head."""
    query, key, value = (x.split(x.shape[1] // heads, dim=1) for x in qkv_LE.chunk(3, dim=1))
    mixed = [
        (q @ k.T / q.shape[1] ** 0.5).softmax(1) @ v
        for q, k, v in zip(query, key, value, strict=True)
    ]
    return torch.cat(mixed, dim=1)


def through(layer: Any, x: Tensor) -> Tensor:
    return linear(x, layer.weight, layer.bias)


def normed(norm: Any, x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def embedded(bank: nn.ModuleDict, segment: Segment) -> Tensor:
    part: Any = bank["embeddings"]
    ids, types = (torch.tensor(x).long() for x in (segment.ids, segment.types))
    summed = (
        part.word.weight[ids] + part.position.weight[: len(ids)] + part.token_type.weight[types]
    )
    return normed(part.norm, summed)


def layer_by_hand(
    bank: nn.ModuleDict, n: int, x: Tensor, add: Callable[..., Tensor], norms: str
) -> Tensor:
    attend: Any = bank[f"attention/layer{n:02d}"]
    feed: Any = bank[f"feedforward/layer{n:02d}"]
    norm: Any = bank[norms.format(n)]
    qkv = through(attend.query_key_value, x) + add("in_attention", n, x)
    mixed = through(attend.output, attention(qkv, attend.heads))
    mixed = mixed + add("after_attention", n, mixed)
    middle = normed(norm.attention, x + mixed)
    inner = through(feed.inner, middle) + add("in_feedforward", n, middle)
    output = through(feed.output, gelu(inner))
    output = output + add("after_feedforward", n, output) + add("beside_layer", n, x)
    output = normed(norm.feedforward, middle + output)
    return output + add("after_layer", n, output)


def states_by_hand(
    bank: nn.ModuleDict,
    segment: Segment,
    added: Added,
    *,
    depth: int,
    tops: int = 0,
    norms: str = "norms/layer{:02d}",
) -> Tensor:
    """The last hidden states of one sequence, with functions added at some sites."""

    def add(site: str, n: int, seen: Tensor) -> Tensor:
        return added[site](n, seen) if site in added else torch.zeros((), dtype=seen.dtype)

    with torch.inference_mode():
        x = embedded(bank, segment)
        for n in range(depth):
            x = layer_by_hand(bank, n, x, add, norms)
        for n in range(tops):
            x = x + add("on_top", n, x)
    return x


# ------------------------------------------------------------------ the equations by hand


def pal_by_hand(parts: Mapping[str, Any], x: Tensor, heads: int) -> Tensor:
    """V^D attention(V^E x), with no matrix after the attention."""
    small = through(parts["attend"].query_key_value, through(parts["down"], x))
    return through(parts["up"], attention(small, heads))


def lora_by_hand(parts: Mapping[str, Any], x: Tensor, heads: int) -> Tensor:
    """2 B A x where the factor is 2; here without it. Keys get nothing."""
    down_query, down_value = parts["down"].weight.chunk(2)
    query = x @ down_query.T @ parts["up"].query.T
    value = x @ down_value.T @ parts["up"].value.T
    return torch.cat([query, torch.zeros_like(query), value], dim=1)


def bottleneck_by_hand(parts: Mapping[str, Any], x: Tensor, heads: int) -> Tensor:
    return through(parts["up"], gelu(through(parts["down"], x)))


def low_rank_by_hand(parts: Mapping[str, Any], x: Tensor, heads: int) -> Tensor:
    return through(parts["up"], through(parts["down"], x))


def experts_by_hand(parts: Mapping[str, Any], x: Tensor, heads: int) -> Tensor:
    """One expert after the other; the bias of the last projection is the same for all."""
    weights = through(parts["router"], x).softmax(1)
    count, up = weights.shape[1], parts["up"]
    inner = gelu(through(parts["down"], x)).chunk(count, dim=1)
    outputs = [
        weights[:, [n]] * linear(own, matrix)
        for n, (own, matrix) in enumerate(zip(inner, up.weight.chunk(count, dim=1), strict=True))
    ]
    return torch.stack(outputs).sum(0) + up.bias


def amplitude_by_hand(parts: Mapping[str, Any], x: Tensor, heads: int) -> Tensor:
    """x + this = 2 x / (1 + exp(-a))."""
    return 2 * x / (1 + torch.exp(-parts["vector"].vector)) - x


def vector_by_hand(parts: Mapping[str, Any], x: Tensor, heads: int) -> Tensor:
    vector: Tensor = parts["vector"].vector
    return vector


BY_HAND: Mapping[str, Callable[[Mapping[str, Any], Tensor, int], Tensor]] = {
    "pal": pal_by_hand,
    "lora": lora_by_hand,
    "bottleneck": bottleneck_by_hand,
    "low_rank": low_rank_by_hand,
    "experts": experts_by_hand,
    "amplitude": amplitude_by_hand,
    "task_embedding": vector_by_hand,
}
