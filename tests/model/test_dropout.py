"""Dropout with random bits, and attention with dropout, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mops.model.attention import (
    STEPS,
    Dropout,
    DropoutAttention,
    attend,
    draw_bits,
    factors,
    make_buckets,
)

LENGTHS = np.array([1, 3, 4, 4, 9, 17, 33])
HEADS, WIDTH = 2, 8


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.9])
def test_fraction_and_scale_of_dropout(probability: float) -> None:
    """Binomial: n p numbers are dropped, give or take five standard deviations."""
    torch.manual_seed(3)
    ones = torch.ones(400, 501)  # no multiple of four
    dropped = Dropout(probability)(ones)
    count = ones.numel()
    zeros = int((dropped == 0).sum())
    assert abs(zeros - count * probability) < 5 * (count * probability * (1 - probability)) ** 0.5
    kept = dropped[dropped != 0]
    assert torch.all(kept == kept[0])
    assert kept[0].item() == pytest.approx(1 / (1 - probability), rel=1e-4)


def test_bits_are_uniform_and_independent_of_their_place() -> None:
    torch.manual_seed(5)
    bits = draw_bits(torch.empty(1 << 20)).view(-1, 4).double() / STEPS
    assert torch.allclose(bits.mean(0), torch.full((4,), -0.5 / STEPS).double(), atol=2e-3)
    assert torch.allclose(bits.var(0), torch.full((4,), 1 / 12).double(), atol=2e-3)
    assert (torch.corrcoef(bits.T) - torch.eye(4)).abs().max() < 1e-2


def test_factors_at_the_edges() -> None:
    bits = torch.tensor([-(STEPS // 2), -(STEPS // 2) + 1, 0, STEPS // 2 - 1], dtype=torch.int16)
    one_of_all = factors(bits, 1 / STEPS, torch.float64)
    assert one_of_all.tolist() == [0.0, *[STEPS / (STEPS - 1)] * 3]
    assert factors(bits, 0.5, torch.float32).tolist() == [0.0, 0.0, 2.0, 2.0]


def test_the_gradient_has_the_same_factors() -> None:
    seen = torch.randn(50, 7, requires_grad=True)
    dropped = Dropout(0.4)(seen)
    dropped.backward(torch.ones_like(dropped))
    assert seen.grad is not None
    assert torch.equal(seen.grad * seen.detach(), dropped.detach())


def test_dropout_is_the_identity_in_eval_mode_and_at_zero() -> None:
    seen = torch.randn(5, 5)
    assert Dropout(0.5).eval()(seen) is seen
    assert Dropout(0.0)(seen) is seen


def plain_attention(qkv_TE: Tensor, kept: list[Tensor], reach: int = 0) -> Tensor:
    """Segment by segment, from the definition; `kept`: the factors of each segment's weights."""
    found, start = [], 0
    for length, factor in zip(LENGTHS.tolist(), kept, strict=True):
        parts = qkv_TE[start : start + length].view(length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) * (WIDTH // HEADS) ** -0.5
        places = torch.arange(length)
        far = (places[:, None] - places).abs() > (reach or length)
        weights = scores.masked_fill(far, -torch.inf).softmax(2)
        found.append((weights * factor @ value).transpose(0, 1).reshape(length, WIDTH))
        start += length
    return torch.cat(found)


def test_attention_with_dropout_and_its_gradient() -> None:
    buckets = make_buckets(LENGTHS)
    seen = torch.randn(int(LENGTHS.sum()), 3 * WIDTH, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(9)
    found = attend(seen, buckets, HEADS, 0.3)
    torch.manual_seed(9)
    kept = []
    for bucket in buckets.items:  # the same draws: bucket by bucket, all of its padded weights
        rows = (bucket.rows.stop - bucket.rows.start) // bucket.length
        shape = rows * HEADS, bucket.length, bucket.length
        factor = factors(draw_bits(torch.empty(shape)), 0.3, torch.float64)
        kept += list(factor.view(rows, HEADS, bucket.length, bucket.length))
    kept = [f[:, :n, :n] for f, n in zip(kept, LENGTHS.tolist(), strict=True)]
    expected = plain_attention(seen, kept)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    direction = torch.randn_like(found)
    (ours,) = torch.autograd.grad(found, seen, direction)
    (theirs,) = torch.autograd.grad(expected, seen, direction)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reach", [0, 1, 4, 40])
def test_attention_without_dropout_is_the_limit(reach: int) -> None:
    """A probability too small to drop anything gives torch's own attention, whose segments and
    whose windows of long segments give what the definition gives."""
    buckets = make_buckets(LENGTHS, reach=reach)
    assert bool(buckets.copies) == (reach in (1, 4))  # the windows of long segments overlap
    seen = torch.randn(int(LENGTHS.sum()), 3 * WIDTH, requires_grad=True)
    dropping = DropoutAttention.apply(seen, buckets, HEADS, 1e-9)
    plain = attend(seen, buckets, HEADS, 0.0)
    expected = plain_attention(seen, [torch.ones(())] * len(LENGTHS), reach)
    direction = torch.randn_like(plain)
    (theirs,) = torch.autograd.grad(expected, seen, direction)
    for found in (dropping, plain):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        (ours,) = torch.autograd.grad(found, seen, direction)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
