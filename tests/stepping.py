"""`take_step` for tests: a learner and a stage of one step's parts."""

from __future__ import annotations

from functools import partial

import torch

from mops.config.training import Training
from mops.data.batches import Batch
from mops.data.schedule import PlannedStage
from mops.model.network import Network
from mops.model.packing import Packer
from mops.training.losses import Fixed, Sum, Weighting
from mops.training.optim import Anchors
from mops.training.step import Learner, StepFacts, compute_losses
from mops.training.step import take_step as take


def take_step(
    network: Network,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    training: Training,
    *,
    step: int = 0,
    total: int = 1,
    first: int = 0,
    anchors: Anchors | None = None,
    weighting: Weighting | None = None,
    gradients: Sum | None = None,
    pack: Packer | None = None,
) -> StepFacts:
    """By default with fixed weights of the losses and summed gradients."""
    learner = Learner(
        network,
        optimizer,
        weighting or Fixed({task: training.weight(task) for task in network.layout.tasks}),
        gradients or Sum(),
        anchors or {},
    )
    stage = PlannedStage(first, first + total, training)
    return take(learner, batch, stage, step, partial(compute_losses, pack=pack))
