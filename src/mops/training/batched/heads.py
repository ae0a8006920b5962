"""Heads of many networks as one: the leaves hold the weights of all of them, side by side.

Shapes: N networks, R rows, X and Y widths.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from mops.model.attention import Dropout, draw_bits, factors

Masks = Callable[[Tensor, Sequence[float]], Tensor]


class StackedDense(nn.Module):
    """x W^T + b, each network with its own."""

    weight: nn.Parameter
    bias: nn.Parameter

    def forward(self, input_NRX: Tensor) -> Tensor:
        return torch.baddbmm(self.bias[:, None], input_NRX, self.weight.transpose(1, 2))


class StackedNorm(nn.Module):
    """LayerNorm, each network with its own weight and bias."""

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def forward(self, input_NRX: Tensor) -> Tensor:
        normed_NRX = F.layer_norm(input_NRX, input_NRX.shape[-1:], eps=self.epsilon)
        return normed_NRX * self.weight[:, None] + self.bias[:, None]


class StackedDropout(nn.Module):
    """Dropout, each network with its own share and its own draws."""

    def __init__(self, shares: Sequence[float], masks: Masks) -> None:
        super().__init__()
        self.shares, self.masks = shares, masks

    def forward(self, input_NRX: Tensor) -> Tensor:
        return input_NRX * self.masks(input_NRX, self.shares) if any(self.shares) else input_NRX


class Draws:
    """The random numbers of each network, as `take_step` of the network alone would draw them."""

    def __init__(self, count: int) -> None:
        self.generators = [Generator() for _ in range(count)]

    def begin(self, seeds: Sequence[int]) -> None:
        for generator, seed in zip(self.generators, seeds, strict=True):
            generator.manual_seed(seed)

    def masks(self, like_NRX: Tensor, shares: Sequence[float]) -> Tensor:
        """What `Dropout` multiplies with; a network whose share is 0 draws nothing."""
        drawn = zip(like_NRX.detach(), shares, self.generators, strict=True)
        return torch.stack(
            [
                factors(draw_bits(like_RX, generator), share, like_RX.dtype)
                if share
                else torch.ones_like(like_RX)
                for like_RX, share, generator in drawn
            ]
        )


def stack_heads(heads: Sequence[nn.Module], masks: Masks) -> nn.Module:
    """One head for all networks. The heads' own weights become views of its weights."""
    stacked = copy.copy(heads[0])
    stacked._parameters = {}
    stacked._modules = {}
    for name in heads[0]._modules:  # named_children leaves out what stands at two places
        same = [head.get_submodule(name) for head in heads]
        stacked.add_module(name, stack_leaf(same, masks))
    for name, _ in heads[0].named_parameters(recurse=False):
        stacked.register_parameter(name, join_weights([head.get_parameter(name) for head in heads]))
    return stacked


def stack_leaf(same: Sequence[nn.Module], masks: Masks) -> nn.Module:
    leaf = same[0]
    if isinstance(leaf, Dropout):
        return StackedDropout([one.share for one in same if isinstance(one, Dropout)], masks)
    if not isinstance(leaf, nn.Linear | nn.LayerNorm):
        return stack_heads(same, masks)
    stacked = StackedNorm(leaf.eps) if isinstance(leaf, nn.LayerNorm) else StackedDense()
    for name, _ in leaf.named_parameters():
        stacked.register_parameter(name, join_weights([one.get_parameter(name) for one in same]))
    return stacked


def join_weights(weights: Sequence[nn.Parameter]) -> nn.Parameter:
    """All weights in one tensor, with a gradient that stays at its place."""
    joined = nn.Parameter(torch.stack([weight.detach() for weight in weights]))
    joined.grad = torch.zeros_like(joined)
    for weight, view, slope in zip(weights, joined.detach(), joined.grad, strict=True):
        weight.data, weight.grad = view, slope
    return joined
