"""The Pareto front: candidates that no other beats in score and all costs at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COSTS = ("parameters", "latency_seconds", "train_seconds")  # the less the better


@dataclass(frozen=True)
class Point:
    """A candidate as a score and its costs; a cost that was not measured is none."""

    name: str
    score: float
    costs: Mapping[str, float | None]

    @property
    def losses(self) -> tuple[float, ...]:
        """The less the better, each of them; what is not known is the worst."""
        values = (self.costs.get(key) for key in COSTS)
        return (-self.score, *(math.inf if value is None else value for value in values))


def point_of(name: str, score: float, costs: Mapping[str, Any]) -> Point:
    return Point(name, score, {key: costs.get(key) for key in COSTS})


def front(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points that no other dominates, the best score first."""
    kept = [one for one in points if not any(dominates(other, one) for other in points)]
    return tuple(sorted(kept, key=lambda one: one.losses))


def dominates(one: Point, other: Point) -> bool:
    """At least as good in all, better in one."""
    pairs = list(zip(one.losses, other.losses, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
