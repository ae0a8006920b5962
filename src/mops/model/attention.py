"""Attention within segments, softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017), and dropout.

Segments of similar length lie side by side in buckets; padding exists only here. Dropout uses
sixteen random bits for each number: torch draws one float after the other, which with its mask
takes a sixth of a training step on one core. Here 64 bits are drawn at a time and split into four.

Shapes: T tokens of the pack, P padded tokens, N padded tokens of a bucket, E three widths
(queries, keys, values), D width, B segments of a bucket, H heads, G = B H, L the bucket's length,
d width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.model.pack import Bucket, Buckets

STEPS = 1 << 16  # resolution of a dropout probability: 0.1 becomes 0.100006


def draw_bits(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Sixteen random bits for each number of a tensor."""
    wide = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)
    bits = wide.random_(-(1 << 63), None, generator=generator).view(torch.int16)
    return bits[: like.numel()].view(like.shape)


def factors(bits: Tensor, dropout: float, dtype: torch.dtype) -> Tensor:
    """0 for a dropped number, else 1 / (1 - dropout); the mean is 1.

    Arithmetic instead of comparisons, because it is vectorised.
    """
    dropped = round(dropout * STEPS)
    last = dropped - STEPS // 2 - 1  # bits up to here are dropped
    return bits.to(dtype).sub_(last).clamp_(0, 1).mul_(STEPS / (STEPS - dropped))


class Drop(torch.autograd.Function):
    """x times its factors; only the bits are saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dropout: float) -> Tensor:
        bits = draw_bits(input)
        ctx.save_for_backward(bits)
        ctx.dropout = dropout
        return factors(bits, dropout, input.dtype).mul_(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (bits,) = ctx.saved_tensors
        return factors(bits, ctx.dropout, gradients[0].dtype).mul_(gradients[0]), None


class Dropout(nn.Module):
    """Drops numbers in training; the identity in eval mode."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    @property
    def active(self) -> float:
        """The probability in the present mode."""
        return self.probability if self.training else 0.0

    def forward(self, input: Tensor) -> Tensor:
        return Drop.apply(input, self.active) if self.active else input  # type: ignore[no-untyped-call]


def join(pieces: Sequence[Tensor]) -> Tensor:
    """Concatenate pieces, without a copy if there is only one."""
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


def attend(qkv_TE: Tensor, buckets: Buckets, heads: int, dropout: float) -> Tensor:
    """Every token attends to all tokens of its own segment."""
    if dropout:
        return DropoutAttention.apply(qkv_TE, buckets, heads, dropout)  # type: ignore[no-untyped-call]
    padded_PE = qkv_TE.index_select(0, buckets.sources_P)
    mixed_PD = join([attend_bucket(padded_PE[b.rows], b, heads) for b in buckets])
    return mixed_PD.index_select(0, buckets.places_T)


def attend_bucket(qkv_NE: Tensor, bucket: Bucket, heads: int) -> Tensor:
    split = qkv_NE.view(-1, bucket.length, 3, heads, qkv_NE.shape[1] // (3 * heads))
    query, key, value = split.permute(2, 0, 3, 1, 4)  # each B H L d
    mixed_BHLd = F.scaled_dot_product_attention(query, key, value, bucket.mask)
    return mixed_BHLd.transpose(1, 2).reshape(qkv_NE.shape[0], -1)


# ------------------------------------------------------------------ with dropout


class DropoutAttention(torch.autograd.Function):
    """Attention with dropout on its weights, for which torch has no fused kernel.

    torch's fallback takes about thirty small operations per bucket and direction; this takes eight.
    """

    @staticmethod
    def forward(ctx: Any, qkv_TE: Tensor, buckets: Buckets, heads: int, dropout: float) -> Tensor:
        padded_PE = qkv_TE.index_select(0, buckets.sources_P)
        mixed_PD = qkv_TE.new_empty(len(padded_PE), qkv_TE.shape[1] // 3)
        saved: list[Tensor] = []
        for bucket in buckets:
            parts = by_heads(padded_PE[bucket.rows], bucket, 3 * heads, 3)
            weights_GLL = softmax_weights(parts, bucket, heads)
            bits_GLL = draw_bits(weights_GLL)
            dropped_GLL = factors(bits_GLL, dropout, weights_GLL.dtype).mul_(weights_GLL)
            mixed_GLd = torch.bmm(dropped_GLL, parts[2])
            put_tokens(mixed_PD[bucket.rows], mixed_GLd, bucket, heads)
            saved += [parts, weights_GLL, bits_GLL]
        ctx.save_for_backward(*saved)
        ctx.settings = buckets, heads, dropout
        return mixed_PD.index_select(0, buckets.places_T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        buckets, heads, dropout = ctx.settings
        padded, width = len(buckets.sources_P), gradients[0].shape[1]
        d_mixed_PD = gradients[0].new_zeros(padded, width)
        d_mixed_PD.index_copy_(0, buckets.places_T, gradients[0])
        d_padded_PE = d_mixed_PD.new_empty(padded, 3 * width)
        saved = iter(ctx.saved_tensors)
        for bucket, parts, weights_GLL, bits_GLL in zip(buckets, saved, saved, saved, strict=True):
            (d_mixed_GLd,) = by_heads(d_mixed_PD[bucket.rows], bucket, heads, 1)
            factors_GLL = factors(bits_GLL, dropout, weights_GLL.dtype)
            d_parts = attention_backward(d_mixed_GLd, parts, weights_GLL, factors_GLL)
            put_tokens(d_padded_PE[bucket.rows], d_parts, bucket, 3 * heads)
        return d_padded_PE.index_select(0, buckets.places_T), None, None, None


def by_heads(values_NX: Tensor, bucket: Bucket, heads: int, parts: int) -> Tensor:
    """The tokens of a bucket by head: (parts, G, L, d), in one copy."""
    width = values_NX.shape[1] // heads
    split = values_NX.view(-1, bucket.length, parts, heads // parts, width)
    return split.permute(2, 0, 3, 1, 4).reshape(parts, -1, bucket.length, width)


def put_tokens(into_NX: Tensor, values: Tensor, bucket: Bucket, heads: int) -> None:
    """The inverse of `by_heads`: write (parts, G, L, d) as rows of tokens."""
    width = into_NX.shape[1] // heads
    parts = values.shape[0] if values.ndim == 4 else 1
    split = into_NX.view(-1, bucket.length, parts, heads // parts, width)
    segments = split.shape[0]
    values = values.view(parts, segments, heads // parts, bucket.length, width)
    split.copy_(values.permute(1, 3, 0, 2, 4))


def softmax_weights(parts: Tensor, bucket: Bucket, heads: int) -> Tensor:
    query_GLd, key_GLd, _ = parts
    scores_GLL = torch.bmm(query_GLd * query_GLd.shape[2] ** -0.5, key_GLd.transpose(1, 2))
    if bucket.mask is not None:
        by_segment = scores_GLL.view(-1, heads, bucket.length, bucket.length)
        by_segment.masked_fill_(~bucket.mask, -torch.inf)
    return scores_GLL.softmax(2)


def attention_backward(
    d_mixed_GLd: Tensor, parts: Tensor, weights_GLL: Tensor, factors_GLL: Tensor
) -> Tensor:
    """Gradients of queries, keys and values.

    With A = softmax(S), M the dropout factors and Y = (A M) V:
    dV = (A M)^T dY, dA = M (dY V^T), dS = A (dA - sum_L(A dA)), dQ = dS K, dK = dS^T Q.
    """
    query_GLd, key_GLd, value_GLd = parts
    scale = query_GLd.shape[2] ** -0.5
    d_parts = torch.empty_like(parts)
    d_weights_GLL = torch.bmm(d_mixed_GLd, value_GLd.transpose(1, 2)).mul_(factors_GLL)
    torch.bmm(factors_GLL.mul_(weights_GLL).transpose(1, 2), d_mixed_GLd, out=d_parts[2])
    d_weights_GLL.mul_(weights_GLL)
    d_scores_GLL = d_weights_GLL.addcmul_(
        weights_GLL, d_weights_GLL.sum(2, keepdim=True), value=-1
    ).mul_(scale)
    torch.bmm(d_scores_GLL, key_GLd, out=d_parts[0])
    torch.bmm(d_scores_GLL.transpose(1, 2), query_GLd, out=d_parts[1])
    return d_parts
