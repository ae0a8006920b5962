"""The regimes of the founding paper as candidates of ours, in both of its contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mops.papers.paper import TASKS, Match
from mops.surveys.experiments.late import FINETUNED, FROZEN, REGIMES

EVEN = dict.fromkeys(TASKS, 1 / 3)
WEIGHED = {"paraphrase": 0.4, "sentiment": 0.2, "similarity": 0.4}
PARAPHRASE_AND_SIMILARITY = "paraphrase+similarity"
SUBSETS = (PARAPHRASE_AND_SIMILARITY, "sentiment+paraphrase", "sentiment+similarity")
SHARING = REGIMES[1:]  # all but I-I-I


def frozen(
    regime: str, rate: float | None = None, weights: Mapping[str, float] | None = None
) -> Match:
    return late(f"frozen+late:{regime}", rate, FROZEN, weights)


def tuned(
    regime: str, rate: float | None = None, weights: Mapping[str, float] | None = None
) -> Match:
    return late(f"late:{regime}", rate, FINETUNED, weights)


def late(plan: str, rate: float | None, usual: float, weights: Mapping[str, float] | None) -> Match:
    """What a row sets apart it needs; else the paper's defaults where the survey has several."""
    rates, losses = "training.learning_rate", "training.loss_weights"
    needs: dict[str, Any] = {rates: rate} if rate else {}
    needs |= {losses: weights} if weights else {}
    return Match(plan, needs=needs, rather={rates: rate or usual, losses: weights or EVEN})
