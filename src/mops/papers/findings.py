"""Verdicts on the findings of a paper, from the joint estimate of our survey.

A finding is one or more planned comparisons: weighted sums of candidates, with draws of their
error. The scores of a survey are drawn together, so what two plans have in common cancels. A claim
says that each sum is above a limit: 0, a bound, or a negative margin ("not worse"). "Equal" says
that it is also below one (two one-sided tests, Schuirmann 1987). Three questions are asked: is the
claim true, is it false, is the difference smaller than the paper's? Each is a family of one-sided
tests, over those findings of the paper that the survey can test (Holm 1979). Shapes: K comparisons,
D draws.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mops.data.schedule import generator
from mops.evaluate.joint import DRAWS, TINY
from mops.evaluate.metrics import Values
from mops.evaluate.statistics import LEVEL, holm
from mops.papers.paper import Finding, OurResults, Paper
from mops.surveys.results.results import COST_PASS, WAITING, CandidateResult

Estimate = tuple[float, Values]  # a value, and draws of its error
HOLDS, FAILS, SMALLER, OPEN, ABSENT = (
    "holds", "does not hold", "not of that size here", "undecided", "not in this survey",
)  # fmt: skip
RATIOS = ("seconds", "parameters", "tm")  # measures that are compared by their logarithms


class UntestableError(Exception):
    """Verdict and reason of a finding that the survey cannot test; never reaches a user."""


@dataclass(frozen=True)
class Claim:
    """A finding of a paper, judged by our survey."""

    text: str
    verdict: str
    why: str


def judge(paper: Paper, ours: OurResults) -> tuple[Claim, ...]:
    tested = [test(finding, ours) for finding in paper.findings]
    claims = [claim for claim, _ in tested]
    for verdict in (SMALLER, FAILS, HOLDS):  # a later one replaces an earlier one
        family = [n for n, (_, p) in enumerate(tested) if verdict in p]
        adjusted = holm([tested[n][1][verdict] for n in family])
        for n in (n for n, p in zip(family, adjusted, strict=True) if p < LEVEL):
            claims[n] = replace(claims[n], verdict=verdict)
    return tuple(claims)


def test(finding: Finding, ours: OurResults) -> tuple[Claim, dict[str, float]]:
    """The finding, undecided, and a p-value for each verdict that the survey can give."""
    try:
        names, values, errors, sizes = zip(*compare(finding, ours), strict=True)
    except UntestableError as reason:
        return Claim(finding.text, *reason.args), {}
    value_K, error_DK, claimed_K = np.array(values), np.stack(errors, 1), np.array(sizes)
    scaled = math.log1p if finding.measures[0] in RATIOS else float
    spare = len(names) - (finding.hold or len(names))  # comparisons that need not hold
    p = {}
    if (has_K := np.isfinite(claimed_K)).any():
        p[SMALLER] = at_least(spare + 1, (claimed_K - value_K)[has_K], -error_DK[:, has_K])
    over_K = value_K - scaled(finding.above)
    if finding.below is not None:
        over_K = np.append(over_K, scaled(finding.below) - value_K)
        error_DK = np.hstack([error_DK, -error_DK])
    p[HOLDS] = at_least(len(over_K) - spare, over_K, error_DK)
    p[FAILS] = at_least(spare + 1, -over_K, -error_DK)
    at = int(np.argsort(over_K)[spare]) % len(names)  # the one that decides
    why = explain(finding, names[at], values[at], errors[at], sizes[at])
    why += f"; as claimed: {np.sum(over_K > 0)} of {len(over_K)}" if len(names) > 1 else ""
    return Claim(finding.text, OPEN, why), p


def explain(finding: Finding, name: str, value: float, error_D: Values, claimed: float) -> str:
    """A comparison with its 95 % interval; ratios as such."""
    low, high = value + np.quantile(error_D, [LEVEL / 2, 1 - LEVEL / 2])
    is_ratio, numbers = finding.measures[0] in RATIOS, (value, low, high, claimed)
    ours, low, high, paper = (f"{math.exp(n):.3f}" if is_ratio else f"{n:+.3f}" for n in numbers)
    size = f", {paper} in the paper" if math.isfinite(claimed) else ""
    limit = f"; claimed is more than {finding.above + is_ratio:g}" if finding.above else ""
    limit += f" and less than {finding.below + is_ratio:g}" if finding.below else ""
    return f"{name}: {ours} [{low}, {high}]{size}{limit}"


def at_least(count: int, value_K: Values, error_DK: Values) -> float:
    """p-value of the claim that at least so many of the true values are above 0.

    A partial conjunction (Benjamini and Heller 2008): the `count`-th largest must exceed what
    chance gives the largest of those that are not larger. If all are claimed, this is the largest
    p-value of one (an intersection-union test); if one is, it corrects for the choice of the best.
    """
    scale_K = np.maximum(np.quantile(np.abs(error_DK), 1 - LEVEL, axis=0), TINY)
    least = np.argsort(value_K / scale_K)[: len(value_K) - count + 1]
    by_chance_D = (error_DK / scale_K)[:, least].max(1)
    return float(np.mean(by_chance_D >= (value_K / scale_K)[least].max()))


def compare(finding: Finding, ours: OurResults) -> Iterator[tuple[str, float, Values, float]]:
    """Each contrast in each measure: its name, value, draws of its error, the paper's or NaN."""
    cases = list(product(finding.contrasts, finding.measures))
    for (models, measure), size in zip(cases, finding.claimed or [None] * len(cases), strict=True):
        found = [ours.find(model) for model in models]
        if not all(found):
            absent = [model for model, own in zip(models, found, strict=True) if not own]
            waiting = len(ours.results.in_state(WAITING))
            yet = f"; trials not finished: {waiting}" if waiting else ""
            raise UntestableError(ABSENT, ", ".join(absent) + yet)
        weights = [*models.values()] if isinstance(models, Mapping) else [1, -1][: len(models)]
        claimed = math.nan if size is None else math.log1p(size) if measure in RATIOS else size
        for candidates in product(*found):  # several, if a model asks for other settings
            values, errors = zip(*(estimate(ours, c, measure) for c in candidates), strict=True)
            names = [candidate.name for candidate in candidates]
            what = (" / " if measure in RATIOS else " minus ").join(names)
            if len(names) > 2:
                what = " ".join(f"{w:+g} {name}" for w, name in zip(weights, names, strict=True))
            value, error_D = float(np.dot(weights, values)), np.dot(weights, errors)
            yield f"{measure}, {what}", value, error_D, claimed


def estimate(ours: OurResults, candidate: CandidateResult, measure: str) -> Estimate:
    """A measure of a candidate; of a ratio the logarithm. Times vary as those of the baseline."""
    if measure == "parameters":  # counted
        return math.log(candidate.costs.parameters), np.zeros(DRAWS)
    if measure not in RATIOS:
        return estimate_score(ours, candidate, measure)
    noise = max(one.costs.noise or 0.0 for one in ours.results.candidates)
    if candidate.costs.source != COST_PASS or not noise:
        raise UntestableError(OPEN, "times were not measured side by side (see `mops survey`)")
    normal_D = generator(0, "time", candidate.name).standard_normal(DRAWS)
    timing_D = noise / 1.349 * normal_D  # noise is an interquartile range
    seconds = math.log(candidate.costs.train_seconds)
    if measure == "seconds":
        return seconds, timing_D
    score, error_D = estimate_score(ours, candidate, "overall")
    size, score = ours.value(candidate, "size", "") or math.nan, max(score, TINY)
    return math.log(score / size) - seconds, error_D / score - timing_D


def estimate_score(ours: OurResults, candidate: CandidateResult, measure: str) -> Estimate:
    """By the joint estimate; `task.metric` of a task that was not trained is near 0 by chance."""
    draw = generator(0, measure, candidate.name)
    group = next(joint for joint in ours.joints if candidate.name in joint["overall"].names)
    if joint := group.get(measure):
        if not joint.has_run_noise:
            raise UntestableError(OPEN, "one seed says nothing about the plans")
        at = joint.index(candidate.name)  # not less than by its own seeds: `Joint.errors_CC`
        more = max(0.0, joint.own_C[at] - joint.run_C[at]) / joint.seeds_C[at]
        more_D = math.sqrt(more) * draw.standard_normal(DRAWS)
        order_D = generator(0, measure).permutation(DRAWS)  # other tasks have other rows
        return float(joint.mean_C[at]), joint.draws_DC[order_D, at] + more_D
    task, _, metric = measure.partition(".")
    values = candidate.values(task, "validation", metric)
    if len(values) < 2:
        raise UntestableError(OPEN, f"{task} is not scored, or not with two seeds")
    rows = min(candidate.values(task, "validation", "rows"))
    error = math.sqrt(np.var(values, ddof=1) / len(values) + 1 / rows)  # of a correlation near 0
    return float(np.mean(values)), error * draw.standard_t(len(values) - 1, DRAWS)
