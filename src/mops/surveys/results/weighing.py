"""The scores that a decision is made by: the plain mean of the tasks, or weights of your own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mops.errors import UsageError, nearest
from mops.evaluate.compare import tie_groups
from mops.evaluate.statistics import LEVEL, holm, off_zero
from mops.surveys.results.standings import Standing


@dataclass(frozen=True)
class Weighed:
    """A candidate's score with its standard error, and the group it cannot be told from."""

    mean: float
    stderr: float
    tie: int


def parse_weights(text: str) -> dict[str, float]:
    """`sentiment=2,similarity=1` as numbers by task."""
    found = {}
    for part in text.split(","):
        task, sign, number = part.partition("=")
        try:
            found[task.strip()] = float(number)
        except ValueError:
            sign = ""
        if not sign or not 0 <= found[task.strip()] < math.inf:
            raise UsageError(
                f"--weights {text!r}: write TASK=NUMBER,TASK=NUMBER with numbers from 0 on, "
                "as sentiment=2,similarity=1"
            )
    return found


def weigh(standings: Sequence[Standing], weights: Mapping[str, float] | None) -> dict[str, Weighed]:
    """These candidates by `overall`, or by weights; tasks that are not named weigh 1."""
    means, errors = by_weights(standings, weights) if weights else by_overall(standings)
    if weights or any(one.overall.seeds == 1 for one in standings):
        # With one seed the survey calls no difference of plans real. A decision is then one between
        # trained models, and these are told apart by their rows.
        apart = told_apart(means, errors, {one.name: one.overall.seeds for one in standings})
    else:
        apart = {frozenset((one.name, other)) for one in standings for other in one.apart}
    ties = tie_groups(means, apart)
    return {name: Weighed(means[name], errors[name], ties[name]) for name in means}


def by_overall(standings: Sequence[Standing]) -> tuple[dict[str, float], dict[str, float]]:
    found = {one.name: one.overall for one in standings}
    return {n: of.mean for n, of in found.items()}, {n: of.stderr for n, of in found.items()}


def by_weights(
    standings: Sequence[Standing], weights: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """How the errors of tasks go together is not known here: their sum is the most they can be."""
    means, errors = {}, {}
    for one in standings:
        shares = normalised(weights, one.tasks)
        means[one.name] = sum(w * one.scores[task].mean for task, w in shares.items())
        errors[one.name] = sum(w * one.scores[task].stderr for task, w in shares.items())
    return means, errors


def normalised(weights: Mapping[str, float], tasks: Sequence[str]) -> dict[str, float]:
    for name in weights:
        if name not in tasks:
            raise UsageError(
                f"--weights names {name!r}; the tasks are {', '.join(tasks)}.{nearest(name, tasks)}"
            )
    given = {name: weights.get(name, 1.0) for name in tasks}
    total = sum(given.values())
    if total <= 0:
        raise UsageError("--weights gives every task 0; at least one must count")
    return {name: weight / total for name, weight in given.items()}


def told_apart(
    means: Mapping[str, float], errors: Mapping[str, float], seeds: Mapping[str, int]
) -> set[frozenset[str]]:
    """Pairs whose difference is real, judged as if they had answered different rows.

    They have answered the same rows, so their errors go the same way and the true error of the
    difference is smaller: what is told apart here is different, what is not may be.
    """
    pairs = list(combinations(means, 2))
    p = [
        off_zero(
            means[a] - means[b],
            math.hypot(errors[a], errors[b]),
            (seeds[a] + seeds[b] - 2) or math.inf,  # one seed each: rows, of which there are many
        )
        for a, b in pairs
    ]
    return {frozenset(pair) for pair, value in zip(pairs, holm(p), strict=True) if value < LEVEL}
