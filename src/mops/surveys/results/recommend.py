"""The decision: which plan to use under these limits, at which margin, and how sure that is.

`recommend` chooses the cheapest candidate that is within `worth` of the best with probability
`sure` (`evaluate.posterior`). If there is none, it names the one with the smallest expected loss
and says that the survey has not decided.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from mops.errors import UsageError, nearest
from mops.evaluate.joint import Joint
from mops.evaluate.metrics import EQUAL, Weights
from mops.evaluate.posterior import RUN_SPREAD, Posterior, posterior, seeds_to_settle
from mops.surveys.results.judge import compare_group
from mops.surveys.results.results import LEFT_OUT, WAITING, CandidateResult, Results
from mops.tables import Shown, Table, format_bytes, format_count, format_seconds

Format = Callable[[float], str]
WORTH, SURE = 0.01, 0.8
LIMITS: dict[str, tuple[str, str, Format]] = {  # option -> cost, its name, its format
    "max_params": ("parameters", "parameters", format_count),
    "max_latency": ("latency_seconds", "latency", format_seconds),
    "max_train_time": ("train_seconds", "training time", format_seconds),
    "max_memory": ("peak_memory_bytes", "peak memory", format_bytes),
}


def tm_cost(candidate: CandidateResult) -> float | None:
    """Time and memory for a score; a score that is not positive has no finite one."""
    if (tm := candidate.tm_relative) is None:
        return None
    return 1 / tm if tm > 0 else math.inf


# Relative differences of measured times that count as none: machines are noisy.
NOISE = {"latency_seconds": 0.1, "train_seconds": 0.1}
# What `--cheapest` names: the cost, how it is written, and the relative difference that counts as
# equal, so that the next cost decides.
CHEAPEST: dict[str, tuple[Callable[[CandidateResult], float | None], Format, float]] = {
    "parameters": (lambda c: c.costs.parameters, lambda n: f"{format_count(n)} parameters", 0.01),
    "latency": (lambda c: c.costs.latency_seconds, lambda s: f"latency {format_seconds(s)}", 0.1),
    "train_time": (lambda c: c.costs.train_seconds, lambda s: f"training {format_seconds(s)}", 0.1),
    "memory": (lambda c: c.costs.peak_memory_bytes, lambda b: f"memory {format_bytes(b)}", 0.05),
    "tm": (tm_cost, lambda x: f"TM {1 / x:.2f}", 0.1),
}
TIMES = ("latency", "train_time", "tm")  # equal within the noise of the cost pass
FRONT = ("parameters", "latency_seconds", "train_seconds")
OTHERS = 3  # candidates beside the chosen one that are named
# Candidates that more seeds would be spent on: so many, unless they are this unlikely to be near.
CONTENDERS, UNLIKELY = 3, 0.05


@dataclass(frozen=True)
class Odds:
    """How close one candidate is to the best of those that may be chosen."""

    name: str
    cost: str  # in words
    within: float  # probability that it is within the margin of the best
    regret: float  # expected loss against the best


@dataclass(frozen=True)
class MoreSeeds:
    """What would settle the decision."""

    seeds: int
    candidates: tuple[str, ...]
    seconds: float  # of training, roughly


@dataclass(frozen=True)
class FrontPoint:
    """A candidate on the Pareto front; a cost that was not measured is None."""

    name: str
    score: float
    stderr: float
    costs: Mapping[str, float | None]


@dataclass(frozen=True, repr=False, kw_only=True)
class Decision(Shown):
    """What to use; without a candidate when nothing meets the limits."""

    candidate: str | None = None
    plan: str | None = None
    is_shared: bool = False
    is_decided: bool = False  # whether its probability reaches `sure`
    worth: float
    sure: float
    cheapest: str
    trial: str | None = None  # of the seed with the best validation score
    best_set: tuple[str, ...] = ()  # contains the best candidate with 95 % confidence
    odds: tuple[Odds, ...] = ()  # the chosen one first, then by probability
    excluded: Mapping[str, str]  # candidate -> why it cannot be chosen
    front: tuple[FrontPoint, ...]
    more: MoreSeeds | None = None  # only if it is not decided
    lines: tuple[str, ...] = ()  # the decision in a few sentences
    model: str | None = None  # the folder with the model of that trial, if it was kept

    @property
    def tables(self) -> list[Table]:
        from mops.surveys.results.tables import front_table, odds_table

        return [table for table in (odds_table(self), front_table(self)) if table.rows]

    @property
    def parts(self) -> Sequence[str | Table]:
        return [*self.lines, *self.tables]


def recommend(
    results: Results,
    *,
    worth: float = WORTH,
    sure: float = SURE,
    cheapest: str = "parameters",
    score: str = "overall",
    weights: Weights = EQUAL,
    **limits: float,
) -> Decision:
    """The cheapest candidate within `worth` of the best, with probability `sure`.

    Limits are max_params, max_latency, max_train_time and max_memory; candidates over them are not
    considered. `score` is one of the overall scores, `weights` are those of the tasks in it.
    """
    if not results.candidates:
        why = next((f"; {one.name}: {one.reason}" for one in results.in_state(LEFT_OUT)), "")
        raise UsageError(
            f"survey {results.name}: no trial is finished, nothing can be recommended{why}"
        )
    if weights:
        results = compare_group(results, results.groups[0], check_weights(results, weights))
    tasks = results.candidates[0].tasks  # of the baseline's group
    home = [one for one in results.candidates if one.tasks == tasks]
    why_not = {one.name: find_obstacle(one, tasks, limits) for one in results.candidates}
    excluded = {name: why for name, why in why_not.items() if why}
    allowed = [one for one in home if one.name not in excluded]
    front = pareto_front(home)
    rule = Decision(worth=worth, sure=sure, cheapest=cheapest, excluded=excluded, front=front)
    if not allowed:
        reasons = (f"Excluded: {name}: {reason}." for name, reason in excluded.items())
        return replace(rule, lines=("No candidate meets the limits.", *reasons))
    scores = results.joint(weights=weights)
    if score not in scores:
        raise UsageError(f"survey {results.name} has no {score}: no task is scored by accuracy")
    joint = scores[score]
    joint = joint.among([name for name in joint.names if name not in excluded])
    return decide(rule, results, allowed, joint)


def decide(
    rule: Decision, results: Results, allowed: Sequence[CandidateResult], joint: Joint
) -> Decision:
    """The rule applied to the candidates that may be chosen."""
    draws, best = posterior(joint), joint.best_set()
    near, regret = draws.within(rule.worth), draws.regret()
    chosen = choose(rule, allowed, near, regret)
    ranked = sorted(allowed, key=lambda one: (one is not chosen, -near[one.name]))
    is_decided = near[chosen.name] >= rule.sure
    decision = replace(
        rule,
        candidate=chosen.name,
        plan=chosen.plan,
        is_shared=chosen.name != results.single,
        is_decided=is_decided,
        trial=max(chosen.trials, key=lambda trial: trial.train_info.best_score or 0.0).id,
        best_set=tuple(one.name for one in allowed if one.name in best),
        odds=tuple(
            Odds(one.name, describe_cost(one, rule.cheapest), near[one.name], regret[one.name])
            for one in ranked
        ),
        more=None if is_decided else plan_seeds(rule, joint, draws, ranked),
    )
    model = Path(results.folder, "trials", str(decision.trial), "model")
    doubled = choose(rule, allowed, draws.within(2 * rule.worth), regret)
    lines = [*explain(decision)]
    if is_decided and doubled is not chosen:
        lines.append(f"At --worth {2 * rule.worth:g}: {doubled.name}")
    if decision.more:
        lines.append(describe_more(results, decision.more))
    if joint.has_run_noise and len(ranked) > 1:
        is_any = len(decision.best_set) == len(ranked)
        among = "any of them" if is_any else " or ".join(decision.best_set)
        lines.append(f"With 95 % confidence the best of {len(ranked)} candidates is {among}")
    lines += [f"Excluded: {name}: {reason}" for name, reason in rule.excluded.items()]
    lines += notes(results, chosen)
    kept = str(model) if model.is_dir() else None
    return replace(decision, lines=tuple(f"{line}." for line in lines), model=kept)


def check_weights(results: Results, weights: Weights) -> Weights:
    tasks = tuple(results.groups[0].rows)
    for name in (name for name in weights if name not in tasks):
        named = ", ".join(tasks)
        raise UsageError(f"weights names {name!r}; the tasks are {named}.{nearest(name, tasks)}")
    if not any(weights.get(name, 1) for name in tasks):
        raise UsageError("weights give every task 0; at least one must count")
    return weights


def choose(
    rule: Decision,
    candidates: Sequence[CandidateResult],
    near: Mapping[str, float],
    regret: Mapping[str, float],
) -> CandidateResult:
    """The cheapest that is near enough; if none is, the one that is expected to lose least."""
    left = [one for one in candidates if near[one.name] >= rule.sure]
    if not left:
        return min(candidates, key=lambda one: regret[one.name])
    for cost in (rule.cheapest, *(name for name in CHEAPEST if name != rule.cheapest)):
        measure, _, equal = CHEAPEST[cost]
        if cost in TIMES:
            equal = max(equal, timing_noise(left))
        values = [known(measure(one)) for one in level(left)]
        left = [c for c, v in zip(left, values, strict=True) if v <= min(values) * (1 + equal)]
    return min(left, key=lambda one: regret[one.name])


def level(candidates: Sequence[CandidateResult]) -> list[CandidateResult]:
    """The candidates with the same times where they do the same work: the medians of theirs."""
    levelled = []
    for one in candidates:
        alike = [other.costs for other in candidates if one.does_work_of(other)]
        times = {cost: [v for own in alike if (v := getattr(own, cost))] for cost in NOISE}
        times = {cost: own for cost, own in times.items() if getattr(one.costs, cost)}
        costs = replace(one.costs, **{cost: median(own) for cost, own in times.items()})
        ratio = one.costs.train_seconds / (costs.train_seconds or 1.0)
        relative = None if one.tm_relative is None else one.tm_relative * ratio
        levelled.append(replace(one, costs=costs, tm_relative=relative))
    return levelled


def timing_noise(candidates: Sequence[CandidateResult]) -> float:
    """The largest relative spread of a time that was measured again and again."""
    return max((one.costs.noise or 0.0 for one in candidates), default=0.0)


def known(cost: float | None) -> float:
    """A cost that was not measured counts as the worst."""
    return math.inf if cost is None else float(cost)


def plan_seeds(
    rule: Decision, joint: Joint, draws: Posterior, ranked: Sequence[CandidateResult]
) -> MoreSeeds | None:
    """How many more seeds of the leading candidates would probably lead to a decision.

    None if a candidate that is not one of them may be better, or the noise of runs is unknown.
    """
    near = draws.within(rule.worth)
    leading = [one for one in ranked[:CONTENDERS] if near[one.name] >= UNLIKELY]
    names = tuple(one.name for one in leading)
    if len(names) < 2 or not joint.has_run_noise or draws.any_within(names, rule.worth) < rule.sure:
        return None
    seeds = seeds_to_settle(joint, names, rule.worth, rule.sure)
    if seeds is None:
        return None
    each = (median(trial.train_info.run_seconds for trial in one.trials) for one in leading)
    return MoreSeeds(seeds, names, seeds * sum(each))


def pareto_front(
    candidates: Sequence[CandidateResult], costs: Sequence[str] = FRONT
) -> tuple[FrontPoint, ...]:
    """Candidates that no other beats in score and all costs at once, the best score first.

    Times within their noise count as equal, as in `choose`.
    """
    noise = timing_noise(candidates)
    slack = (0.0, *(max(NOISE[cost], noise) if cost in NOISE else 0.0 for cost in costs))
    losses = {
        one.name: (-one.overall.mean, *(known(getattr(one.costs, cost)) for cost in costs))
        for one in level(candidates)
    }

    def is_beaten(own: tuple[float, ...]) -> bool:
        return any(
            all(o <= x * (1 + s) for o, x, s in zip(other, own, slack, strict=True))
            and any(o * (1 + s) < x for o, x, s in zip(other, own, slack, strict=True))
            for other in losses.values()
        )

    front = (one for one in candidates if not is_beaten(losses[one.name]))
    return tuple(
        FrontPoint(
            name=one.name,
            score=one.overall.mean,
            stderr=one.overall.stderr,
            costs={cost: getattr(one.costs, cost) for cost in costs},
        )
        for one in sorted(front, key=lambda one: losses[one.name])
    )


def find_obstacle(
    candidate: CandidateResult, tasks: tuple[str, ...], limits: Mapping[str, float]
) -> str:
    """Why a candidate cannot be chosen: other tasks, or limits and by how much; else empty."""
    if candidate.tasks != tasks:
        return f"it has learnt {', '.join(candidate.tasks)} and not {', '.join(tasks)}"
    problems = []
    for option, limit in limits.items():
        cost, name, form = LIMITS[option]
        value = getattr(candidate.costs, cost)
        if value is None:
            problems.append(f"its {name} was not measured")
        elif value > limit:
            above = f"{value / limit - 1:.0%} above the limit of {form(limit)}"
            problems.append(f"{name} {form(value)}, {above}")
    return "; ".join(problems)


def describe_cost(candidate: CandidateResult, cheapest: str) -> str:
    measure, form, _ = CHEAPEST[cheapest]
    value = measure(candidate)
    return "not measured" if value is None else form(value)


def explain(decision: Decision) -> Iterator[str]:
    """The choice, and how far the others are from it."""
    own, *others = decision.odds
    start = "use" if decision.is_shared else "do not share: use"
    start = start.capitalize() if decision.is_decided else f"Not decided; {start}"
    if not others:
        yield f"{start} {own.name} ({own.cost}): no other candidate may be chosen"
        return
    least = (
        "" if decision.is_decided else f", which has the smallest expected loss, {own.regret:.3f}"
    )
    near = f"within {decision.worth:g} of the best"
    yield f"{start} {own.name} ({own.cost}){least}: {near} with {percent(own.within)} probability"
    for other in others[:OTHERS]:
        loss = f"expected loss {other.regret:.3f}"
        yield f"{other.name} ({other.cost}): {percent(other.within)}, {loss}"


def percent(probability: float) -> str:
    """Probabilities come from draws: never 0 or 100 %."""
    return f"{min(max(probability, 0.01), 0.99):.0%}"


def describe_more(results: Results, more: MoreSeeds) -> str:
    words = ["mops", "survey", "--out", str(results.folder), "--more-seeds", str(more.seeds)]
    words += [word for name in more.candidates for word in ("--only", name)]
    return (
        f"{more.seeds} more seed(s) of {', '.join(more.candidates)} (about "
        f"{format_seconds(more.seconds)} of training) would probably settle it: "
        f"`{shlex.join(words)}`"
    )


def notes(results: Results, chosen: CandidateResult) -> Iterator[str]:
    if max(len(one.trials) for one in results.candidates) == 1:
        yield (
            "One seed does not show how far runs scatter: the probabilities assume a standard "
            f"deviation of {RUN_SPREAD:g}"
        )
    if difference := chosen.against.get("overall"):
        yield f"Against the baseline {chosen.reference}: overall {difference.in_words}"
    for task, gain in chosen.gains.items():
        if gain.is_significant and gain.mean < 0:
            yield f"{task} loses against a model of its own ({results.single}): {gain.in_words}"
    if waiting := results.in_state(WAITING):
        yield f"{len(waiting)} trial(s) not finished: this may change"
