"""Which steps stand for a whole training when only a few are measured. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mops.data.orders import Step
from mops.data.schedule import PlannedStage, Schedule

LOOKED_AT = 100  # steps of a kind
Tokens = Callable[[int], int]  # of a step


@dataclass(frozen=True)
class Typical:
    """Steps of one stage that are measured."""

    stage: PlannedStage
    weights: Mapping[int, float]  # step -> its part in the mean step of the whole training
    largest: int  # the step with the most tokens: it sets the peak of memory


def typical_steps(schedule: Schedule, tokens: Tokens) -> list[Typical]:
    """Of each stage and each kind of step two, whose mean is nearest to the kind's mean."""
    return [typical_of(schedule, stage, tokens) for stage in schedule.stages if len(stage)]


def typical_of(schedule: Schedule, stage: PlannedStage, tokens: Tokens) -> Typical:
    kinds: dict[str, list[int]] = {}
    for step in range(stage.first, stage.stop):
        kinds.setdefault(kind_of(schedule.steps[step]), []).append(step)
    weights: dict[int, float] = {}
    looked_at: dict[int, int] = {}
    for steps in kinds.values():
        sizes = {step: tokens(step) for step in spaced(steps, LOOKED_AT)}
        looked_at |= sizes
        pair = middle_pair(sizes)
        weights |= dict.fromkeys(pair, len(steps) / len(pair) / len(schedule))
    return Typical(stage, weights, max(looked_at, key=looked_at.__getitem__))


def kind_of(step: Step) -> str:
    """Steps of one task differ from task to task; those of several are of one kind."""
    return next(iter(step)) if len(step) == 1 else ""


def spaced(steps: Sequence[int], count: int) -> list[int]:
    """At most `count` of them, evenly spaced."""
    places = np.linspace(0, len(steps) - 1, min(count, len(steps)))
    return [steps[place] for place in places.round().astype(int).tolist()]


def middle_pair(sizes: Mapping[int, int]) -> tuple[int, ...]:
    """A small and a large step that together are nearest to two mean ones."""
    order = sorted(sizes, key=sizes.__getitem__)
    mean = sum(sizes.values()) / len(sizes)
    pairs = [(order[n], order[-1 - n]) for n in range((len(order) + 1) // 2)]
    small, large = min(pairs, key=lambda pair: abs(sum(sizes[s] for s in pair) - 2 * mean))
    return tuple(dict.fromkeys((small, large)))
