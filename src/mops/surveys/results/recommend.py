"""The decision: which plan to use under these limits, why, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mops.errors import UsageError
from mops.surveys.results.limits import Excluded, comparable, over, unmet
from mops.surveys.results.pareto import Point, front, point_of
from mops.surveys.results.reasons import notes, reason_for
from mops.surveys.results.standings import Standing, Summary
from mops.surveys.results.weighing import Weighed, weigh
from mops.units import format_count, format_seconds

# Inside a tie: fact, what its smallest is called, how it reads, and the share by which two may
# differ and still count as equal (times are measured, and machines are noisy).
CHEAPEST: tuple[tuple[str, str, Callable[[float], str], float], ...] = (
    ("parameters", "the fewest parameters", format_count, 0.01),
    ("latency_seconds", "the lowest latency", format_seconds, 0.1),
    ("train_seconds", "the shortest training", format_seconds, 0.0),
)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to use; without a candidate when nothing meets the limits."""

    candidate: str | None
    plan: str | None
    is_shared: bool
    reason: str
    trial: str | None  # of the seed with the best selection score
    tied: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    front: tuple[Point, ...]
    scores: Mapping[str, Weighed]  # of all that are compared, within the limits or not
    notes: tuple[str, ...]


def recommend(
    summary: Summary,
    *,
    max_params: float | None = None,
    max_latency: float | None = None,
    max_train_time: float | None = None,
    max_memory: float | None = None,
    weights: Mapping[str, float] | None = None,
) -> Decision:
    """The cheapest of those that cannot be told from the best, among those within the limits.

    A summary that was judged by the same weights (`read_weighed`) tells more candidates apart.
    """
    if not summary.standings:
        raise UsageError(f"survey {summary.name}: no trial is finished, nothing can be recommended")
    given = {
        "max_params": max_params,
        "max_latency": max_latency,
        "max_train_time": max_train_time,
        "max_memory": max_memory,
    }
    return decide(summary, {key: of for key, of in given.items() if of is not None}, weights)


def decide(
    summary: Summary, limits: Mapping[str, float], weights: Mapping[str, float] | None
) -> Decision:
    judged, unjudged = comparable(summary)
    weights = None if weights == summary.weights else weights  # overall scores are weighed so
    scores = weigh(judged, weights)
    excluded = [Excluded(one.name, why) for one in judged if (why := over(one.costs, limits))]
    within = [one for one in judged if not over(one.costs, limits)]
    ties = weigh(within, weights)  # once more: the best of a tie may be outside the limits
    tied = [one for one in within if ties[one.name].tie == 1]
    chosen, why = cheapest(tied)
    return Decision(
        candidate=chosen.name if chosen else None,
        plan=chosen.plan if chosen else None,
        is_shared=chosen is not None and chosen.name != summary.single,
        reason=reason_for(summary, chosen, tied, ties, why) if chosen else unmet(judged, limits),
        trial=best_trial(chosen) if chosen else None,
        tied=tuple(one.name for one in tied if one is not chosen),
        excluded=(*excluded, *unjudged),
        front=front([point_of(one.name, scores[one.name].mean, one.costs) for one in judged]),
        scores=scores,
        notes=tuple(notes(summary, chosen, weights)),
    )


def cheapest(tied: Sequence[Standing]) -> tuple[Standing | None, str]:
    """The cheapest of a tie, and by what it was found."""
    left, decisive = list(tied), []
    for fact, name, words, slack in CHEAPEST:
        known = [one.costs[fact] for one in left if one.costs.get(fact) is not None]
        if len(left) < 2 or not known:
            continue
        bound = min(known) * (1 + slack)
        kept = [one for one in left if (one.costs.get(fact) or math.inf) <= bound]
        if len(kept) < len(left):
            decisive.append((fact, name, words, min(known)))
            left = kept
    if not left:
        return None, ""
    own = left[0].costs
    found = [
        f"{'' if own[fact] == least else 'nearly '}{name} ({words(own[fact])})"
        for fact, name, words, least in decisive
    ]
    return left[0], ", then ".join(found)


def best_trial(chosen: Standing) -> str:
    """By the rows that choose, not by those that judge."""
    return max(chosen.trials, key=lambda trial: trial.selection or -math.inf).id
