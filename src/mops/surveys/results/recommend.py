"""The decision: which plan to use under these limits, and why.

`choose` is the rule: the cheapest of the candidates that are not significantly different from the
best. Everything else here prepares its input (who may be chosen, by which score) or words its
outcome, so another rule replaces `choose` and `rank_scores`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import le
from pathlib import Path

from mops.errors import MopsError, RunError, UsageError, nearest
from mops.evaluate.compare import tie_groups
from mops.evaluate.metrics import Weights
from mops.evaluate.statistics import LEVEL, holm, off_zero
from mops.surveys.results.judge import FinishedTrial, compare_trials, rank, read_run
from mops.surveys.results.results import (
    WAITING,
    CandidateCosts,
    CandidateResult,
    Results,
    TrialResult,
    read_results,
)
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
FRONT = tuple(cost for cost, *_ in CHEAPEST)


@dataclass(frozen=True)
class RankedScore:
    """A candidate's overall score with its standard error, and its group of ties."""

    mean: float
    stderr: float
    tie: int


@dataclass(frozen=True)
class FrontPoint:
    """A candidate on the Pareto front; a cost that was not measured is None."""

    name: str
    score: float
    costs: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to use; without a candidate when nothing meets the limits."""

    candidate: str | None
    plan: str | None
    is_shared: bool
    reason: str
    trial: str | None  # of the seed with the best score on the selection rows
    tied: tuple[str, ...]
    excluded: Mapping[str, str]  # candidate -> why it cannot be chosen
    front: tuple[FrontPoint, ...]
    scores: Mapping[str, RankedScore]  # of all that are compared, within the limits or not
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The decision in a few sentences."""
        lines = [self.reason]
        lines += [f"tied with it: {', '.join(self.tied)}"] if self.tied else []
        lines += [f"excluded: {name}: {reason}" for name, reason in self.excluded.items()]
        return [f"{text[:1].upper()}{text[1:]}." for text in (*lines, *self.notes)]


def recommend(results: Results, **limits: float) -> Decision:
    """The cheapest of those that do not differ from the best, among those within the limits.

    Limits are max_params, max_latency, max_train_time and max_memory.
    """
    if not results.candidates:
        raise UsageError(f"survey {results.name}: no trial is finished, nothing can be recommended")
    compared, excluded = split_comparable(results)
    over = {one.name: why for one in compared if (why := exceeded(one.costs, limits))}
    within = [one for one in compared if one.name not in over]
    ranked = rank_scores(within)  # on their own: the best of a tie may be outside the limits
    tied = [one for one in within if ranked[one.name].tie == 1]
    chosen, why = choose(tied)
    return Decision(
        candidate=chosen.name if chosen else None,
        plan=chosen.plan if chosen else None,
        is_shared=chosen is not None and chosen.name != results.single,
        reason=explain(results, chosen, tied, within, why) if chosen else unmet(compared, limits),
        trial=max(chosen.trials, key=lambda t: t.selection or -math.inf).id if chosen else None,
        tied=tuple(one.name for one in tied if one is not chosen),
        excluded=over | excluded,
        front=pareto_front(compared),
        scores=rank_scores(compared),
        notes=tuple(notes(results, chosen)),
    )


def choose(tied: Sequence[CandidateResult]) -> tuple[CandidateResult | None, str]:
    """The cheapest of a tie, and which costs decided."""
    left, decisive = list(tied), []
    for cost, name, form, slack in CHEAPEST:
        least = min((known_cost(one, cost) for one in left), default=math.inf)
        kept = [one for one in left if known_cost(one, cost) <= least * (1 + slack)]
        if len(kept) < len(left):
            decisive.append((cost, name, form, least))
            left = kept
    reasons = []
    for cost, name, form, least in decisive:
        own = known_cost(left[0], cost)
        reasons.append(f"{'' if own == least else 'nearly '}{name} ({form(own)})")
    return (left[0] if left else None), ", then ".join(reasons)


def rank_scores(candidates: Sequence[CandidateResult]) -> dict[str, RankedScore]:
    """The overall score and the tie of each candidate.

    With one seed no difference between plans is significant, so the decision is one between
    trained models. Their scores are compared as if each had answered other rows. The true error
    of a difference on the same rows is smaller: pairs that differ here do differ, others may.
    """
    means = {one.name: one.overall.mean for one in candidates}
    different = {frozenset((one.name, other)) for one in candidates for other in one.apart}
    if any(one.overall.seeds == 1 for one in candidates):
        errors = {one.name: one.overall.stderr for one in candidates}
        pairs = list(combinations(means, 2))
        p = [off_zero(means[a] - means[b], math.hypot(errors[a], errors[b])) for a, b in pairs]
        adjusted = zip(pairs, holm(p), strict=True)
        different = {frozenset(pair) for pair, value in adjusted if value < LEVEL}
    ties = tie_groups(means, different)
    return {c.name: RankedScore(c.overall.mean, c.overall.stderr, ties[c.name]) for c in candidates}


def known_cost(one: CandidateResult, cost: str) -> float:
    """A cost that was not measured counts as the worst."""
    value = getattr(one.costs, cost)
    return math.inf if value is None else float(value)


def pareto_front(candidates: Sequence[CandidateResult]) -> tuple[FrontPoint, ...]:
    """Candidates that no other beats in score and all costs at once, the best score first."""
    losses = {
        one.name: (-one.overall.mean, *(known_cost(one, cost) for cost in FRONT))
        for one in candidates
    }

    def is_beaten(own: tuple[float, ...]) -> bool:
        return any(other != own and all(map(le, other, own)) for other in losses.values())

    front = [one for one in candidates if not is_beaten(losses[one.name])]
    front.sort(key=lambda one: losses[one.name])
    costs = {one.name: {cost: getattr(one.costs, cost) for cost in FRONT} for one in front}
    return tuple(FrontPoint(one.name, one.overall.mean, costs[one.name]) for one in front)


# ------------------------------------------------------------------ who may be chosen


def split_comparable(results: Results) -> tuple[list[CandidateResult], dict[str, str]]:
    """Candidates with all tasks and all seeds, and why the others cannot be chosen."""
    home = results.candidates[0].tasks
    most = max(len(one.trials) for one in results.candidates if one.tasks == home)
    compared, excluded = [], {}
    for one in results.candidates:
        count = f"{len(one.trials)} of {len(results.seeds)}"
        if one.tasks != home:
            excluded[one.name] = f"it has learnt {', '.join(one.tasks)} and not {', '.join(home)}"
        elif len(one.trials) < most:
            excluded[one.name] = f"only {count} seeds are finished"
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
    closest = min(
        compared,
        key=lambda one: max(known_cost(one, LIMITS[key][0]) / limits[key] for key in limits),
    )
    why = exceeded(closest.costs, limits)
    return f"no candidate meets the limits; the nearest is {closest.name}: {why}"


# ------------------------------------------------------------------ in words


def explain(
    results: Results,
    chosen: CandidateResult,
    tied: Sequence[CandidateResult],
    within: Sequence[CandidateResult],
    why: str,
) -> str:
    """One sentence; `within` are all who could have been chosen."""

    def score(one: CandidateResult) -> str:
        return f"{one.name} with {one.overall.mean:.3f} ± {one.overall.stderr:.3f}"

    start = "do not share: use" if chosen.name == results.single else "use"
    start = f"{start} {score(chosen)} over {count_of(len(chosen.trials), 'seed')}"
    best, *others = sorted(within, key=lambda one: -one.overall.mean)
    if len(tied) > 1:
        place = f"is not significantly different from {score(best)}"
        place = "has the highest mean" if best is chosen else place
        cost = f"has {why}" if why else "costs no more than any"
        return f"{start}: it {place} and {cost} of the {len(tied)} that are tied"
    if not others:
        return f"{start}: no other candidate is left"
    better = "significantly better" if len(chosen.trials) > 1 else "better on these rows"
    return f"{start}: it is {better} than the next, {score(others[0])}"


def count_of(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def notes(results: Results, chosen: CandidateResult | None) -> Iterator[str]:
    """What to know beside the decision."""
    if max(len(one.trials) for one in results.candidates) == 1:
        yield (
            "one seed: this is a choice between these trained models, compared on their rows; it "
            "does not compare the plans"
        )
    if chosen and (difference := chosen.against.get("overall")):
        yield f"against the baseline {chosen.reference}: overall {difference.in_words}"
    for task, gain in (chosen.gains if chosen else {}).items():
        if gain.is_significant and gain.mean < 0:
            yield f"{task} loses against a model of its own ({results.single}): {gain.in_words}"
    if waiting := results.in_state(WAITING):
        yield f"{count_of(len(waiting), 'trial')} not finished: this may change"


# ------------------------------------------------------------------ other weights


def read_reweighted(folder: Path, weights: Weights) -> Results:
    """The stored results, with the baseline's group compared again with these task weights.

    The stored predictions are compared row by row, as for the plain mean.
    """
    stored = read_results(folder)
    if not stored.candidates:
        return stored
    home, reference = stored.candidates[0].tasks, stored.candidates[0].reference
    for name in (name for name in weights if name not in home):
        raise UsageError(
            f"--weights names {name!r}; the tasks are {', '.join(home)}.{nearest(name, home)}"
        )
    if not any(weights.get(name, 1) for name in home):
        raise UsageError("--weights gives every task 0; at least one must count")
    group = [one for one in stored.candidates if one.tasks == home]
    try:
        trials = {one.name: [reread(stored, one, trial) for trial in one.trials] for one in group}
    except MopsError as cause:
        raise UsageError(
            f"--weights compares stored predictions again, and some cannot be used: {cause}; "
            "repeat the survey, or leave --weights out"
        ) from cause
    compared = compare_trials(trials, reference, stored.single, weights)
    changed = [replace(one, **vars(compared[one.name])) for one in group]
    rest = [one for one in stored.candidates if one.tasks != home]
    return replace(stored, candidates=(*rank(changed, reference), *rest))


def reread(stored: Results, one: CandidateResult, trial: TrialResult) -> FinishedTrial:
    run = stored.run_folder(trial)
    again = read_run(run, stored.on, one.name, trial.seed)
    if again.result.digest != trial.digest:
        raise RunError(f"{run}: the predictions have changed since they were judged")
    return again
