"""One training step, from a batch to moved weights.

The guard of the gradients: does every task teach every weight that it should?
The share of each task in the gradient of what tasks share: weights that do nothing show here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from mops.config.training import Training
from mops.data.batches import Batch
from mops.errors import GuardError, RunError
from mops.model.network import Network
from mops.model.packing import Packer, pack_segments
from mops.training.distributed import ALONE, Together
from mops.training.gradients import Gradients, Sum, shared_parameters
from mops.training.loss_weights import Weighting, fixed_weights
from mops.training.losses import loss_of
from mops.training.optim import NO_START, Start, clip, dense, pull, rate_factor


@dataclass(frozen=True)
class StepFacts:
    """What one step did."""

    losses: Mapping[str, float]
    loss: float
    gradient_norm: float
    weights: Mapping[str, float] = field(default_factory=dict)  # of all tasks, in this step

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def take_step(
    network: Network,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    training: Training,
    *,
    step: int,
    total: int,
    first: int = 0,
    start: Start = NO_START,
    weighting: Weighting | None = None,
    gradients: Gradients | None = None,
    pack: Packer | None = None,
    together: Together = ALONE,
) -> StepFacts:
    """Forward, losses, their weights, backward and combine, pull, clip, move.

    `total` steps from step `first` on are one rise and fall of the rates. Without a weighting the
    recipe's numbers hold; without `gradients` they are added up. The rows of the batch may be a
    part of those of the step; the facts are those of the whole.
    """
    weighting = weighting or fixed_weights(training, network.layout.tasks)
    gradients = gradients or Sum()
    torch.manual_seed(step_seed(training, step, together.rank))
    network.train()
    losses = together.complete(compute_losses(network, batch, pack), batch.parts)
    weights, terms = weighting.weights(), scaled(weighting.weigh(losses), batch)
    optimiser.zero_grad(set_to_none=True)
    loss = gradients.backward(network, terms, together)
    together.add_gradients(weighting.parameters().values())
    pull(network, start, [task for task in network.layout.tasks if training.learns(task)])
    norm = clip(network.parameters(), training.max_grad_norm)
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * rate_factor(training, step - first, total)
    with dense(network):
        optimiser.step()
    whole = sum_losses(losses, loss, batch, together)
    facts = StepFacts(*whole, gradient_norm=float(norm), weights=weights)
    weighting.note(facts.losses, step)
    return refuse_nan(facts, step)


def step_seed(training: Training, step: int, rank: int = 0) -> int:
    """Of dropout, which follows from the run's seed, the step and the process alone.

    torch keeps 32 bits of it; the golden ratio of these sets processes far apart.
    """
    return training.seed * 1_000_003 + step + rank * 0x9E3779B1


def scaled(terms: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """A row counts as it does in a usual batch of its task, also where there are more or fewer."""
    scale, parts = batch.scale, batch.parts
    return {task: scale.get(task, 1.0) * parts.get(task, 1.0) * t for task, t in terms.items()}


def compute_losses(network: Network, batch: Batch, pack: Packer | None = None) -> dict[str, Tensor]:
    """The loss of each task in the batch, in one pass."""
    device = next(network.parameters()).device
    pack = pack or partial(pack_segments, layout=network.layout, device=device)
    outputs = network(pack(batch.segments))
    return {
        task: loss_of(
            network.layout.tasks[task],
            outputs[task],
            torch.as_tensor(targets, dtype=torch.float32).to(device),
        )
        for task, targets in batch.targets.items()
    }


def sum_losses(
    losses: Mapping[str, Tensor], loss: Tensor, batch: Batch, together: Together
) -> tuple[Mapping[str, float], float]:
    """The losses of all processes: by task, and as they were weighed."""
    here = {task: batch.parts.get(task, 1.0) * float(losses[task].detach()) for task in losses}
    return together.sum_of(here), together.sum_of({"loss": float(loss.detach())})["loss"]


def refuse_nan(facts: StepFacts, step: int) -> StepFacts:
    if not facts.is_finite:
        raise RunError(
            f"step {step + 1}: the loss or its gradient is not a number "
            f"(losses {dict(facts.losses)}); "
            "lower training.learning_rate or training.head_learning_rate"
        )
    return facts


GUARDED_STEP = 3  # some parts start at zero and pass no gradient before they have moved


def check_gradients(network: Network, batch: Batch, pack: Packer | None = None) -> None:
    """Stop when a task's loss gives no gradient to an owner on its route that should learn."""
    network.train()
    check_reach(network, compute_losses(network, batch, pack))


def check_reach(network: Network, losses: Mapping[str, Tensor]) -> None:
    """The same for losses that are there already."""
    untaught: list[str] = []
    for task, loss in losses.items():
        layout = network.layout
        owners = [o for o in layout.routes[task].trained if network.rates[o] and layout.sizes[o]]
        if not loss.requires_grad:
            untaught += [f"{task} -> {owner}" for owner in owners]
            continue
        parameters = {owner: list(network.bank[owner].parameters()) for owner in owners}
        flat = [p for members in parameters.values() for p in members]
        gradients = torch.autograd.grad(loss, flat, retain_graph=True, allow_unused=True)
        is_moved = {
            id(p): g is not None and bool(g.to_dense().any())
            for p, g in zip(flat, gradients, strict=True)
        }
        untaught += [
            f"{task} -> {owner}"
            for owner, members in parameters.items()
            if members and not any(is_moved[id(p)] for p in members)
        ]
    if untaught:
        raise GuardError(
            f"no gradient reaches {len(untaught)} owners that should learn "
            f"(task -> owner): {', '.join(untaught[:6])}; the loss is cut off from them, "
            "or their gradient is zero everywhere"
        )


Losses = Callable[[str], Mapping[str, Tensor]]  # of one task of the batch
SHARE_STEPS = 50  # between measurements: each takes about the time of a step


def gradient_shares(
    network: Network, weighting: Weighting, batch: Batch, seed: int, pack: Packer | None = None
) -> dict[str, float]:
    """The shares of the tasks of a batch; each task's rows pass alone: together one pass."""
    return shares_of(
        network,
        weighting,
        batch,
        seed,
        lambda task: compute_losses(network, rows_of(batch, task), pack),
    )


def shares_of(
    network: Network, weighting: Weighting, batch: Batch, seed: int, losses: Losses
) -> dict[str, float]:
    """|g_i| / sum_j |g_j| of the weighted losses over all weights that tasks of the batch share.

    Empty where nothing is shared. Between two steps it changes nothing: a step begins with a seed
    of its own.
    """
    shared = shared_parameters(network, batch.targets)
    if not shared:
        return {}
    torch.manual_seed(seed)  # of dropout
    network.train()
    norms = {}
    for task in batch.targets:
        term = scaled(weighting.weigh(losses(task)), batch)[task]
        norms[task] = float(norm_of(term, shared))
    total = sum(norms.values())
    return {task: norm / total for task, norm in norms.items()} if total else {}


def rows_of(batch: Batch, task: str) -> Batch:
    segments = tuple(segment for segment in batch.segments if task in segment.tasks)
    return Batch(segments, {task: batch.targets[task]})


def norm_of(term: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    if not term.requires_grad:
        return torch.zeros(())
    gradients = torch.autograd.grad(term, parameters, allow_unused=True)
    norms = [gradient.to_dense().norm() for gradient in gradients if gradient is not None]
    return torch.stack(norms).norm() if norms else torch.zeros(())
