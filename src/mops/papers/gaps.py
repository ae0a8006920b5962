"""The difference of two of our candidates by one score, and whether it is real."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mops.evaluate.compare import Difference, Estimate
from mops.evaluate.metrics import OVERALL
from mops.evaluate.statistics import LEVEL, student_quantile
from mops.papers.ours import Ours
from mops.papers.paper import Match
from mops.surveys.results.results import CandidateResult
from mops.tasks import CORRELATIONS

ABSENT = "not in this survey"
WORDS = {"overall_normalised": "normalised overall"}


class UntoldError(Exception):
    """Why a survey has nothing to say; becomes the reason of a verdict, never reaches a user."""


@dataclass(frozen=True)
class Gap:
    """One candidate minus another; `said` names both and has the interval."""

    mean: float
    low: float
    high: float
    is_significant: bool
    seeds: int
    said: str

    @property
    def doubt(self) -> str:
        """Why it is not real."""
        if self.seeds < 2:
            return "one seed, so nothing is said of plans"
        if self.low <= 0 <= self.high:
            return "the interval includes 0"
        return "not real after the correction for all that was compared"


def gap(ours: Ours, one: Match, other: Match, by: str) -> Gap:
    """By the survey's own comparison, where it made one; else by the two scores."""
    return gap_between(ours, present(ours, one), present(ours, other), by)


def gap_between(ours: Ours, a: CandidateResult, b: CandidateResult, by: str) -> Gap:
    if a.name == b.name:
        raise UntoldError(f"{a.name} stands for both here")
    if not (by in a.scores and by in b.scores):
        raise UntoldError(f"{by} is not scored for {a.name} and {b.name}")
    compared = compared_in(ours, a, b, by)
    if compared:
        return told(a, b, by, compared)
    compared = compared_in(ours, b, a, by)
    if compared:
        return told(a, b, by, turned(compared))
    return estimated(a, b, by)


def present(ours: Ours, match: Match) -> CandidateResult:
    found = ours.find(match)
    if found is None:
        yet = " yet" if is_waiting(ours, match) else ""
        raise UntoldError(f"{ABSENT}{yet}: {wanted(ours, match)}")
    return found


def is_waiting(ours: Ours, match: Match) -> bool:
    """Whether trials of this plan are still to come; a candidate's name begins with its plan."""
    plans = {trial.candidate.partition(", ")[0] for trial in ours.summary.in_state("waiting")}
    return ours.plan_of(match) in plans


def wanted(ours: Ours, match: Match) -> str:
    settings = [f"{key.rpartition('.')[2]}={short(value)}" for key, value in match.needs.items()]
    trained = [f"only {'+'.join(match.trains)} trained"] if match.trains else []
    return ", ".join([ours.plan_of(match), *settings, *trained])


def short(value: object) -> str:
    if isinstance(value, Mapping):
        return "/".join(named(key, part) for key, part in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(map(short, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def named(key: str, part: object) -> str:
    return f"{'' if part else 'no '}{key}" if isinstance(part, bool) else short(part)


def compared_in(
    ours: Ours, one: CandidateResult, other: CandidateResult, by: str
) -> Difference | None:
    """One against the baseline, or its gain over the single-task candidate."""
    if one.reference == other.name and by in one.against:
        return one.against[by]
    if other.name != ours.summary.single or not one.gains:
        return None
    return one.gains.get(by) or overall_gain(ours, one, other, by)


def overall_gain(
    ours: Ours, one: CandidateResult, other: CandidateResult, by: str
) -> Difference | None:
    """The mean of its tasks' gains, their errors added up: the most that the error can be."""
    if by not in OVERALL or not set(one.tasks) <= set(one.gains):
        return None
    weights = {task: weight(ours.summary.tasks[task], by) / len(one.tasks) for task in one.tasks}
    middle, low, high, stderr = (
        sum(weights[task] * getattr(one.gains[task], name) for task in one.tasks)
        for name in ("mean", "low", "high", "stderr")
    )
    seeds = min(one.gains[task].seeds for task in one.tasks)
    is_significant = (
        other.name in one.apart if by == "overall" else seeds > 1 and not low <= 0 <= high
    )
    return Difference(middle, stderr, low, high, math.nan, math.nan, is_significant, seeds)


def weight(score: str, by: str) -> float:
    """A correlation r counts as (r + 1) / 2 in the normalised overall."""
    return 0.5 if by == "overall_normalised" and score in CORRELATIONS else 1.0


def turned(of: Difference) -> Difference:
    return Difference(
        -of.mean, of.stderr, -of.high, -of.low, of.p, of.p_holm, of.is_significant, of.seeds
    )


def told(a: CandidateResult, b: CandidateResult, by: str, of: Difference) -> Gap:
    said = words(by, f"{a.name} minus {b.name}", of.mean, of.low, of.high)
    return Gap(of.mean, of.low, of.high, of.is_significant, of.seeds, said)


def words(by: str, what: str, mean: float, low: float, high: float) -> str:
    return f"{WORDS.get(by, by)}, {what}: {mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def estimated(a: CandidateResult, b: CandidateResult, by: str) -> Gap:
    """Of two that the survey did not compare in this score.

    Errors are taken as if they had answered different rows. They have answered the same, so the
    true error is smaller: what is real here is real. For `overall` the survey compared all pairs.
    """
    mean, reach, seeds = contrast({a.name: a.scores[by]}, {b.name: b.scores[by]})
    is_significant = b.name in a.apart if by == "overall" else seeds > 1 and abs(mean) > reach
    said = words(by, f"{a.name} minus {b.name}", mean, mean - reach, mean + reach)
    return Gap(mean, mean - reach, mean + reach, is_significant, seeds, said)


def contrast(
    above: Mapping[str, Estimate], below: Mapping[str, Estimate]
) -> tuple[float, float, int]:
    """The mean of some minus that of others, how far its interval reaches, the fewest seeds."""
    value = sum(e.mean for e in above.values()) / len(above)
    value -= sum(e.mean for e in below.values()) / len(below)
    errors = [e.stderr / len(group) for group in (above, below) for e in group.values()]
    seeds = [e.seeds for group in (above, below) for e in group.values()]
    freedom = sum(seeds) - len(seeds)
    quantile = student_quantile(LEVEL / 2, freedom) if freedom else math.inf
    return value, quantile * math.hypot(*errors), min(seeds)
