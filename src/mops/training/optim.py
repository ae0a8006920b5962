"""Gradients before the optimiser takes them: clipped, and dense where they were rows.

A step touches a few hundred of the thirty thousand rows of the word embeddings. Their gradient is
made of these rows alone; the optimiser, whose moments move every row, gets it as a dense tensor
that is kept from step to step and is zero everywhere else.

Soft sharing: an L2 term that pulls copies together, or weights to where they started.

The term is strength x sum of |w - m|^2 over the owners that a plan's pull row names, with m the
mean of the copies of one part (Duong et al. 2015) or the first weights (L2-SP, Li et al. 2018).
Learning rates: of every owner, and how they change over the run.
Stages: what learns in a part of a run, and how fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from mops.config.training import Training
from mops.data.schedule import PlannedStage
from mops.errors import PlanError
from mops.model.network import Network
from mops.plans.layout import Layout
from mops.training.loss_weights import Weighting

KEPT = WeakIdKeyDictionary()  # parameter -> zeros, between two steps


def clip(parameters: Iterable[nn.Parameter], most: float) -> Tensor:
    """Clip by the norm of all gradients together; 0 only measures it."""
    gradients = [values_of(p) for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if most and norm > most:
        torch._foreach_mul_(gradients, most / (norm + 1e-6))
    return norm


def values_of(parameter: nn.Parameter) -> Tensor:
    """The numbers of a gradient, as they lie in it."""
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return parameter.grad
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad.values()


@contextmanager
def dense(network: nn.Module) -> Iterator[None]:
    """Inside, every gradient is dense."""
    rows = [
        (parameter, parameter.grad.coalesce())
        for parameter in network.parameters()
        if parameter.grad is not None and parameter.grad.is_sparse
    ]
    for parameter, gradient in rows:
        if parameter not in KEPT:
            KEPT[parameter] = torch.zeros_like(parameter)
        room: Tensor = KEPT[parameter]
        parameter.grad = room.index_copy_(0, gradient.indices()[0], gradient.values())
    yield
    for parameter, gradient in rows:
        parameter.grad = gradient
        KEPT[parameter].index_fill_(0, gradient.indices()[0], 0.0)


Start = Mapping[str, Tensor]  # owner.name -> first weights
NO_START: Start = {}


def keep_start(network: Network) -> dict[str, Tensor]:
    """The first weights of everything that is pulled back to them."""
    owners = {o for p in network.layout.l2_groups if p.towards == "start" for o in p.owners}
    return {
        f"{owner}.{name}": parameter.detach().clone()
        for owner, name, parameter in network.owner_parameters()
        if owner in owners
    }


@torch.no_grad()
def pull(network: Network, start: Start, learning: Sequence[str]) -> None:
    """Add the gradient of the L2 terms, 2 x strength x (w - m), for the tasks that learn.

    A copy without a loss of its own would follow the others at the full rate, however weak the
    term: Adam knows only a gradient's direction.
    """
    for owner, parameter, aim, strength in pulled_parameters(network, start):
        if not set(learning) & set(network.layout.users[owner]):
            continue
        if not parameter.requires_grad:  # frozen in this stage
            continue
        if parameter.grad is None:  # no task of this step passes it
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad = parameter.grad.to_dense()  # of word embeddings it has only a few rows
        parameter.grad.add_(parameter - aim, alpha=2 * strength)


def pulled_parameters(
    network: Network, start: Start
) -> Iterator[tuple[str, torch.nn.Parameter, Tensor, float]]:
    """(owner, parameter, where it is pulled, how strongly)."""
    for pulled in network.layout.l2_groups:
        copies = [dict(network.bank[owner].named_parameters()) for owner in pulled.owners]
        for name in copies[0]:
            same = [parameters[name] for parameters in copies]
            if pulled.towards == "copies":
                aims = [torch.stack([p.detach() for p in same]).mean(0)] * len(same)
            else:
                aims = [start[f"{owner}.{name}"] for owner in pulled.owners]
            for owner, parameter, aim in zip(pulled.owners, same, aims, strict=True):
                yield owner, parameter, aim, pulled.strength


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


def enter(network: Network, stage: PlannedStage, weighting: Weighting) -> torch.optim.Optimizer:
    """Freeze and thaw what the stage says; its optimiser starts anew, with fresh moments."""
    network.set_rates(stage.rates(network.layout))
    return build_optimiser(network, stage.training, weighting.parameters().values())
