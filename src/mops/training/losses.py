"""The losses of tasks, and their weights: fixed, learned (uncertainty), or by their fall (dwa).

Shapes: R rows, O outputs of a head, C classes. Dimensions before R (the networks of an ensemble)
are kept: each network has a loss of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.config.training import Training
from mops.data.schedule import Schedule
from mops.tasks import Task

Tasks = Mapping[str, Task]
TEMPERATURE = 2.0  # of dwa, the paper's
INTERVALS = 10  # intervals of dwa in a budget, at least


def cross_entropy(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    classes = targets_R.flatten().long()
    losses = F.cross_entropy(outputs_RO.flatten(0, -2), classes, reduction="none")
    return losses.view(targets_R.shape)


def binary_cross_entropy(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    targets_R = targets_R.to(outputs_RO.dtype)
    return F.binary_cross_entropy_with_logits(outputs_RO[..., 0], targets_R, reduction="none")


def ordinal(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    """Output k is the logit of P(y > k); the sum over k of binary cross-entropies.

    Frank and Hall 2001, with one network for all thresholds as in Cheng et al. 2008 (NNRank).
    """
    steps_O = torch.arange(outputs_RO.shape[-1], device=outputs_RO.device)
    is_above_RO = (targets_R[..., None] > steps_O).to(outputs_RO.dtype)
    losses_RO = F.binary_cross_entropy_with_logits(outputs_RO, is_above_RO, reduction="none")
    return losses_RO.sum(dim=-1)


def mse(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    return F.mse_loss(outputs_RO[..., 0], targets_R.to(outputs_RO.dtype), reduction="none")


# outputs, targets -> the loss of each row
LOSSES = {loss.__name__: loss for loss in (cross_entropy, binary_cross_entropy, ordinal, mse)}


def loss_of(task: Task, outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    """The mean loss of some rows of a task, weighted by class as in torch's cross-entropy."""
    losses_R = LOSSES[task.loss_name](outputs_RO, targets_R)
    if not task.class_weights:
        return losses_R.mean(dim=-1)
    weights_C = torch.tensor(task.class_weights, dtype=outputs_RO.dtype).to(outputs_RO.device)
    weights_R = weights_C[targets_R.long()]
    return (losses_R * weights_R).sum(dim=-1) / weights_R.sum(dim=-1)


# ------------------------------------------------------------------ weights


class Stateful(Protocol):
    """A part of an update that may learn and remember something; by default neither."""

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The parameters that the optimizer updates, by name."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """The tensors that a resumed run needs."""
        return {name: parameter.detach() for name, parameter in self.parameters().items()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a saved state back."""
        for name, parameter in self.parameters().items():
            parameter.copy_(state[name])


class Weighting(Stateful, Protocol):
    """A way to weigh losses. Its parameters are training state, not part of the model."""

    def weights(self) -> dict[str, float]:
        """The present weights of all tasks."""
        ...

    def weigh(self, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each task's term of the total loss."""
        now = self.weights()
        return {task: now[task] * loss for task, loss in losses.items()}

    def note(self, losses: Mapping[str, float], step: int) -> None:
        """Called after each step (counted from 0) with its losses."""
        return


@dataclass(frozen=True)
class Fixed(Weighting):
    """The weights of the recipe."""

    fixed: Mapping[str, float]

    def weights(self) -> dict[str, float]:
        return dict(self.fixed)


class Uncertainty(Weighting):
    """Homoscedastic uncertainty (Kendall, Gal and Cipolla 2018, equations 5 to 10).

    With s = log(variance), learned from 0, a task's term is
        exp(-s) L / 2 + s / 2     for a value on a range (a Gaussian),
        exp(-s) L     + s / 2     for classes (a softmax scaled by the variance).
    """

    def __init__(self, tasks: Tasks, device: str | torch.device) -> None:
        self.scales = {name: 0.5 if task.is_similarity else 1.0 for name, task in tasks.items()}
        self.log_variances = {
            name: nn.Parameter(torch.zeros((), device=device)) for name in self.scales
        }

    def weigh(self, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            task: self.scales[task] * torch.exp(-self.log_variances[task]) * loss
            + self.log_variances[task] / 2
            for task, loss in losses.items()
        }

    def weights(self) -> dict[str, float]:
        return {
            task: self.scales[task] * float(torch.exp(-s.detach()))
            for task, s in self.log_variances.items()
        }

    def parameters(self) -> Mapping[str, nn.Parameter]:
        return self.log_variances


class Dwa(Weighting):
    """Dynamic weight average (Liu, Johns and Davison 2019, equation 7).

    w_i = K softmax_i(r_i / T) over K tasks, r_i = mean loss of the last interval / of the one
    before, T = 2; all weights are 1 in the first two intervals.
    """

    def __init__(self, tasks: Iterable[str], every: int) -> None:
        self.every = every  # steps of an interval; an epoch in the paper
        # Task -> sum and number of its losses in this interval, mean loss of the last interval
        # with the task and of the one before (0: none yet).
        self.seen = {task: [0.0, 0.0, 0.0, 0.0] for task in tasks}

    def weights(self) -> dict[str, float]:
        rates = [last / before if before else 1.0 for *_, last, before in self.seen.values()]
        rates_K = torch.tensor(rates, dtype=torch.float64)
        shares = torch.softmax(rates_K / TEMPERATURE, dim=0).tolist()
        return {task: len(shares) * share for task, share in zip(self.seen, shares, strict=True)}

    def note(self, losses: Mapping[str, float], step: int) -> None:
        for task, loss in losses.items():
            self.seen[task][0] += loss
            self.seen[task][1] += 1
        if (step + 1) % self.every == 0:
            for task, (total, count, last, _) in self.seen.items():
                if count:
                    self.seen[task] = [0.0, 0.0, total / count, last]

    def state(self) -> Mapping[str, Tensor]:
        return {task: torch.tensor(seen, dtype=torch.float64) for task, seen in self.seen.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.seen = {task: state[task].tolist() for task in self.seen}


# word of the recipe -> how it is built from the tasks, the steps of an interval and the device
WEIGHTINGS: dict[str, Callable[[Tasks, int, torch.device], Weighting]] = {
    "uncertainty": lambda tasks, every, device: Uncertainty(tasks, device),
    "dwa": lambda tasks, every, device: Dwa(tasks, every),
}


def build_weighting(
    training: Training, tasks: Tasks, schedule: Schedule, device: torch.device
) -> Weighting:
    if not isinstance(training.loss_weights, str):
        return Fixed({task: training.weight(task) for task in tasks})
    # an interval is an epoch, at most a tenth of all steps
    every = max(1, min(schedule.steps_per_epoch, len(schedule) // INTERVALS))
    return WEIGHTINGS[training.loss_weights](tasks, training.dwa_steps or every, device)
