"""Late-stage sharing: the five experiments of "Memory Occupancy and Performance Surveying"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from mops.data.schedule import generator
from mops.surveys.design import Block
from mops.surveys.experiments.table import (
    BOTH_RATES,
    PLAIN,
    Given,
    budget,
    experiment,
    rates,
    training,
)

SOURCE = "Memory Occupancy and Performance Surveying"
DIFFERS = (
    "pooling as in the recipe (by default the mean); the paraphrase loss has a gradient and sees "
    "the difference and the product of the two vectors; similarities are not cut to whole numbers"
)
BASELINE = "III"
REGIMES = (BASELINE, "IIS", "ISI", "SII", "ISS", "SIS", "SSI", "SSS")
FROZEN, FINETUNED = 1e-3, 1e-5  # the default rates of the two contexts
# The four best beside the baseline, by the paper's tables 1 and 2.
BEST_FROZEN = ("SSI", "IIS", "SII", "ISS")
BEST_FINETUNED = ("ISS", "SII", "SSI", "SIS")
RATES, LOWEST, HIGHEST, DRAW = 5, -7.0, -1.0, 11711  # how many, powers of ten, seed
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
        **training(loss_weights=evenly(given)),
    }


def evenly(given: Given) -> dict[str, float]:
    return {name: round(1 / len(given.tasks), 6) for name in given.tasks}


def frozen(regimes: Sequence[str]) -> list[str]:
    return [f"frozen+late:{regime}" for regime in regimes]


def finetuned(regimes: Sequence[str]) -> list[str]:
    return [f"late:{regime}" for regime in regimes]


@experiment(
    "late-frozen",
    about="eight regimes of three late layers on a frozen encoder",
    source=f"{SOURCE}, experiment 1",
    differs=DIFFERS,
    baseline="frozen+late:III",
    hours=0.41,
)
def late_frozen(given: Given) -> list[Block]:
    return [Block(set={**paper(given), **rates(FROZEN)}, axes={"plan": frozen(REGIMES)})]


@experiment(
    "late-finetuned",
    about="eight regimes of three late layers, everything trained",
    source=f"{SOURCE}, experiment 2",
    differs=DIFFERS,
    baseline="late:III",
    hours=24,
)
def late_finetuned(given: Given) -> list[Block]:
    return [Block(set={**paper(given), **rates(FINETUNED)}, axes={"plan": finetuned(REGIMES)})]


@experiment(
    "learning-rates",
    about="the four best regimes with five rates from 1e-7 to 1e-1, frozen and fine-tuned",
    source=f"{SOURCE}, experiment 3",
    differs=f"{DIFFERS}; one rate is drawn in each fifth of the range, the same for all regimes; "
    "the default rate and the regime III are tried too",
    baseline="late:III",
    hours=75,
)
def learning_rates(given: Given) -> list[Block]:
    common = paper(given)
    blocks = []
    for plans, best, rate in (
        (finetuned, BEST_FINETUNED, FINETUNED),
        (frozen, BEST_FROZEN, FROZEN),
    ):
        blocks.append(Block(set=common, axes={"plan": plans([BASELINE]), BOTH_RATES: [rate]}))
        blocks.append(
            Block(set=common, axes={"plan": plans(best), BOTH_RATES: [rate, *drawn_rates()]})
        )
    return blocks


def drawn_rates() -> list[float]:
    """Log-uniform, one in each fifth of the range; the same for every regime."""
    places = (np.arange(RATES) + generator(DRAW, "learning-rates").random(RATES)) / RATES
    powers = LOWEST + (HIGHEST - LOWEST) * places
    return [float(f"{10**power:.3e}") for power in powers.tolist()]


@experiment(
    "loss-weights",
    about="six weightings of three losses, frozen and fine-tuned, beside equal weights",
    source=f"{SOURCE}, experiment 4",
    differs=f"{DIFFERS}; equal weights are tried too",
    baseline="late:ISS",
    hours=21,
)
def loss_weights(given: Given) -> list[Block]:
    if len(given.tasks) != 3:
        raise given.refuse("three tasks", "choose three with --tasks, or write your own axis")
    weights = [evenly(given)]
    weights += [dict(zip(given.tasks, three, strict=True)) for three in WEIGHTS]
    return [
        Block(
            set={**paper(given), **rates(rate)},
            axes={"plan": [plan], "training.loss_weights": weights},
        )
        for plan, rate in (("late:ISS", FINETUNED), ("frozen+late:ISS", FOUND_FROZEN))
    ]


@experiment(
    "subsets",
    about="late layers shared by some of the tasks only",
    source=f"{SOURCE}, experiment 5",
    differs=f"{DIFFERS}; more than three tasks form groups without singletons (its section 4.4.3)",
    baseline="late:III",
    hours=29,
)
def subsets(given: Given) -> list[Block]:
    if not 3 <= len(given.tasks) <= MOST_TASKS:
        raise given.refuse(f"three to {MOST_TASKS} tasks", "choose some with --tasks")
    plans = [
        f"late:{regime}/{','.join('+'.join(group) for group in groups)}"
        for regime in SHARED_BY_SUBSETS
        for groups in groupings(given.tasks)
    ]
    common = {**paper(given), **rates(FINETUNED)}
    return [Block(set=common, axes={"plan": [f"late:{BASELINE}", *plans]})]


def groupings(tasks: tuple[str, ...]) -> list[list[tuple[str, ...]]]:
    """Of three tasks each pair; of more, all ways to form groups of two or more, but for one."""
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
