"""Stages: what learns in a part of a run, and how fast."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from mops.data.schedule import Schedule, Span
from mops.encoder.network import Network
from mops.fit.rates import build_optimiser
from mops.fit.weights import Weighting
from mops.layout import Layout, lay_out
from mops.plans import frozen


def enter(network: Network, span: Span, weighting: Weighting) -> torch.optim.Optimizer:
    """Freeze and thaw what the stage says; its optimiser starts anew, with fresh moments."""
    network.set_rates(rates_in(network.layout, span))
    return build_optimiser(network, span.training, weighting.parameters().values())


def rates_in(layout: Layout, span: Span) -> Mapping[str, float]:
    """Owner -> factor on the learning rate: the plan's, or those of the plan after `frozen+`."""
    if not span.is_frozen:
        return layout.rates
    tasks = list(layout.tasks.values())
    return lay_out(frozen(layout.plan), tasks, layout.encoder, layout.reading).rates


def trained_parameters(layout: Layout, schedule: Schedule) -> int:
    """Weights that learn in any stage."""
    rates = [rates_in(layout, span) for span in schedule.spans]
    learning = {owner for found in rates for owner, rate in found.items() if rate > 0}
    return sum(layout.sizes[owner] for owner in learning)
