"""Which steps stand for a whole training when only a few are measured. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from mops.data.orders import Step
from mops.data.schedule import PlannedStage, Schedule
from mops.survey.costs.rounds import ROUNDS

LOOKED_AT = 100  # steps of a kind
Tokens = Callable[[int], int]  # of a step


@dataclass(frozen=True)
class Typical:
    """Steps of one stage that are measured."""

    stage: PlannedStage
    rounds: tuple[Mapping[int, float], ...]  # step -> its part in the whole training's mean step
    largest: int  # the step with the most tokens: it sets the peak of memory

    @property
    def steps(self) -> set[int]:
        return {self.largest, *(step for weights in self.rounds for step in weights)}


def typical_steps(schedule: Schedule, tokens: Tokens) -> list[Typical]:
    """Of each stage, for each round and each kind of step, two that have the kind's mean size."""
    return [typical_of(schedule, stage, tokens) for stage in schedule.stages if len(stage)]


def typical_of(schedule: Schedule, stage: PlannedStage, tokens: Tokens) -> Typical:
    kinds: dict[str, list[int]] = {}
    for step in range(stage.first, stage.stop):
        kinds.setdefault(kind_of(schedule.steps[step]), []).append(step)
    rounds: list[dict[int, float]] = [{} for _ in range(ROUNDS)]
    looked_at: dict[int, int] = {}
    for steps in kinds.values():
        sizes = {step: tokens(step) for step in spaced(steps, LOOKED_AT)}
        looked_at |= sizes
        for weights, pair in zip(rounds, cycle(middle_pairs(sizes)), strict=False):
            weights.update(dict.fromkeys(pair, len(steps) / len(pair) / len(schedule)))
    return Typical(stage, tuple(rounds), max(looked_at, key=looked_at.__getitem__))


def kind_of(step: Step) -> str:
    """Steps of one task differ from task to task; those of several are of one kind."""
    return next(iter(step)) if len(step) == 1 else ""


def spaced(steps: Sequence[int], count: int) -> list[int]:
    """At most `count` of them, evenly spaced."""
    places = np.linspace(0, len(steps) - 1, min(count, len(steps)))
    return [steps[place] for place in places.round().astype(int).tolist()]


def middle_pairs(sizes: Mapping[int, int]) -> list[tuple[int, ...]]:
    """A small and a large step each; first those that are nearest to two mean ones."""
    order = sorted(sizes, key=sizes.__getitem__)
    twice = 2 * sum(sizes.values()) / len(sizes)
    pairs = [(order[n], order[-1 - n]) for n in range((len(order) + 1) // 2)]
    pairs.sort(key=lambda pair: abs(sum(sizes[step] for step in pair) - twice))
    return [tuple(dict.fromkeys(pair)) for pair in pairs]
