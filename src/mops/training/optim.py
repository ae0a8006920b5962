"""The optimizer: the learning rate of every weight, L2 pulls, clipping, sparse gradients."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from mops.config.training import Training
from mops.data.schedule import PlannedStage
from mops.errors import PlanError
from mops.model.network import Network
from mops.plans.layout import Layout


def owner_rates(
    layout: Layout, training: Training, factors: Mapping[str, float]
) -> dict[str, float]:
    """Owner -> its rate: (head or encoder rate) x factor x decay^depth."""
    rates: dict[str, float] = {}
    depth = layout.encoder.depth
    for route in layout.routes.values():
        below_top = {route.embeddings: depth} | dict.fromkeys(route.pooler, 0)
        for n, stage in enumerate(route.stages[1:]):  # an owner of several layers: the highest
            below_top |= dict.fromkeys(stage, max(0, depth - 1 - n))
        rates |= {
            owner: training.learning_rate * training.layer_decay**steps
            for owner, steps in below_top.items()
        }
        rates |= dict.fromkeys((*route.late, route.head), training.head_learning_rate)
    return {owner: rate * factors[owner] for owner, rate in rates.items()}


def build_optimizer(
    network: Network, training: Training, weighting: Iterable[nn.Parameter] = ()
) -> torch.optim.AdamW:
    """AdamW with one group per (rate, decay), without what is frozen now.

    Parameters of the loss weighting learn at the rate of heads, without decay.
    """
    layout, rates = network.layout, owner_rates(network.layout, training, network.rates)
    for task, route in layout.routes.items():
        if training.learns(task) and not any(
            rates[owner] and layout.sizes[owner] for owner in route.owners
        ):
            raise PlanError(
                f"plan {layout.plan.name!r}: nothing on the route of {task!r} learns, all its "
                "rates are 0; give its head or a layer a rate above 0"
            )
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for owner, name, parameter in network.owner_parameters():
        if rates[owner] > 0:
            is_bias_or_norm = parameter.ndim < 2 or name.endswith("bias")
            decay = 0.0 if is_bias_or_norm else training.weight_decay
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


def rate_factor(stage: PlannedStage, step: int) -> float:
    """The factor on all rates in a step: warm-up, then decay over the rest of the stage."""
    given, done, total = stage.training.warmup_steps, step - stage.first, len(stage)
    warmup = round(given * total if given < 1 else given)
    rise, fall = SCHEDULES[stage.training.lr_scheduler_type]
    if done < warmup:
        return rise((done + 1) / (warmup + 1))
    return fall((done - warmup) / max(1, total - warmup))


def half_cosine(fraction: float) -> float:
    return (1 + math.cos(math.pi * fraction)) / 2


# One-cycle (Smith and Topin 2018), with the start and the end of torch's OneCycleLR.
START, END = 1 / 25, 1 / (25 * 1e4)
# name -> the factor after a fraction of the warm-up, and of the steps after it
SCHEDULES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "none": (float, lambda _: 1.0),
    "linear": (float, lambda fraction: 1.0 - fraction),
    "cosine": (float, half_cosine),
    "one-cycle": (
        lambda fraction: 1 + (START - 1) * half_cosine(fraction),
        lambda fraction: END + (1 - END) * half_cosine(fraction),
    ),
}


# strength x sum of |w - m|^2 over the owners that a plan's pull row names, with m the mean of the
# copies of one part (Duong et al. 2015) or the initial weights (L2-SP, Li et al. 2018).

Anchors = Mapping[str, Tensor]  # owner.name -> initial weights


def keep_anchors(network: Network) -> dict[str, Tensor]:
    """The initial weights of everything that is pulled back to them."""
    groups = network.layout.l2_groups
    owners = {owner for group, row in groups if row.towards == "start" for owner in group}
    return {
        f"{owner}.{name}": parameter.detach().clone()
        for owner, name, parameter in network.owner_parameters()
        if owner in owners
    }


@torch.no_grad()
def pull(network: Network, anchors: Anchors, training: Training) -> None:
    """Add the gradient of the L2 terms, 2 x strength x (w - m), for the tasks that learn.

    A copy without a loss of its own would follow the others at the full rate, however weak the
    term: Adam normalizes the size of a gradient away.
    """
    users = network.layout.users
    learning = {task for task in network.layout.tasks if training.learns(task)}
    for owners, row in network.layout.l2_groups:
        copies = [dict(network.bank[owner].named_parameters()) for owner in owners]
        for name in copies[0]:
            same = tuple(parameters[name] for parameters in copies)
            mean = torch.stack(same).mean(0) if row.towards == "copies" else None
            for owner, parameter in zip(owners, same, strict=True):
                if parameter.requires_grad and learning & set(users[owner]):
                    target = anchors[f"{owner}.{name}"] if mean is None else mean
                    if parameter.grad is None:  # not on the route of any task of this step
                        parameter.grad = torch.zeros_like(parameter)
                    parameter.grad = parameter.grad.to_dense()  # that of word embeddings is sparse
                    parameter.grad.add_(parameter - target, alpha=2 * row.strength)


# A step touches a few hundred of thirty thousand word embeddings, so their gradient is sparse. The
# optimizer, whose moments move every row, gets it in a dense buffer that is kept between steps.

BUFFERS = WeakIdKeyDictionary()  # parameter -> zeros, between two steps


def clip(parameters: Iterable[nn.Parameter], largest: float) -> Tensor:
    """Clip all gradients by their joint norm, which is returned; 0: do not clip."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad.values())
        elif parameter.grad is not None:
            gradients.append(parameter.grad)
    norm = nn.utils.get_total_norm(gradients)
    if largest and norm > largest:
        torch._foreach_mul_(gradients, largest / (norm + 1e-6))
    return norm


@contextmanager
def dense_gradients(network: nn.Module) -> Iterator[None]:
    """Make every gradient dense inside the context."""
    sparse = [
        (parameter, parameter.grad.coalesce())
        for parameter in network.parameters()
        if parameter.grad is not None and parameter.grad.is_sparse
    ]
    for parameter, gradient in sparse:
        if parameter not in BUFFERS:
            BUFFERS[parameter] = torch.zeros_like(parameter)
        buffer: Tensor = BUFFERS[parameter]
        parameter.grad = buffer.index_copy_(0, gradient.indices()[0], gradient.values())
    yield
    for parameter, gradient in sparse:
        parameter.grad = gradient
        BUFFERS[parameter].index_fill_(0, gradient.indices()[0], 0.0)


class Average(nn.Module):
    """A moving average of the weights that learn: a <- d a + (1 - d) w after each step.

    d is the given decay, at first (1 + t) / (10 + t) after t steps where that is smaller, so that
    the pretrained weights are soon forgotten. Its buffers are training state.
    """

    def __init__(self, network: Network, decay: float) -> None:
        super().__init__()
        self.decay, rates = decay, network.layout.rates
        self.weights = [weight for owner, _, weight in network.owner_parameters() if rates[owner]]
        for n, weight in enumerate(self.weights):
            self.register_buffer(str(n), weight.detach().clone())

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.buffers()), list[Tensor](self.weights), 1 - decay)

    def swap(self) -> None:
        """Exchange the network's weights and their averages."""
        for weight, average in zip(self.weights, self.buffers(), strict=True):
            weight.data, average.data = average.data, weight.data
