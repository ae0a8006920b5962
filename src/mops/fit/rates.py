"""Learning rates: of every owner, and how they change over the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from mops.encoder.network import Network
from mops.errors import PlanError
from mops.layout import Layout
from mops.settings import Training


def owner_rates(layout: Layout, training: Training) -> dict[str, float]:
    """Owner -> its rate: (head or encoder rate) x the plan's factor x layer_decay^depth."""
    found: dict[str, float] = {}
    depth = layout.encoder.depth
    for route in layout.routes.values():
        below_top = {route.embeddings: depth} | dict.fromkeys(route.pooler, 0)
        for n, stage in enumerate(route.stages[1:]):  # what is shared by layers counts as highest
            below_top |= dict.fromkeys(stage, max(0, depth - 1 - n))
        found |= {
            owner: training.learning_rate * training.layer_decay**steps
            for owner, steps in below_top.items()
        }
        found |= dict.fromkeys((*route.late, route.head), training.head_learning_rate)
    return {owner: rate * layout.rates[owner] for owner, rate in found.items()}


def build_optimiser(
    network: Network, training: Training, weighting: Iterable[torch.nn.Parameter] = ()
) -> torch.optim.AdamW:
    """AdamW with one group per (rate, decay); nothing for what is frozen.

    What the weights of the losses learn moves as heads do, without decay.
    """
    layout = replace(network.layout, rates=network.rates)
    rates = owner_rates(layout, training)
    for task, route in layout.routes.items():
        if not any(rates[owner] and layout.sizes[owner] for owner in route.owners):
            raise PlanError(
                f"plan {layout.plan.name!r}: nothing on the route of {task!r} learns, all its "
                "rates are 0; give its head or a layer a rate above 0"
            )
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for owner, name, parameter in network.owner_parameters():
        if rates[owner] > 0:
            decay = 0.0 if is_bias_or_norm(name, parameter) else training.weight_decay
            groups.setdefault((rates[owner], decay), []).append(parameter)
    for parameter in weighting:
        groups.setdefault((training.head_learning_rate, 0.0), []).append(parameter)
    rows = [
        {"params": members, "lr": rate, "weight_decay": decay, "base": rate}
        for (rate, decay), members in groups.items()
    ]
    try:
        return torch.optim.AdamW(rows, eps=training.adam_epsilon, fused=True)
    except RuntimeError:  # no fused kernel for this device
        return torch.optim.AdamW(rows, eps=training.adam_epsilon)


def is_bias_or_norm(name: str, parameter: torch.nn.Parameter) -> bool:
    return parameter.ndim < 2 or name.endswith("bias")


def warmup_of(training: Training, total: int) -> int:
    """Warm-up in steps: a number, or a share of all steps below 1."""
    given = training.warmup_steps
    return round(given * total) if given < 1 else round(given)


def rate_factor(training: Training, step: int, total: int) -> float:
    """The factor on all rates in a step (counted from 0)."""
    warmup = warmup_of(training, total)
    if step < warmup:
        return RISES.get(training.lr_scheduler_type, linear_rise)((step + 1) / (warmup + 1))
    return FALLS[training.lr_scheduler_type]((step - warmup) / max(1, total - warmup))


def linear_rise(share: float) -> float:
    return share


def half_cosine(share: float) -> float:
    return (1 + math.cos(math.pi * share)) / 2


# One-cycle (Smith and Topin 2018), with the start and the end of torch's OneCycleLR.
START, END = 1 / 25, 1 / (25 * 1e4)
RISES: dict[str, Callable[[float], float]] = {
    "one-cycle": lambda share: 1 + (START - 1) * half_cosine(share),
}
FALLS: dict[str, Callable[[float], float]] = {
    "none": lambda share: 1.0,
    "linear": lambda share: 1.0 - share,
    "cosine": half_cosine,
    "one-cycle": lambda share: END + (1 - END) * half_cosine(share),
}
