"""The losses of tasks, their weights, and how the gradients of several tasks become one.

Weights are fixed, learned (uncertainty) or follow the fall of losses (dwa). Gradients are summed
or combined by an aggregator such as PCGrad.

Targets of classes are class numbers, or soft: a probability of each class. Every loss of classes is
linear in these probabilities, so the loss of a mixture of labels is the mixture of their losses.

Shapes: R rows, O outputs of a head, C classes, T tasks, P numbers in all shared weights. Dimensions
before R (the networks of an ensemble) are kept: each network has a loss of its own.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.config.training import AGGREGATORS, SUM, Training
from mops.data.schedule import Schedule
from mops.model.network import Network
from mops.tasks import Task
from mops.training.distributed import ALONE, ProcessGroup

Tasks = Mapping[str, Task]
TEMPERATURE = 2.0  # of dwa, the paper's
GAUSSIAN = {"mse": 0.5}  # factor of `uncertainty`: the loss of a value with a variance
INTERVALS = 10  # intervals of dwa in a budget, at least


def cross_entropy(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    if is_soft(outputs_RO, targets_R):
        return F.cross_entropy(outputs_RO, targets_R, reduction="none")
    classes = targets_R.flatten().long()
    losses = F.cross_entropy(outputs_RO.flatten(0, -2), classes, reduction="none")
    return losses.view(targets_R.shape)


def binary_cross_entropy(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    if is_soft(outputs_RO, targets_R):
        targets_R = targets_R[..., 1]
    targets_R = targets_R.to(outputs_RO.dtype)
    return F.binary_cross_entropy_with_logits(outputs_RO[..., 0], targets_R, reduction="none")


def ordinal(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    """Output k is the logit of P(y > k); the sum over k of binary cross-entropies.

    Frank and Hall 2001, with one network for all thresholds as in Cheng et al. 2008 (NNRank).
    """
    if is_soft(outputs_RO, targets_R):
        above_RO = 1 - targets_R.cumsum(dim=-1)[..., :-1]
    else:
        steps_O = torch.arange(outputs_RO.shape[-1], device=outputs_RO.device)
        above_RO = (targets_R[..., None] > steps_O).to(outputs_RO.dtype)
    losses_RO = F.binary_cross_entropy_with_logits(outputs_RO, above_RO, reduction="none")
    return losses_RO.sum(dim=-1)


def is_soft(outputs_RO: Tensor, targets: Tensor) -> bool:
    return targets.dim() == outputs_RO.dim()


def mse(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    return F.mse_loss(outputs_RO[..., 0], targets_R.to(outputs_RO.dtype), reduction="none")


def mae(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    return (outputs_RO[..., 0] - targets_R.to(outputs_RO.dtype)).abs()


def huber(outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    """Quadratic within a standard deviation of the labels, linear beyond (Huber 1964)."""
    return F.huber_loss(outputs_RO[..., 0], targets_R.to(outputs_RO.dtype), reduction="none")


# outputs, targets -> the loss of each row
LOSSES = {
    loss.__name__: loss for loss in (cross_entropy, binary_cross_entropy, ordinal, mse, mae, huber)
}


def class_divergence(one_RO: Tensor, two_RO: Tensor) -> Tensor:
    """The mean of KL(p|q) and KL(q|p): the sum over classes of (p - q) (log p - log q) / 2."""
    p_RO, q_RO = one_RO.log_softmax(dim=-1), two_RO.log_softmax(dim=-1)
    return ((p_RO.exp() - q_RO.exp()) * (p_RO - q_RO)).sum(dim=-1) / 2


def binary_divergence(one_RO: Tensor, two_RO: Tensor) -> Tensor:
    """The same for logits of two classes each, summed over the logits."""
    return ((one_RO.sigmoid() - two_RO.sigmoid()) * (one_RO - two_RO)).sum(dim=-1) / 2


def squared_difference(one_RO: Tensor, two_RO: Tensor) -> Tensor:
    return (one_RO - two_RO).square().sum(dim=-1)


# loss -> how far two answers to a row are apart
DIVERGENCES = {
    "cross_entropy": class_divergence,
    "binary_cross_entropy": binary_divergence,
    "ordinal": binary_divergence,
    **dict.fromkeys(("mse", "mae", "huber"), squared_difference),
}


def loss_of(task: Task, outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    """The loss of some rows of a task."""
    return LOSS_OF.get(task.answer.name, row_loss)(task, outputs_RO, targets_R)


def row_loss(task: Task, outputs_RO: Tensor, targets_R: Tensor) -> Tensor:
    """The mean loss of some rows of a task, weighted by class as in torch's cross-entropy."""
    if task.scale:
        targets_R = (targets_R - task.scale[0]) / task.scale[1]
    losses_R = LOSSES[task.loss_name](outputs_RO, targets_R)
    if not task.class_weights:
        return losses_R.mean(dim=-1)
    weights_C = torch.tensor(task.class_weights, dtype=outputs_RO.dtype).to(outputs_RO.device)
    is_mixed = is_soft(outputs_RO, targets_R)
    weights_R = targets_R @ weights_C if is_mixed else weights_C[targets_R.long()]
    return (losses_R * weights_R).sum(dim=-1) / weights_R.sum(dim=-1)


def label_loss(task: Task, outputs_RL: Tensor, targets_RL: Tensor) -> Tensor:
    """The mean over rows and labels; a label's weight is that of the rows which have it."""
    targets_RL = targets_RL.to(outputs_RL.dtype)
    weights_L = torch.tensor(task.class_weights or (1.0,)).to(outputs_RL)
    losses_RL = F.binary_cross_entropy_with_logits(
        outputs_RL, targets_RL, pos_weight=weights_L, reduction="none"
    )
    return losses_RL.mean(dim=(-2, -1))


LOSS_OF = {"labels": label_loss}  # by kind of answer, where it is not the mean over rows


def divergence_of(task: Task, outputs_RO: Tensor) -> Tensor:
    """How far the answers in the second half of the rows are from those in the first."""
    return DIVERGENCES[task.loss_name](*outputs_RO.chunk(2, dim=-2)).mean(dim=-1)


class Weighting(nn.Module):
    """A way to weigh losses. Its parameters are training state, not part of the model."""

    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The present weights of all tasks."""

    def weigh(self, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each task's term of the total loss."""
        now = self.weights()
        return {task: now[task] * loss for task, loss in losses.items()}

    def note(self, losses: Mapping[str, float], step: int) -> None:
        """Called after each step (counted from 0) with its losses."""


class Fixed(Weighting):
    """The weights of the recipe."""

    def __init__(self, fixed: Mapping[str, float]) -> None:
        super().__init__()
        self.fixed = fixed

    def weights(self) -> dict[str, float]:
        return dict(self.fixed)


class Uncertainty(Weighting):
    """Homoscedastic uncertainty (Kendall, Gal and Cipolla 2018, equations 5 to 10).

    With s = log(variance), learned from 0, a task's term is
        exp(-s) L / 2 + s / 2     for a value on a range (a Gaussian),
        exp(-s) L     + s / 2     for classes (a softmax scaled by the variance).
    """

    def __init__(self, tasks: Tasks, device: str | torch.device) -> None:
        super().__init__()
        self.scales = {name: GAUSSIAN.get(task.loss_name, 1.0) for name, task in tasks.items()}
        self.log_variances = {n: nn.Parameter(torch.zeros((), device=device)) for n in self.scales}
        for name, parameter in self.log_variances.items():  # a task may be called `values`
            self.register_parameter(f"log_variance/{name}", parameter)

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


class Dwa(Weighting):
    """Dynamic weight average (Liu, Johns and Davison 2019, equation 7).

    w_i = K softmax_i(r_i / T) over K tasks, r_i = mean loss of the last interval / of the one
    before, T = 2; all weights are 1 in the first two intervals.
    """

    def __init__(self, tasks: Iterable[str], every: int) -> None:
        super().__init__()
        self.tasks = list(tasks)
        self.every = every  # steps of an interval; an epoch in the paper
        # Of each task: sum and number of its losses in this interval, mean loss of the last
        # interval with the task and of the one before (0: none yet).
        self.seen_K4 = nn.Buffer(torch.zeros(len(self.tasks), 4, dtype=torch.float64))

    def weights(self) -> dict[str, float]:
        last_K, before_K = self.seen_K4[:, 2], self.seen_K4[:, 3]
        rates_K = torch.where(before_K == 0, 1.0, last_K / before_K)
        shares = torch.softmax(rates_K / TEMPERATURE, dim=0).tolist()
        return {task: len(shares) * share for task, share in zip(self.tasks, shares, strict=True)}

    def note(self, losses: Mapping[str, float], step: int) -> None:
        for task, loss in losses.items():
            self.seen_K4[self.tasks.index(task), :2] += self.seen_K4.new_tensor([loss, 1.0])
        if (step + 1) % self.every == 0:
            for n, (total, count, last, _) in enumerate(self.seen_K4.tolist()):
                if count:
                    self.seen_K4[n] = self.seen_K4.new_tensor([0.0, 0.0, total / count, last])


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


class Sum(nn.Module):
    """One backward pass of the sum of all terms."""

    def backward(
        self, network: Network, terms: Mapping[str, Tensor], group: ProcessGroup = ALONE
    ) -> Tensor:
        """Fill `.grad` of every weight, summed over all processes; returns this process's loss."""
        loss = total_of(terms)
        loss.backward()  # type: ignore[no-untyped-call]
        group.sum_gradients(network.parameters())
        return loss


def total_of(terms: Mapping[str, Tensor]) -> Tensor:
    device = next(iter(terms.values())).device
    return sum(terms.values(), start=torch.zeros((), device=device))


class Combined(Sum):
    """One gradient per task, combined over the weights that tasks of the step share.

    A task's gradient is one vector over all shared weights, as in PCGrad (Yu et al. 2020), with
    zeros for weights that are not on its route. A weight on the route of a single task of the step
    gets its plain gradient. A task whose vector is zero (its weight is 0) is left out: the shortest
    vector between it and the others would be zero too, and nothing would learn.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.aggregators = nn.ModuleDict()  # by tasks: some have state

    def backward(
        self, network: Network, terms: Mapping[str, Tensor], group: ProcessGroup = ALONE
    ) -> Tensor:
        shared = shared_parameters(network, terms)
        if not shared:
            return super().backward(network, terms, group)
        jacobian_TP, reached = split_gradients(terms, shared)
        reached = group.sum_jacobian(jacobian_TP, reached)
        group.sum_gradients(network.parameters())  # of weights that are not shared
        group.sync_random_state()  # some aggregators draw an order of the tasks
        is_nonzero = jacobian_TP.any(dim=1).tolist()
        tasks = tuple(task for task, is_kept in zip(terms, is_nonzero, strict=True) if is_kept)
        rows_TP = jacobian_TP if all(is_nonzero) else jacobian_TP[is_nonzero]
        combined_P = self.combine(tasks, rows_TP)
        pieces = torch.split(combined_P, [parameter.numel() for parameter in shared])
        for piece, parameter, is_reached in zip(pieces, shared, reached, strict=True):
            parameter.grad = piece.view_as(parameter) if is_reached else None
        return total_of(terms)

    def combine(self, tasks: tuple[str, ...], rows_TP: Tensor) -> Tensor:
        # Solvers fail on NaN; the trainer reports it after the step.
        if len(tasks) < 2 or not rows_TP.isfinite().all():
            return rows_TP.sum(dim=0)
        if (joined := "+".join(tasks)) not in self.aggregators:
            self.aggregators[joined] = build_aggregator(self.name)
        combined_P: Tensor = self.aggregators[joined](rows_TP)
        return combined_P

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> Any:
        for joined in {name.split(".")[1] for name in state_dict}:
            tasks = tuple(joined.split("+"))
            self.combine(tasks, torch.zeros(len(tasks), 1))  # buffers are made at the first call
        return super().load_state_dict(state_dict, strict, assign)


def build_gradients(name: str) -> Sum:
    return Sum() if name == SUM else Combined(name)


def build_aggregator(name: str) -> nn.Module:
    import torchjd.aggregation

    row = AGGREGATORS[name]
    aggregator: nn.Module = getattr(torchjd.aggregation, row.kind)(**row.options)
    return aggregator


def shared_parameters(network: Network, tasks: Iterable[str]) -> list[nn.Parameter]:
    """The weights that learn and that more than one of these tasks trains."""
    chosen, trained_by = set(tasks), network.layout.trained_by
    return [
        parameter
        for owner, _, parameter in network.owner_parameters()
        if parameter.requires_grad and len(chosen & set(trained_by[owner])) > 1
    ]


def split_gradients(
    terms: Mapping[str, Tensor], shared: Sequence[nn.Parameter]
) -> tuple[Tensor, list[bool]]:
    """One row per task over the shared weights, and which of these weights any task reaches.

    All other weights keep their gradients in `.grad`. Each task has a backward pass through the
    same graph, so the dropout masks are those of a sum.
    """
    sizes = [parameter.numel() for parameter in shared]
    jacobian_TP = shared[0].new_zeros(len(terms), sum(sizes))
    reached = [False] * len(shared)
    for n, term in enumerate(terms.values(), start=1):
        if not term.requires_grad:
            continue
        term.backward(retain_graph=n < len(terms))  # type: ignore[no-untyped-call]
        for i, piece in enumerate(torch.split(jacobian_TP[n - 1], sizes)):
            gradient, shared[i].grad = shared[i].grad, None
            if gradient is not None:
                piece.copy_(gradient.to_dense().flatten())
                reached[i] = True
    return jacobian_TP, reached
