"""Stages: what learns in a part of a run, and how fast."""

from __future__ import annotations

import torch

from mops.data.budgets import rates_in
from mops.data.schedule import PlannedStage
from mops.encoder.network import Network
from mops.fit.rates import build_optimiser
from mops.fit.weights import Weighting


def enter(network: Network, stage: PlannedStage, weighting: Weighting) -> torch.optim.Optimizer:
    """Freeze and thaw what the stage says; its optimiser starts anew, with fresh moments."""
    network.set_rates(rates_in(network.layout, stage))
    return build_optimiser(network, stage.training, weighting.parameters().values())
