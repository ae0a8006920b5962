"""What a candidate costs: the cost pass where it has measured, else what its trials recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from mops.evaluate.cost import tm_relative
from mops.surveys.results.results import Result

PASS, RECORDS = "cost pass", "records of the trainings"
COUNTED = (  # the same in every trial of a candidate
    "parameters",
    "trained_parameters",
    "parameters_by_owner",
    "weight_bytes",
    "training_state_bytes",
    "flops_per_example",
)
PRICED = ("train_seconds", "weight_bytes")  # what a score is set beside
RAW = ("mark", "rounds", "baseline_rounds")  # what the pass keeps for itself


def expenses(results: Sequence[Result], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Cost facts; `source` says whether the times met the same machine."""
    first = results[0].record.costs
    recorded = [one.record.costs for one in results]
    return {
        **{key: getattr(first, key) for key in COUNTED},
        "train_seconds": median(costs.train_seconds for costs in recorded),
        "step_seconds": median(costs.step_seconds_median for costs in recorded),
        "peak_memory_bytes": max(costs.peak_memory_bytes for costs in recorded),
        "disk_bytes": max(costs.bundle_bytes for costs in recorded),
        **{key: value for key, value in measured.items() if key not in RAW},
        "source": PASS if "train_seconds" in measured else RECORDS,
    }


def relative(
    scores: Mapping[str, float],
    costs: Mapping[str, Mapping[str, Any]],
    name: str,
    reference: str,
) -> float | None:
    """Score for time and memory, the reference's being 1; none where that has no meaning."""
    own, other = costs[name], costs[reference]
    if own["source"] != other["source"]:  # times of different moments say nothing of each other
        return None
    (seconds, size), (seconds0, size0) = ([of[key] for key in PRICED] for of in (own, other))
    found = tm_relative(
        scores[name], seconds, size, score0=scores[reference], seconds0=seconds0, size0=size0
    )
    return found if math.isfinite(found) else None
