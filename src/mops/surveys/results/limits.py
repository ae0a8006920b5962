"""Which candidates a decision may choose from: compared alike, and within the limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mops.surveys.results.standings import Standing, Summary
from mops.units import format_bytes, format_count, format_seconds

LIMITED: dict[str, tuple[str, str, Callable[[float], str]]] = {  # -> cost fact, name, how it reads
    "max_params": ("parameters", "parameters", format_count),
    "max_latency": ("latency_seconds", "latency", format_seconds),
    "max_train_time": ("train_seconds", "training time", format_seconds),
    "max_memory": ("peak_memory_bytes", "peak memory", format_bytes),
}


@dataclass(frozen=True)
class Excluded:
    """Who cannot be chosen, and why."""

    name: str
    reason: str


def comparable(summary: Summary) -> tuple[list[Standing], list[Excluded]]:
    """Those that have learnt all tasks and were trained with all seeds that others were."""
    home = summary.standings[0].tasks
    most = max(len(one.trials) for one in summary.standings if one.tasks == home)
    judged, unjudged = [], []
    for one in summary.standings:
        if one.tasks != home:
            reason = f"it has learnt {', '.join(one.tasks)} and not {', '.join(home)}"
            unjudged.append(Excluded(one.name, reason))
        elif len(one.trials) < most:
            reason = f"only {len(one.trials)} of {len(summary.seeds)} seeds are finished"
            unjudged.append(Excluded(one.name, reason))
        else:
            judged.append(one)
    return judged, unjudged


def over(costs: Mapping[str, Any], limits: Mapping[str, float]) -> str:
    """Which limits a candidate does not meet, and by how much; empty when it meets them all."""
    found = []
    for option, limit in limits.items():
        fact, name, words = LIMITED[option]
        value = costs.get(fact)
        if value is None:
            found.append(f"its {name} was not measured")
        elif value > limit:
            share = value / limit - 1
            found.append(f"{name} {words(value)}, {share:.0%} above the limit of {words(limit)}")
    return "; ".join(found)


def unmet(judged: Sequence[Standing], limits: Mapping[str, float]) -> str:
    """Nothing is within the limits: how near the nearest is."""

    def excess(one: Standing) -> float:
        values = ((one.costs.get(LIMITED[option][0]), limit) for option, limit in limits.items())
        return max(math.inf if value is None else value / limit for value, limit in values)

    nearest = min(judged, key=excess)
    return (
        f"no candidate meets the limits; the nearest is {nearest.name}: "
        f"{over(nearest.costs, limits)}"
    )
