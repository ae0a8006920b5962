"""Attention within segments, softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017), and dropout.

Segments of similar length lie side by side in buckets; padding exists only here. Dropout uses
sixteen random bits for each number: torch draws one float after the other, which with its mask
takes a sixth of a training step on one core. Here 64 bits are drawn at a time and split into four.

Where a token sees only some tokens to each side, a long segment lies in the buckets as windows that
overlap by what is seen: the work grows with the length, not with its square.

Shapes: T tokens of the pack, P padded tokens, N padded tokens of a bucket, E three widths
(queries, keys, values), D width, B segments of a bucket, H heads, G = B H, L the bucket's length,
d width of a head, W windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mops.plans.shapes import cut_windows

Ints = NDArray[np.int64]
Device = str | torch.device
FINEST_STEP = 4  # padded lengths are multiples of at least this
Turns = tuple[Tensor, Tensor]  # cosines and sines of the angles of each token, (T, 1, d/2)
STEPS = 1 << 16  # resolution of a dropout probability: 0.1 becomes 0.100006


@dataclass(frozen=True)
class Bucket:
    """Segments that are padded to the same length."""

    rows: slice  # within the padded tokens of the span
    length: int
    mask: Tensor | None  # B 1 1 L or B 1 L L, true for what is seen; None: everything


@dataclass(frozen=True)
class Buckets:
    """The padded view of a span for attention, the only place where padding exists.

    Segments a, b, c and d with 3, 6, 2 and 4 tokens:

        tokens    a a a b b b b b b c c d d d d
        padded    a a a . | c c . . | d d d d | b b b b b b . .
                  bucket of length 4 (3 rows)   bucket of length 8 (1 row)

    A dot repeats the first token of its segment, and the mask hides it.
    """

    places_T: Tensor  # token -> padded place
    sources_P: Tensor  # padded place -> token
    items: tuple[Bucket, ...]
    copies: tuple[tuple[Tensor, Tensor], ...] = ()  # further places of tokens, and these tokens
    turns: tuple[Turns, ...] = ()  # of rotary positions


def make_buckets(
    lengths: Ints, device: Device = "cpu", reach: int = 0, turns: tuple[Turns, ...] = ()
) -> Buckets:
    """The buckets of segments that lie one after the other; `reach`: what is seen to each side."""
    cuts = [cut_windows(length, reach) for length in lengths.tolist()]
    starts_W = np.repeat(np.cumsum(lengths) - lengths, [len(cut) for cut in cuts])
    firsts, own_firsts, own_ends, ends = np.concatenate(cuts).T + starts_W
    counts = ends - firsts
    padded = pad_lengths(counts)
    order = np.argsort(padded, kind="stable")
    padded_starts = np.empty_like(counts)
    padded_starts[order] = np.cumsum(padded[order]) - padded[order]
    numbers = count_within(counts)
    places, tokens = np.repeat(padded_starts, counts) + numbers, np.repeat(firsts, counts) + numbers
    sources = np.repeat(firsts[order], padded[order])
    sources[places] = tokens
    is_own = (np.repeat(own_firsts, counts) <= tokens) & (tokens < np.repeat(own_ends, counts))
    others = to_device(places[~is_own], device), to_device(tokens[~is_own], device)
    return Buckets(
        places_T=to_device(places[is_own], device),
        sources_P=to_device(sources, device),
        items=make_items(padded, places, device, reach),
        copies=() if is_own.all() else (others,),
        turns=turns,
    )


def make_items(padded: Ints, places: Ints, device: Device, reach: int) -> tuple[Bucket, ...]:
    """The buckets of windows with these padded lengths, whose tokens are at these places."""
    is_token = np.zeros(padded.sum(), dtype=np.bool_)
    is_token[places] = True
    is_token_P = to_device(is_token, device)
    items, first = [], 0
    for length, count in zip(*np.unique(padded, return_counts=True), strict=True):
        rows = slice(first, first := first + int(length * count))
        has_padding = not is_token[rows].all()
        mask = make_mask(is_token_P[rows].view(-1, int(length)), has_padding, reach)
        items.append(Bucket(rows, int(length), mask))
    return tuple(items)


def make_mask(is_token_BL: Tensor, has_padding: bool, reach: int) -> Tensor | None:
    """What is seen in the rows of a bucket; padding sees itself, so that no row sees nothing."""
    length = is_token_BL.shape[1]
    if not 0 < reach < length - 1:
        return is_token_BL[:, None, None] if has_padding else None
    places_L = torch.arange(length, device=is_token_BL.device)
    near_LL = (places_L[:, None] - places_L).abs() <= reach
    if not has_padding:
        return near_LL[None, None]
    return (near_LL & (is_token_BL[:, None] | ~is_token_BL[:, :, None]))[:, None]


def pad_lengths(lengths: Ints) -> Ints:
    """Round lengths up to steps of about an eighth of each length.

    A padded length depends on its segment alone, so no other segment can change a segment's bits.
    """
    eighth = np.exp2(np.ceil(np.log2(lengths / 8))).astype(np.int64)
    step = np.maximum(FINEST_STEP, eighth)
    return -(-lengths // step) * step


def count_within(lengths: Ints) -> Ints:
    """0, 1, 2, ... starting again for each segment."""
    ends = np.cumsum(lengths)
    numbers: Ints = np.arange(ends[-1])
    return numbers - np.repeat(ends - lengths, lengths)


def to_device(values: NDArray[np.generic], device: Device) -> Tensor:
    """Booleans and int64 numbers as a tensor."""
    exact = values if values.dtype == np.bool_ else values.astype(np.int64, copy=False)
    return torch.from_numpy(exact).to(device)


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


@lru_cache(maxsize=8)
def rotary_table(base: float, width: int, positions: int, device: Device) -> Turns:
    """Cosines and sines of position x base^(-2i/d) for each pair i of a head (Su et al. 2021).

    In float32 as in transformers: for far positions other roundings are other angles.
    """
    with torch.inference_mode(False):  # the table is used in training too
        rates = 1 / base ** (torch.arange(0, width, 2, dtype=torch.float) / width)
        angles = torch.arange(positions, dtype=torch.float)[:, None, None] * rates
        return angles.cos().to(device), angles.sin().to(device)


def rotate(qkv_TE: Tensor, turns: Turns, heads: int) -> Tensor:
    """Turn queries and keys by the angles of their tokens; values stay as they are."""
    cos, sin = turns
    width = qkv_TE.shape[1] // 3
    first, second = qkv_TE[:, : 2 * width].view(len(qkv_TE), 2 * heads, 2, -1).unbind(2)
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=2)
    return torch.cat([turned.flatten(1), qkv_TE[:, 2 * width :]], dim=1)


def attend(qkv_TE: Tensor, buckets: Buckets, heads: int, dropout: float) -> Tensor:
    """Every token attends to the tokens of its own segment that it sees."""
    for turns in buckets.turns:
        qkv_TE = rotate(qkv_TE, turns, heads)
    if dropout:
        return DropoutAttention.apply(qkv_TE, buckets, heads, dropout)  # type: ignore[no-untyped-call]
    padded_PE = pad(qkv_TE, buckets)
    mixed_PD = join([attend_bucket(padded_PE[b.rows], b, heads) for b in buckets.items])
    return mixed_PD.index_select(0, buckets.places_T)


def pad(values_TE: Tensor, buckets: Buckets) -> Tensor:
    """The padded tokens, at least in float32: scores and their softmax are sensitive."""
    dtype = torch.promote_types(values_TE.dtype, torch.float32)
    return values_TE.index_select(0, buckets.sources_P).to(dtype)


def attend_bucket(qkv_NE: Tensor, bucket: Bucket, heads: int) -> Tensor:
    query_BHLd, key_BHLd, value_BHLd = split_heads(qkv_NE, bucket, 3, heads)
    mixed_BHLd = F.scaled_dot_product_attention(query_BHLd, key_BHLd, value_BHLd, bucket.mask)
    return mixed_BHLd.transpose(1, 2).reshape(qkv_NE.shape[0], -1)


def split_heads(values_NX: Tensor, bucket: Bucket, parts: int, heads: int) -> Tensor:
    """A view of a bucket's tokens by head: (parts, B, H, L, d)."""
    width = values_NX.shape[1] // (parts * heads)
    split = values_NX.view(-1, bucket.length, parts, heads, width)
    return split.permute(2, 0, 3, 1, 4)


class DropoutAttention(torch.autograd.Function):
    """Attention with dropout on its weights, for which torch has no fused kernel.

    torch's fallback takes about thirty small operations per bucket and direction; this takes eight.
    """

    @staticmethod
    def forward(ctx: Any, qkv_TE: Tensor, buckets: Buckets, heads: int, dropout: float) -> Tensor:
        padded_PE = pad(qkv_TE, buckets)
        mixed_PD = padded_PE.new_empty(len(padded_PE), qkv_TE.shape[1] // 3)
        saved: list[Tensor] = []
        for bucket in buckets.items:
            parts = split_heads(padded_PE[bucket.rows], bucket, 3, heads).flatten(1, 2)
            weights_GLL = softmax_weights(parts, bucket, heads)
            bits_GLL = draw_bits(weights_GLL)
            dropped_GLL = factors(bits_GLL, dropout, weights_GLL.dtype).mul_(weights_GLL)
            mixed_GLd = torch.bmm(dropped_GLL, parts[2])
            mixed_BHLd = split_heads(mixed_PD[bucket.rows], bucket, 1, heads)[0]
            mixed_BHLd.copy_(mixed_GLd.view(mixed_BHLd.shape))
            saved += [parts, weights_GLL, bits_GLL]
        ctx.save_for_backward(*saved)
        ctx.settings = buckets, heads, dropout, qkv_TE.dtype
        return mixed_PD.index_select(0, buckets.places_T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        buckets, heads, dropout, dtype = ctx.settings
        padded, width = len(buckets.sources_P), gradients[0].shape[1]
        d_mixed_PD = gradients[0].new_zeros(padded, width)
        d_mixed_PD.index_copy_(0, buckets.places_T, gradients[0])
        d_padded_PE = d_mixed_PD.new_empty(padded, 3 * width)
        saved = iter(ctx.saved_tensors)
        by_bucket = zip(buckets.items, saved, saved, saved, strict=True)
        for bucket, parts, weights_GLL, bits_GLL in by_bucket:
            d_mixed_GLd = split_heads(d_mixed_PD[bucket.rows], bucket, 1, heads)[0].flatten(0, 1)
            factors_GLL = factors(bits_GLL, dropout, weights_GLL.dtype)
            d_parts = attention_backward(d_mixed_GLd, parts, weights_GLL, factors_GLL)
            d_padded = split_heads(d_padded_PE[bucket.rows], bucket, 3, heads)
            d_padded.copy_(d_parts.view(d_padded.shape))
        d_padded_PE = d_padded_PE.to(dtype)
        d_qkv_TE = d_padded_PE.index_select(0, buckets.places_T)
        for places, tokens in buckets.copies:
            d_qkv_TE.index_add_(0, tokens, d_padded_PE.index_select(0, places))
        return d_qkv_TE, None, None, None


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
