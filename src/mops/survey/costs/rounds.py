"""From rounds to numbers: every candidate beside the baseline that met the same machine. No torch.

A machine's speed changes from minute to minute. In each round every candidate of a group and the
baseline take their turns, so their ratio is that of the same minute; a candidate's time is the
median of these ratios times the median of all of the baseline's rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ROUNDS = 7
BATCH = 32  # rows of a batch of requests
Rounds = Mapping[str, Sequence[float]]  # what -> seconds in each round
# what is measured -> what of the baseline's it stands beside: it may have nothing to encode
BESIDE = {"step": "step", "encode": "step", "latency": "latency", "batch": "batch"}


def settle(entries: Mapping[str, Mapping[str, Any]], baseline: str) -> dict[str, dict[str, Any]]:
    """The entries with their times, from the rounds of all of them."""
    level: Rounds = entries.get(baseline, {}).get("rounds", {})
    noise = spread(level["step"]) / middle(level["step"]) if level else None
    return {
        name: {**entry, **times(entry, level), "noise": noise} if "rounds" in entry else {**entry}
        for name, entry in entries.items()
    }


def times(entry: Mapping[str, Any], level: Rounds) -> dict[str, float]:
    found = {what: seconds_of(what, entry, level) for what in BESIDE}
    step, encode = middle(found["step"]), middle(found["encode"])
    return {
        "step_seconds": step,
        "step_seconds_spread": spread(found["step"]),
        "encode_seconds": encode,
        "train_seconds": entry["planned_steps"] * step + encode,
        "latency_seconds": middle(found["latency"]),
        "throughput": BATCH / middle(found["batch"]),
    }


def seconds_of(what: str, entry: Mapping[str, Any], level: Rounds) -> list[float]:
    """Each round as if the baseline had taken its usual time in it; as measured without one."""
    own, beside = entry["rounds"][what], entry.get("baseline_rounds")
    if not beside or not level:
        return list(own)
    usual = middle(level[BESIDE[what]])
    return [usual * a / b for a, b in zip(own, beside[BESIDE[what]], strict=True)]


def middle(values: Sequence[float]) -> float:
    return float(np.median(values))


def spread(values: Sequence[float]) -> float:
    """Between the quartiles: a round that something disturbed does not count."""
    low, high = np.percentile(values, [25, 75])
    return float(high - low)
