"""The decision: which plan to use under these limits, why, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mops.errors import UsageError
from mops.survey.amounts import byte_words, count_words, second_words
from mops.survey.pareto import Point, front, point_of
from mops.survey.standings import Standing, Summary
from mops.survey.weighing import Weighed, weigh

Words = Callable[[float], str]
LIMITED: dict[str, tuple[str, str, Words]] = {  # option -> cost fact, its name, how it reads
    "max_params": ("parameters", "parameters", count_words),
    "max_latency": ("latency_seconds", "latency", second_words),
    "max_train_time": ("train_seconds", "training time", second_words),
    "max_memory": ("peak_memory_bytes", "peak memory", byte_words),
}
# Inside a tie: fact, what its smallest is called, how it reads, and the share by which two may
# differ and still count as equal (times are measured, and machines are noisy).
CHEAPEST: tuple[tuple[str, str, Words, float], ...] = (
    ("parameters", "the fewest parameters", count_words, 0.01),
    ("latency_seconds", "the lowest latency", second_words, 0.1),
    ("train_seconds", "the shortest training", second_words, 0.0),
)
CONSERVATIVE = (
    "weighted scores are judged from the task scores alone, as if each candidate had answered "
    "other rows: ties may be wider than they are"
)
ONE_SEED = (
    "one seed: this is a choice between these trained models, told apart by their rows; of the "
    "plans it says nothing"
)


@dataclass(frozen=True)
class Excluded:
    name: str
    reason: str


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
    scores: Mapping[str, Weighed]
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
    """The cheapest of those that cannot be told from the best, among those within the limits."""
    if not summary.standings:
        raise UsageError(f"survey {summary.name}: no trial is finished, nothing can be recommended")
    given = {
        "max_params": max_params,
        "max_latency": max_latency,
        "max_train_time": max_train_time,
        "max_memory": max_memory,
    }
    limits = {option: limit for option, limit in given.items() if limit is not None}
    judged, unjudged = comparable(summary)
    scores = weigh(judged, weights)
    excluded = [Excluded(one.name, why) for one in judged if (why := over(one.costs, limits))]
    out = {one.name for one in excluded}
    within = [one for one in judged if one.name not in out]
    tie = min((scores[one.name].tie for one in within), default=0)
    tied = [one for one in within if scores[one.name].tie == tie]
    chosen, why = cheapest(tied) if tied else (None, "")
    is_shared = chosen is not None and chosen.name != summary.single
    return Decision(
        candidate=chosen.name if chosen else None,
        plan=chosen.plan if chosen else None,
        is_shared=is_shared,
        reason=reason_for(summary, chosen, tied, within, scores, why)
        if chosen
        else unmet(judged, limits),
        trial=best_trial(chosen) if chosen else None,
        tied=tuple(one.name for one in tied if one is not chosen),
        excluded=(*excluded, *unjudged),
        front=front([point_of(o.name, scores[o.name].mean, o.costs) for o in judged]),
        scores=scores,
        notes=tuple(notes(summary, chosen, weights)),
    )


# ------------------------------------------------------------------ who may be chosen


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
        return max(float("inf") if value is None else value / limit for value, limit in values)

    nearest = min(judged, key=excess)
    return (
        f"no candidate meets the limits; the nearest is {nearest.name}: "
        f"{over(nearest.costs, limits)}"
    )


def cheapest(tied: Sequence[Standing]) -> tuple[Standing, str]:
    """The cheapest of a tie, and by what it was found."""
    left, found = list(tied), []
    for fact, name, words, slack in CHEAPEST:
        known = [one.costs[fact] for one in left if one.costs.get(fact) is not None]
        if len(left) == 1 or not known:
            continue
        bound = min(known) * (1 + slack)
        kept = [one for one in left if (one.costs.get(fact) or float("inf")) <= bound]
        if len(kept) < len(left):
            found.append(f"{name} ({words(kept[0].costs[fact])})")
            left = kept
    return left[0], ", then ".join(found)


def best_trial(chosen: Standing) -> str:
    """By the rows that choose, not by those that judge."""
    return max(chosen.trials, key=lambda trial: trial.selection or float("-inf")).id


# ------------------------------------------------------------------ words


def reason_for(
    summary: Summary,
    chosen: Standing,
    tied: Sequence[Standing],
    within: Sequence[Standing],
    scores: Mapping[str, Weighed],
    why: str,
) -> str:
    """One sentence with the numbers."""

    def score(name: str) -> str:
        return f"{name} with {scores[name].mean:.3f} ± {scores[name].stderr:.3f}"

    start = "do not share: use" if chosen.name == summary.single else "use"
    start = f"{start} {score(chosen.name)} over {counted(len(chosen.trials), 'seed')}"
    rest = [one.name for one in within if one not in tied]
    if len(tied) > 1:
        best = max((one.name for one in tied), key=lambda name: scores[name].mean)
        is_best = best == chosen.name
        place = "has the highest mean" if is_best else f"cannot be told from {score(best)}"
        cost = f"has {why}" if why else "costs no more than any"
        return f"{start}: it {place} and {cost} of the {len(tied)} that are tied"
    if rest:
        second = max(rest, key=lambda name: scores[name].mean)
        doubt = "beyond doubt" if len(chosen.trials) > 1 else "on these rows"
        return f"{start}: it is better {doubt} than the next, {score(second)}"
    return f"{start}: no other candidate is left"


def counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def notes(
    summary: Summary, chosen: Standing | None, weights: Mapping[str, float] | None
) -> Iterator[str]:
    """What to know beside the decision."""
    if weights:
        yield CONSERVATIVE
    if max(len(one.trials) for one in summary.standings) == 1:
        yield ONE_SEED
    if chosen and (found := chosen.against.get("overall")):
        yield (
            f"against the baseline {chosen.reference}: overall {found.mean:+.3f}, 95 % interval "
            f"{found.low:+.3f} to {found.high:+.3f}"
        )
    for task, gain in (chosen.gains if chosen else {}).items():
        if gain.is_real and gain.mean < 0:
            yield (
                f"{task} loses against a model of its own ({summary.single}): {gain.mean:+.3f}, "
                f"95 % interval {gain.low:+.3f} to {gain.high:+.3f}"
            )
    if summary.waiting:
        yield f"{counted(len(summary.waiting), 'trial')} not finished: this may change"
