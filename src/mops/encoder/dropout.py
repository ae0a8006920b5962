"""Dropout with sixteen random bits per number.

torch draws a float for each number, one after the other; on one core that and its mask cost a
sixth of a training step. Here 64 bits are drawn at a time and split into four.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

STEPS = 1 << 16  # a share is counted in these; 0.1 becomes 0.100006


def draw_bits(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Sixteen random bits for each number, from torch's generator or from another one."""
    wide = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)
    bits = wide.random_(-(1 << 63), None, generator=generator).view(torch.int16)
    return bits[: like.numel()].view(like.shape)


def factors(bits: Tensor, dropout: float, dtype: torch.dtype) -> Tensor:
    """0 for a number that is left out, else 1 / (1 - share); the mean is 1.

    Arithmetic instead of comparisons: these run on whole vectors of numbers.
    """
    dropped = round(dropout * STEPS)
    last = dropped - STEPS // 2 - 1  # bits up to here are dropped
    return bits.to(dtype).sub_(last).clamp_(0, 1).mul_(STEPS / (STEPS - dropped))


class Drop(torch.autograd.Function):
    """x times its factors; the bits are kept for the way back."""

    @staticmethod
    def forward(ctx: Any, seen: Tensor, dropout: float) -> Tensor:
        bits = draw_bits(seen)
        ctx.save_for_backward(bits)
        ctx.dropout = dropout
        return factors(bits, dropout, seen.dtype).mul_(seen)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (bits,) = ctx.saved_tensors
        return factors(bits, ctx.dropout, gradients[0].dtype).mul_(gradients[0]), None


class Dropout(nn.Module):
    """Leaves numbers out in training; nothing happens in eval mode."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    @property
    def active(self) -> float:
        """The share that is left out just now."""
        return self.share if self.training else 0.0

    def forward(self, seen: Tensor) -> Tensor:
        if not self.active:
            return seen
        drop: Any = Drop.apply
        dropped: Tensor = drop(seen, self.active)
        return dropped
