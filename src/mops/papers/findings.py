"""Verdicts on the findings of a paper: a finding holds, does not hold, or is undecided.

`Evidence` estimates what a finding compares, with an interval. `decide` judges the claim by it:
`greater` needs a significant difference, `not_worse` and `equal` an interval inside a margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Literal

from mops.evaluate.compare import Difference
from mops.evaluate.metrics import OVERALL
from mops.evaluate.statistics import LEVEL, student_quantile
from mops.papers.paper import Finding, OurResults, Pair, PaperModel
from mops.surveys.expansion import abbreviate
from mops.surveys.results.results import COST_PASS, WAITING, CandidateResult
from mops.tasks import CORRELATIONS
from mops.units import format_count, format_seconds

Verdict = Literal["holds", "does not hold", "undecided"]
Judgement = tuple[Verdict, str]  # and why
Candidates = Sequence[CandidateResult]
# Overall scores that differ by less count as equal: three encoders gain this much over one in the
# hybrid paper's table 1 (0.772 and 0.761), the smallest step that any of the papers builds on.
MARGIN = 0.01
ABSENT = "not in this survey"
REASONS = 2  # of several comparisons that are printed


class UndecidedError(Exception):
    """Why a claim cannot be tested; becomes the reason of the verdict, never reaches a user."""


@dataclass(frozen=True)
class Claim:
    """A finding of a paper, judged by our survey."""

    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Contrast:
    """One side minus the other, with an interval; a difference of one seed is not significant."""

    what: str
    value: float
    low: float
    high: float
    is_significant: bool
    seeds: int = 2
    result: str = ""  # in words, instead of the interval

    @property
    def text(self) -> str:
        interval = f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"
        return f"{self.what}: {self.result or interval}"


# ------------------------------------------------------------------ verdicts


def judge(finding: Finding, ours: OurResults) -> Claim:
    is_one = bool(finding.than or finding.other_than)  # one comparison of all pairs
    groups = [finding.pairs] if is_one else [(pair,) for pair in finding.pairs]
    cases = []
    for evidence in (Evidence(ours, finding, g, m) for g in groups for m in finding.metrics):
        try:
            contrast: Contrast = getattr(evidence, finding.quantity)()
            cases.append(decide(finding.claim, contrast, finding.bound))
        except UndecidedError as reason:
            cases.append(("undecided", str(reason)))
    verdict, why = combine(finding.hold, cases)
    return Claim(finding.text, verdict, f"{why[:1].upper()}{why[1:]}.")


def decide(claim: str, contrast: Contrast, bound: float | None) -> Judgement:
    """Whether the interval confirms the claim, refutes it, or does neither."""
    low, high, text = contrast.low, contrast.high, contrast.text
    doubt = "; not significant after the correction for multiple comparisons"
    doubt = "; the interval includes 0" if low <= 0 <= high else doubt
    doubt = "; only one seed" if contrast.seeds < 2 else "" if contrast.result else doubt
    if claim == "greater" and contrast.is_significant:
        return ("holds" if contrast.value >= 0 else "does not hold"), text
    if claim == "greater" or contrast.seeds < 2:
        is_ruled_out = claim == "greater" and bound is not None and high < bound
        return ("does not hold", text) if is_ruled_out else ("undecided", text + doubt)
    margin = bound or MARGIN
    loss = f"a {'loss' if claim == 'not_worse' else 'difference'} of {margin:g} or more"
    if -margin < low and (claim == "not_worse" or high < margin):
        return "holds", f"{text}; {loss} is ruled out"
    if contrast.is_significant and (claim == "equal" or contrast.value < 0):
        return "does not hold", text
    return "undecided", f"{text}; not significant, and {loss} is not ruled out"


def combine(hold: int | str, cases: Sequence[Judgement]) -> Judgement:
    """All cases must hold, or all whose candidates the survey has, or at least so many."""
    if hold == "available":
        cases = [case for case in cases if not case[1].startswith(ABSENT)] or cases[:1]
    verdicts = [verdict for verdict, _ in cases]
    yes, no = verdicts.count("holds"), verdicts.count("does not hold")
    needed = hold if isinstance(hold, int) else len(cases)
    verdict: Verdict = "does not hold" if len(cases) - no < needed else "undecided"
    verdict = "holds" if yes >= needed else verdict
    if not isinstance(hold, int):
        return verdict, first_reasons([why for v, why in cases if v == verdict])
    absent = sum(why.startswith(ABSENT) for _, why in cases)
    parts = {"yes": yes, "no": no, ABSENT: absent, "undecided": len(cases) - yes - no - absent}
    counts = f"of {len(cases)}: {', '.join(f'{n} {what}' for what, n in parts.items() if n)}"
    decided = first_reasons([why for v, why in cases if v != "undecided"])
    return verdict, f"{counts}; {decided}" if decided else counts


def first_reasons(reasons: Sequence[str]) -> str:
    reasons = list(dict.fromkeys(reasons))
    more = f"; and {len(reasons) - REASONS} more" if len(reasons) > REASONS else ""
    return f"{'; '.join(reasons[:REASONS])}{more}"


# ------------------------------------------------------------------ evidence


@dataclass(frozen=True)
class Evidence:
    """What a finding compares, in our survey; one method for each quantity."""

    ours: OurResults
    finding: Finding
    pairs: Sequence[Pair]
    metric: str

    def present(self, model: PaperModel) -> CandidateResult:
        if candidate := self.ours.find(model):
            return candidate
        plan = self.ours.plan(model)
        missing = [f"{key.rpartition('.')[2]}={abbreviate(v)}" for key, v in model.needs.items()]
        missing += [f"only {'+'.join(model.trains)} trained"] if model.trains else []
        waiting = [t.candidate.partition(", ")[0] for t in self.ours.results.in_state(WAITING)]
        yet = " yet" if plan in waiting else ""
        raise UndecidedError(f"{ABSENT}{yet}: {', '.join([plan, *missing])}")

    def score(self) -> Contrast:
        """The difference of a pair, or the mean over some pairs minus the mean over others.

        Adding intervals bounds the error.
        """
        some, others = (
            [self.difference(*([self.present(m) for m in side] for side in pair)) for pair in pairs]
            for pairs in (self.pairs, self.finding.than)
        )
        if not others:
            return some[0]
        value = mean(c.value for c in some) - mean(c.value for c in others)
        low = mean(c.low for c in some) - mean(c.high for c in others)
        high = mean(c.high for c in some) - mean(c.low for c in others)
        seeds = min(c.seeds for c in (*some, *others))
        what = f"{self.metric}, difference of the mean gains"
        return Contrast(what, value, low, high, seeds > 1 and not low <= 0 <= high, seeds)

    def best(self) -> Contrast:
        """The best candidate with one of the plans, but other settings, minus the baseline."""
        base, plans = self.present(self.pairs[0][1][0]), {some[0].plan for some, _ in self.pairs}
        wanted = self.finding.other_than
        contrasts = [
            self.difference([candidate], [base])
            for candidate in self.ours.results.candidates
            if candidate.plan in plans and not self.ours.has_settings(candidate, wanted)
        ]
        if not contrasts:
            raise UndecidedError(f"{ABSENT}: a setting other than {abbreviate(wanted)}")
        better = [c for c in contrasts if c.is_significant and c.value > 0]
        best = max(better or contrasts, key=lambda contrast: contrast.value)
        is_decided = bool(better) or all(contrast.is_significant for contrast in contrasts)
        what = f"best of {len(contrasts)} with another setting"
        result = f"{best.text}{'' if is_decided else '; none is better'}"
        return replace(best, what=what, result=result, is_significant=is_decided, seeds=2)

    def correlation(self) -> Contrast:
        """The mean over seeds of a task's correlation, which is 0 by chance, on all dev rows."""
        candidate = self.present(self.pairs[0][0][0])
        task, _, name = self.metric.partition(".")
        values = self.ours.values(candidate, task, "validation", name)
        if len(values) < 2:
            raise UndecidedError(f"{task} of {candidate.name} needs two seeds, has {len(values)}")
        quantile, value = student_quantile(LEVEL / 2, len(values) - 1), mean(values)
        reach = quantile * (stdev(values) / math.sqrt(len(values)))
        what = f"{name} of {task}, {candidate.name}"
        return Contrast(what, value, value - reach, value + reach, abs(value) > reach)

    def costs(self) -> tuple[CandidateResult, CandidateResult, float]:
        """Two candidates, and the relative spread of the baseline's own time in the cost pass."""
        a, b = (self.present(side[0]) for side in self.pairs[0])
        if {a.costs.source, b.costs.source} != {COST_PASS}:
            raise UndecidedError("times were not measured side by side (see `mops survey`)")
        noises = [c.costs.noise for c in self.ours.results.candidates if c.costs.noise]
        if not noises:
            raise UndecidedError("the timing noise of this machine was not measured")
        return a, b, max(noises)

    def time(self) -> Contrast:
        """How much longer the first trains, as a share of the second's time."""
        a, b, noise = self.costs()
        more = a.costs.train_seconds / b.costs.train_seconds - 1
        is_noise = 1 / (1 + noise) <= 1 + more <= 1 + noise
        if self.finding.bound:  # equal up to a margin: the noise may hide a part of it
            is_noise = abs(more) <= self.finding.bound + noise
        times = ", ".join(f"{c.name} {format_seconds(c.costs.train_seconds)}" for c in (a, b))
        low, high, result = more - noise, more + noise, f"{more:+.0%}, noise {noise:.0%}"
        return Contrast(f"time of {times}", more, low, high, not is_noise, result=result)

    def tm(self) -> Contrast:
        """TM relative to the second, minus 1; with the errors of the score and of both times."""
        score, (a, b, noise) = self.score(), self.costs()
        if (score_b := b.overall.mean) <= 0:
            raise UndecidedError(f"the score of {b.name} is not above 0")
        cheaper = b.costs.train_seconds / a.costs.train_seconds
        cheaper *= self.ours.checkpoint_bytes(b) / self.ours.checkpoint_bytes(a)
        low = (1 + score.low / score_b) * cheaper / (1 + noise)
        high = (1 + score.high / score_b) * cheaper * (1 + noise)
        is_significant = score.seeds > 1 and not low <= 1 <= high
        what, result = f"TM of {a.name}", f"between {low:.2f} and {high:.2f}, {b.name} being 1"
        return Contrast(what, low - 1, low - 1, high - 1, is_significant, score.seeds, result)

    def parameters(self) -> Contrast:
        """How far the ratio of the parameters is below the bound; they are counted exactly."""
        a, b = (self.present(side[0]) for side in self.pairs[0])
        ratio = a.costs.parameters / b.costs.parameters
        counts = ", ".join(f"{c.name} {format_count(c.costs.parameters)}" for c in (a, b))
        below = (self.finding.bound or 1.0) - ratio
        what = f"parameters of {counts}"
        return Contrast(what, below, below, below, is_significant=True, result=f"{ratio:.1%}")

    def difference(self, above: Candidates, below: Candidates) -> Contrast:
        """The survey's own comparison where there is one; else from the errors of the scores.

        The latter treats the predictions as of different rows. They are of the same rows, so the
        true error is smaller.
        """
        a, b, is_pair = above[0], below[0], len(above) == len(below) == 1
        if is_pair and a.name == b.name:
            raise UndecidedError(f"{a.name} stands for both models")
        if unscored := [c.name for c in (*above, *below) if self.metric not in c.scores]:
            raise UndecidedError(f"{self.metric} is not scored for {', '.join(unscored)}")
        names = [", ".join(candidate.name for candidate in side) for side in (above, below)]
        what = f"{self.metric.replace('overall_normalised', 'normalised overall')}, "
        what += " minus ".join(names if is_pair else [f"mean of {name}" for name in names])
        if is_pair and (of := self.compared(a, b)):
            return Contrast(what, of.mean, of.low, of.high, of.is_significant, of.seeds)
        if is_pair and (of := self.compared(b, a)):
            return Contrast(what, -of.mean, -of.high, -of.low, of.is_significant, of.seeds)
        groups = [[candidate.scores[self.metric] for candidate in side] for side in (above, below)]
        value = mean(e.mean for e in groups[0]) - mean(e.mean for e in groups[1])
        stderr = math.hypot(*(e.stderr / len(group) for group in groups for e in group))
        seeds = [e.seeds for group in groups for e in group]
        freedom = sum(seeds) - len(seeds)
        reach = stderr * student_quantile(LEVEL / 2, freedom) if freedom else math.inf
        is_significant = min(seeds) > 1 and abs(value) > reach
        if self.metric == "overall" and is_pair:  # the survey has tested all pairs
            is_significant = b.name in a.apart
        return Contrast(what, value, value - reach, value + reach, is_significant, min(seeds))

    def compared(self, a: CandidateResult, b: CandidateResult) -> Difference | None:
        """Against the baseline, or the gain over the single-task candidate.

        The overall gain is the mean of the tasks' gains; adding their errors bounds its error.
        """
        if a.reference == b.name and self.metric in a.against:
            return a.against[self.metric]
        gains = a.gains if b.name == self.ours.results.single else {}
        if self.metric not in OVERALL or not set(a.tasks) <= set(gains):
            return gains.get(self.metric)
        halved = CORRELATIONS if self.metric == "overall_normalised" else ()  # (r + 1) / 2
        weights = {t: 0.5 if self.ours.results.tasks[t] in halved else 1.0 for t in a.tasks}
        value, low, high = (
            mean(weight * getattr(gains[task], name) for task, weight in weights.items())
            for name in ("mean", "low", "high")
        )
        seeds, is_apart = min(gains[task].seeds for task in a.tasks), b.name in a.apart
        is_apart = is_apart if self.metric == "overall" else seeds > 1 and not low <= 0 <= high
        return Difference(value, math.nan, low, high, math.nan, math.nan, is_apart, seeds)
