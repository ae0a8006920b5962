"""How two gradients are combined, by hand."""

from __future__ import annotations

import torch


def pcgrad(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Algorithm 1 for two tasks: each loses its part against the other; then the sum."""
    dot = one @ two
    if dot >= 0:
        return one + two
    return (one - dot / (two @ two) * two) + (two - dot / (one @ one) * one)


def nearest_to_zero(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """The shortest a g1 + (1 - a) g2: a = (g2 - g1) g2 / |g2 - g1|^2, within 0 and 1."""
    share = ((two - one) @ two / ((two - one) @ (two - one))).clamp(0, 1)
    return share * one + (1 - share) * two
