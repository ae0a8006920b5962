"""Late-stage sharing: the five experiments of "Memory Occupancy and Performance Surveying"."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from mops.data.schedule import generator
from mops.surveys.design import Block
from mops.surveys.experiments.given import (
    PLAIN,
    Given,
    budget,
    compare,
    rates,
    training,
)

BASELINE = "III"
REGIMES = (BASELINE, "IIS", "ISI", "SII", "ISS", "SIS", "SSI", "SSS")
FROZEN, FINETUNED = 1e-3, 1e-5  # the default learning rates of the two contexts
# The four best beside the baseline, by the paper's tables 1 and 2.
BEST_FROZEN = ("SSI", "IIS", "SII", "ISS")
BEST_FINETUNED = ("ISS", "SII", "SSI", "SIS")
RATES, LOWEST, HIGHEST, RATE_SEED = 5, -7.0, -1.0, 11711  # how many, powers of ten, seed
FOUND_FROZEN = 8.565e-6  # by the paper's search; its weights were tried with it
WEIGHTS = (
    (0.4, 0.4, 0.2), (0.4, 0.2, 0.4), (0.2, 0.4, 0.4),
    (0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.25, 0.25, 0.5),
)  # fmt: skip
SHARED_BY_SUBSETS = ("ISS", "SSI", "SIS")
MOST_TASKS = 5  # of `subsets`; six have 40 groupings


def paper(given: Given) -> dict[str, Any]:
    """Section 4.3.1: ten epochs of 1000 steps, texts of a pair apart, a cosine for similarity."""
    head = {name: {"kind": "cosine", "project": True} for name in given.similarities}
    return {
        **PLAIN,
        **budget(10, 1000),
        **training(pair="bi", features=["difference", "product"], head=head or "linear"),
        **training(schedule="together", gradients="sum"),
        **training(loss_weights=equal_weights(given)),
    }


def equal_weights(given: Given) -> dict[str, float]:
    return {name: round(1 / len(given.tasks), 6) for name in given.tasks}


def late_frozen(given: Given) -> list[Block]:
    plans = [f"frozen+late:{regime}" for regime in REGIMES]
    return [compare({**paper(given), **rates(FROZEN)}, plans)]


def late_finetuned(given: Given) -> list[Block]:
    plans = [f"late:{regime}" for regime in REGIMES]
    return [compare({**paper(given), **rates(FINETUNED)}, plans)]


def learning_rates(given: Given) -> list[Block]:
    both = "training.learning_rate+training.head_learning_rate"
    blocks = []
    for prefix, best, rate in (
        ("late:", BEST_FINETUNED, FINETUNED),
        ("frozen+late:", BEST_FROZEN, FROZEN),
    ):
        for regimes, tried in (((BASELINE,), [rate]), (best, [rate, *draw_rates()])):
            plans = [prefix + regime for regime in regimes]
            blocks.append(Block(set=paper(given), axes={"plan": plans, both: tried}))
    return blocks


def draw_rates() -> list[float]:
    """Log-uniform, one in each fifth of the range; the same for every regime."""
    places = (np.arange(RATES) + generator(RATE_SEED, "learning-rates").random(RATES)) / RATES
    powers = LOWEST + (HIGHEST - LOWEST) * places
    return [float(f"{10**power:.3e}") for power in powers.tolist()]


def loss_weights(given: Given) -> list[Block]:
    if len(given.tasks) != 3:
        raise given.refuse("three tasks", "choose three with --tasks, or write your own axis")
    weights = [equal_weights(given)]
    weights += [dict(zip(given.tasks, three, strict=True)) for three in WEIGHTS]
    return [
        compare({**paper(given), **rates(rate)}, [plan], loss_weights=weights)
        for plan, rate in (("late:ISS", FINETUNED), ("frozen+late:ISS", FOUND_FROZEN))
    ]


def subsets(given: Given) -> list[Block]:
    if not 3 <= len(given.tasks) <= MOST_TASKS:
        raise given.refuse(f"three to {MOST_TASKS} tasks", "choose some with --tasks")
    plans = [
        f"late:{regime}/{','.join('+'.join(group) for group in groups)}"
        for regime in SHARED_BY_SUBSETS
        for groups in list_groupings(given.tasks)
    ]
    return [compare({**paper(given), **rates(FINETUNED)}, [f"late:{BASELINE}", *plans])]


def list_groupings(tasks: tuple[str, ...]) -> list[list[tuple[str, ...]]]:
    """Three tasks: each pair. More: all partitions into two or more groups without singletons."""
    if len(tasks) == 3:
        return [[pair] for pair in combinations(tasks, 2)]
    return [groups for groups in partitions(tasks) if len(groups) > 1]


def partitions(tasks: tuple[str, ...]) -> Iterator[list[tuple[str, ...]]]:
    """All ways to divide tasks into groups of two or more."""
    if not tasks:
        yield []
        return
    first, others = tasks[0], tasks[1:]
    for count in range(1, len(others) + 1):
        for chosen in combinations(others, count):
            left = tuple(task for task in others if task not in chosen)
            yield from ([(first, *chosen), *rest] for rest in partitions(left))


LATE = {
    "late-frozen": late_frozen,
    "late-finetuned": late_finetuned,
    "learning-rates": learning_rates,
    "loss-weights": loss_weights,
    "subsets": subsets,
}
