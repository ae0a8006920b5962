"""The decision: which plan to use under these limits, and why.

`choose` is the rule: the cheapest of the candidates that are not significantly different from the
best. Everything else here prepares its input (who may be chosen, by which score) or words its
outcome, so another rule replaces `choose` and `weights.weigh`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mops.errors import UsageError
from mops.surveys.results.results import WAITING, CandidateCosts, CandidateResult, Results
from mops.surveys.results.weights import WeightedScore, weigh
from mops.units import format_bytes, format_count, format_seconds

Format = Callable[[float], str]
LIMITS: dict[str, tuple[str, str, Format]] = {  # option -> cost, its name, its format
    "max_params": ("parameters", "parameters", format_count),
    "max_latency": ("latency_seconds", "latency", format_seconds),
    "max_train_time": ("train_seconds", "training time", format_seconds),
    "max_memory": ("peak_memory_bytes", "peak memory", format_bytes),
}
# Inside a tie: cost, the name of its smallest value, its format, and the relative difference that
# counts as equal (times are measured, and machines are noisy).
CHEAPEST: tuple[tuple[str, str, Format, float], ...] = (
    ("parameters", "the fewest parameters", format_count, 0.01),
    ("latency_seconds", "the lowest latency", format_seconds, 0.1),
    ("train_seconds", "the shortest training", format_seconds, 0.0),
)
FRONT = ("parameters", "latency_seconds", "train_seconds")  # the less the better


@dataclass(frozen=True)
class FrontPoint:
    """A candidate on the Pareto front; a cost that was not measured is None."""

    name: str
    score: float
    costs: Mapping[str, float | None]

    @property
    def losses(self) -> tuple[float, ...]:
        """Smaller is better; an unknown cost is the worst."""
        values = (self.costs[key] for key in FRONT)
        return (-self.score, *(math.inf if value is None else value for value in values))


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to use; without a candidate when nothing meets the limits."""

    candidate: str | None
    plan: str | None
    is_shared: bool
    reason: str
    trial: str | None  # of the seed with the best selection score
    tied: tuple[str, ...]
    excluded: Mapping[str, str]  # candidate -> why it cannot be chosen
    front: tuple[FrontPoint, ...]
    scores: Mapping[str, WeightedScore]  # of all that are compared, within the limits or not
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The decision in a few sentences."""
        lines = [self.reason]
        lines += [f"tied with it: {', '.join(self.tied)}"] if self.tied else []
        lines += [f"excluded: {name}: {reason}" for name, reason in self.excluded.items()]
        return [f"{text[:1].upper()}{text[1:]}." for text in (*lines, *self.notes)]


def recommend(
    results: Results, *, weights: Mapping[str, float] | None = None, **limits: float | None
) -> Decision:
    """The cheapest of those that do not differ from the best, among those within the limits.

    Limits are max_params, max_latency, max_train_time and max_memory. Results that were compared
    with the same weights (`read_reweighted`) separate more candidates.
    """
    if not results.candidates:
        raise UsageError(f"survey {results.name}: no trial is finished, nothing can be recommended")
    given = {key: limit for key, limit in limits.items() if limit is not None}
    weights = None if weights == results.weights else weights  # they are in the overall scores
    compared, excluded = split_comparable(results)
    over = {one.name: why for one in compared if (why := exceeded(one.costs, given))}
    scores = weigh(compared, weights)
    within = [one for one in compared if one.name not in over]
    ties = weigh(within, weights)  # once more: the best of a tie may be outside the limits
    tied = [one for one in within if ties[one.name].tie == 1]
    chosen, why = choose(tied)
    return Decision(
        candidate=chosen.name if chosen else None,
        plan=chosen.plan if chosen else None,
        is_shared=chosen is not None and chosen.name != results.single,
        reason=explain(results, chosen, tied, ties, why) if chosen else unmet(compared, given),
        trial=best_trial(chosen) if chosen else None,
        tied=tuple(one.name for one in tied if one is not chosen),
        excluded=over | excluded,
        front=pareto_front([front_point(one, scores[one.name].mean) for one in compared]),
        scores=scores,
        notes=tuple(notes(results, chosen, weights)),
    )


def choose(tied: Sequence[CandidateResult]) -> tuple[CandidateResult | None, str]:
    """The cheapest of a tie, and which costs decided."""
    left, decisive = list(tied), []
    for cost, name, form, slack in CHEAPEST:
        known = [value for one in left if (value := getattr(one.costs, cost)) is not None]
        if len(left) < 2 or not known:
            continue
        bound = min(known) * (1 + slack)
        kept = [one for one in left if (getattr(one.costs, cost) or math.inf) <= bound]
        if len(kept) < len(left):
            decisive.append((cost, name, form, min(known)))
            left = kept
    if not left:
        return None, ""
    reasons = []
    for cost, name, form, least in decisive:
        own = getattr(left[0].costs, cost)
        reasons.append(f"{'' if own == least else 'nearly '}{name} ({form(own)})")
    return left[0], ", then ".join(reasons)


def best_trial(chosen: CandidateResult) -> str:
    """By the rows that choose, not by those that judge."""
    return max(chosen.trials, key=lambda trial: trial.selection or -math.inf).id


def front_point(one: CandidateResult, score: float) -> FrontPoint:
    return FrontPoint(one.name, score, {key: getattr(one.costs, key) for key in FRONT})


def pareto_front(points: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """The points that no other beats in score and all costs at once, the best score first."""

    def is_beaten(losses: tuple[float, ...]) -> bool:
        others = [other.losses for other in points if other.losses != losses]
        return any(all(a <= b for a, b in zip(o, losses, strict=True)) for o in others)

    kept = [point for point in points if not is_beaten(point.losses)]
    return tuple(sorted(kept, key=lambda point: point.losses))


# ------------------------------------------------------------------ who may be chosen


def split_comparable(results: Results) -> tuple[list[CandidateResult], dict[str, str]]:
    """Candidates with all tasks and all seeds, and why the others cannot be chosen."""
    home = results.candidates[0].tasks
    most = max(len(one.trials) for one in results.candidates if one.tasks == home)
    compared, excluded = [], {}
    for one in results.candidates:
        if one.tasks != home:
            excluded[one.name] = f"it has learnt {', '.join(one.tasks)} and not {', '.join(home)}"
        elif len(one.trials) < most:
            finished = f"{len(one.trials)} of {len(results.seeds)} seeds"
            excluded[one.name] = f"only {finished} are finished"
        else:
            compared.append(one)
    return compared, excluded


def exceeded(costs: CandidateCosts, limits: Mapping[str, float]) -> str:
    """Which limits are exceeded, and by how much; empty if none is."""
    problems = []
    for option, limit in limits.items():
        cost, name, form = LIMITS[option]
        value = getattr(costs, cost)
        if value is None:
            problems.append(f"its {name} was not measured")
        elif value > limit:
            above = f"{value / limit - 1:.0%} above the limit of {form(limit)}"
            problems.append(f"{name} {form(value)}, {above}")
    return "; ".join(problems)


def unmet(compared: Sequence[CandidateResult], limits: Mapping[str, float]) -> str:
    """No candidate meets the limits: which one is closest."""

    def excess(one: CandidateResult) -> float:
        values = [(getattr(one.costs, LIMITS[key][0]), limit) for key, limit in limits.items()]
        return max(math.inf if value is None else value / limit for value, limit in values)

    closest = min(compared, key=excess)
    why = exceeded(closest.costs, limits)
    return f"no candidate meets the limits; the nearest is {closest.name}: {why}"


# ------------------------------------------------------------------ in words


def explain(
    results: Results,
    chosen: CandidateResult,
    tied: Sequence[CandidateResult],
    scores: Mapping[str, WeightedScore],
    why: str,
) -> str:
    """One sentence; `scores` has all who could have been chosen."""

    def score(name: str) -> str:
        return f"{name} with {scores[name].mean:.3f} ± {scores[name].stderr:.3f}"

    start = "do not share: use" if chosen.name == results.single else "use"
    start = f"{start} {score(chosen.name)} over {count_of(len(chosen.trials), 'seed')}"
    ranked = sorted(scores, key=lambda name: -scores[name].mean)
    others = [name for name in ranked if name != chosen.name]
    if len(tied) > 1:
        place = f"is not significantly different from {score(ranked[0])}"
        place = "has the highest mean" if ranked[0] == chosen.name else place
        cost = f"has {why}" if why else "costs no more than any"
        return f"{start}: it {place} and {cost} of the {len(tied)} that are tied"
    if not others:
        return f"{start}: no other candidate is left"
    better = "significantly better" if len(chosen.trials) > 1 else "better on these rows"
    return f"{start}: it is {better} than the next, {score(others[0])}"


def count_of(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def notes(
    results: Results, chosen: CandidateResult | None, weights: Mapping[str, float] | None
) -> Iterator[str]:
    """What to know beside the decision."""
    if weights:
        yield (
            "weighted scores are judged from the task scores alone, as if each candidate had "
            "answered other rows: ties may be wider than they are"
        )
    if max(len(one.trials) for one in results.candidates) == 1:
        yield (
            "one seed: this is a choice between these trained models, compared on their rows; it "
            "does not compare the plans"
        )
    if chosen and (found := chosen.against.get("overall")):
        yield f"against the baseline {chosen.reference}: overall {found.in_words}"
    for task, gain in (chosen.gains if chosen else {}).items():
        if gain.is_significant and gain.mean < 0:
            yield f"{task} loses against a model of its own ({results.single}): {gain.in_words}"
    if waiting := results.in_state(WAITING):
        yield f"{count_of(len(waiting), 'trial')} not finished: this may change"
