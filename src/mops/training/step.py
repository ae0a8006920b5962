"""One training step, from a batch to updated weights, and the checks of its gradients."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from mops.config.training import Training
from mops.data.batches import Batch, Words
from mops.data.schedule import PlannedStage, Schedule
from mops.errors import GuardError
from mops.model.network import Network
from mops.model.packing import Packer, pack_segments
from mops.training import optim
from mops.training.distributed import ALONE, ProcessGroup
from mops.training.losses import (
    Sum,
    Weighting,
    build_gradients,
    build_weighting,
    divergence_of,
    loss_of,
    shared_parameters,
)

LossFunction = Callable[[Network, Batch], Mapping[str, Tensor]]  # task -> loss


@dataclass
class Learner:
    """A network and all that a step needs to update it."""

    network: Network
    optimizer: torch.optim.Optimizer
    weighting: Weighting
    gradients: Sum = field(default_factory=Sum)
    anchors: optim.Anchors = field(default_factory=dict)
    average: optim.Average | None = None
    group: ProcessGroup = ALONE

    def enter_stage(self, stage: PlannedStage) -> None:
        """Freeze and unfreeze owners as the stage says; its optimizer starts without moments."""
        self.network.set_rates(stage.rates(self.network.layout))
        learned = self.weighting.parameters()
        self.optimizer = optim.build_optimizer(self.network, stage.training, learned)

    @property
    def stateful(self) -> dict[str, nn.Module]:
        """Parts with a state besides the network, by their names in a checkpoint."""
        parts = {"weighting": self.weighting, "gradients": self.gradients, "ema": self.average}
        return {name: part for name, part in parts.items() if part is not None}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the network has the averaged weights, if the recipe asks for them."""
        swap = self.average.swap if self.average else lambda: None
        swap()
        try:
            yield
        finally:
            swap()


def build_learner(
    network: Network, schedule: Schedule, training: Training, group: ProcessGroup = ALONE
) -> Learner:
    """A learner in the first stage of its schedule; a mistake in a later stage is reported now."""
    device = next(network.parameters()).device
    tasks = {name: network.layout.tasks[name] for name in schedule.sizes}
    weighting = build_weighting(training, tasks, schedule, device)
    learner = Learner(
        network=network,
        optimizer=optim.build_optimizer(network, training, weighting.parameters()),
        weighting=weighting,
        gradients=build_gradients(training.gradients),
        anchors=optim.keep_anchors(network),
        average=optim.Average(network, training.ema) if training.ema else None,
        group=group,
    )
    for stage in reversed(schedule.stages):
        learner.enter_stage(stage)
    return learner


@dataclass(frozen=True)
class StepFacts:
    """What one step did."""

    losses: Mapping[str, float]
    loss: float
    gradient_norm: float
    weights: Mapping[str, float] = field(default_factory=dict)  # of the losses of all tasks
    tokens: int = 0
    seconds: float = field(default=0.0, compare=False)
    joules: float = field(default=math.nan, compare=False)  # NaN: unknown

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def compute_losses(
    network: Network, batch: Batch, pack: Packer | None = None, r_drop: float = 0.0
) -> dict[str, Tensor]:
    """The loss of each task in the batch, from one forward pass.

    With `r_drop` each row is in it twice (Liang et al. 2021): the mean loss of both answers, and
    r_drop / 2 times their divergence, which is half of the paper's equation 4.
    """
    device = next(network.parameters()).device
    pack = pack or partial(pack_segments, layout=network.layout, device=device)
    times = 2 if r_drop else 1
    words = {
        task: Words(*(np.tile(x, times) for x in (own.counts, own.places)))
        for task, own in batch.words.items()
    }
    outputs, losses = network(pack(batch.segments * times), words), {}
    for name, targets in batch.targets.items():
        task = network.layout.tasks[name]
        targets_R = torch.as_tensor(targets, dtype=torch.float32).to(device)
        losses[name] = loss_of(task, outputs[name], torch.cat([targets_R] * times))
        if r_drop:
            losses[name] = losses[name] + r_drop / 2 * divergence_of(task, outputs[name])
    return losses


def take_step(
    learner: Learner,
    batch: Batch,
    stage: PlannedStage,
    step: int,
    compute: LossFunction = compute_losses,
) -> StepFacts:
    """Forward, weigh the losses, backward, combine, pull, clip, update.

    `step` counts from the start of the run. With several processes the batch holds this process's
    rows of the step; the facts are those of the whole step.
    """
    network, weighting, group = learner.network, learner.weighting, learner.group
    if batch.is_empty and group.world == 1:
        return StepFacts({}, 0.0, 0.0, weighting.weights())
    torch.manual_seed(step_seed(stage.training, step, group.rank))
    network.train()
    losses = group.add_missing(compute(network, batch), batch.parts)
    weights, terms = weighting.weights(), scaled(weighting.weigh(losses), batch)
    learner.optimizer.zero_grad(set_to_none=True)
    loss = learner.gradients.backward(network, terms, group)
    group.sum_gradients(weighting.parameters())
    optim.pull(network, learner.anchors, stage.training)
    norm = optim.clip(network.parameters(), stage.training.max_grad_norm)
    for parameters in learner.optimizer.param_groups:
        parameters["lr"] = parameters["base"] * optim.rate_factor(stage, step)
    with optim.dense_gradients(network):
        learner.optimizer.step()
    if learner.average:
        learner.average.update(step)
    sums = group.sum({t: batch.parts.get(t, 1.0) * float(x.detach()) for t, x in losses.items()})
    total = group.sum({"loss": float(loss.detach())})["loss"]
    weighting.note(sums, step)
    return StepFacts(sums, total, gradient_norm=float(norm), weights=weights)


def step_seed(training: Training, step: int, rank: int = 0) -> int:
    """Seed of dropout; it depends only on the run's seed, the step and the process.

    torch keeps 32 bits of it; multiples of the golden ratio set the processes far apart.
    """
    return training.seed * 1_000_003 + step + rank * 0x9E3779B1


def scaled(terms: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """Give every row the weight that it has in a batch of its task's usual size."""
    scale, parts = batch.scale, batch.parts
    return {task: scale.get(task, 1.0) * parts.get(task, 1.0) * t for task, t in terms.items()}


def check_reach(network: Network, losses: Mapping[str, Tensor]) -> None:
    """Stop when a task's loss gives no gradient to an owner on its route that should learn."""
    unreached: list[str] = []
    for task, loss in losses.items():
        owners = [o for o in network.layout.routes[task].trained if network.rates[o]]
        weights = [parameter for owner in owners for parameter in network.bank[owner].parameters()]
        gradients = iter(
            torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            if loss.requires_grad
            else [None] * len(weights)
        )
        for owner in owners:
            own = [next(gradients) for _ in network.bank[owner].parameters()]
            if own and not any(grad is not None and grad.to_dense().any() for grad in own):
                unreached.append(f"{task} -> {owner}")
    if unreached:
        raise GuardError(
            f"no gradient reaches {len(unreached)} owners that should learn "
            f"(task -> owner): {', '.join(unreached[:6])}; the loss is cut off from them, "
            "or their gradient is zero everywhere"
        )


def gradient_shares(
    learner: Learner, batches: Mapping[str, Batch], seed: int, compute: LossFunction
) -> dict[str, float]:
    """|g_i| / sum_j |g_j| of the weighted losses over all weights that these tasks share.

    `batches` holds the rows of each task of a step. Empty where nothing is shared. It changes
    nothing between two steps: a step begins with a seed of its own.
    """
    shared = shared_parameters(learner.network, batches)
    if not shared:
        return {}
    torch.manual_seed(seed)  # of dropout
    learner.network.train()
    norms = {}
    for task, batch in batches.items():
        term = scaled(learner.weighting.weigh(compute(learner.network, batch)), batch)[task]
        gradients = (
            torch.autograd.grad(term, shared, allow_unused=True) if term.requires_grad else ()
        )
        parts = [gradient.to_dense().norm() for gradient in gradients if gradient is not None]
        norms[task] = float(torch.stack(parts).norm()) if parts else 0.0
    total = sum(norms.values())
    return {task: norm / total for task, norm in norms.items()} if total else {}
