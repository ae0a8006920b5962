"""Findings about size and time: sizes are counted, times are judged against the machine's noise."""

from __future__ import annotations

from mops.papers.gaps import UntoldError, gap, present
from mops.papers.measures import checkpoint_bytes
from mops.papers.ours import Ours
from mops.papers.paper import Judgement, Match, Test
from mops.papers.verdicts import FAILS, HOLDS, UNTOLD, judged
from mops.surveys.results.results import COST_PASS, CandidateResult
from mops.units import format_count, format_seconds


def has_at_most(share: float, one: Match, other: Match) -> Test:
    """One has at most this share of the other's parameters."""

    def test(ours: Ours) -> Judgement:
        a, b = present(ours, one), present(ours, other)
        ratio = counted(a) / counted(b)
        said = f"{a.name} {format_count(counted(a))}, {b.name} {format_count(counted(b))}"
        return (HOLDS if ratio <= share else FAILS), f"parameters of {said}: {ratio:.1%}"

    return judged(test)


def counted(one: CandidateResult) -> float:
    if not one.costs.parameters:
        raise UntoldError(f"the parameters of {one.name} are not recorded")
    return float(one.costs.parameters)


def stored(one: CandidateResult) -> float:
    size = checkpoint_bytes(one)
    if not size:
        raise UntoldError(f"the size of {one.name} is not recorded")
    return size


def noise_of(ours: Ours, *some: CandidateResult) -> float:
    """The share by which the baseline's own time varied in the cost pass."""
    if any(one.costs.source != COST_PASS for one in some):
        raise UntoldError("times were not measured side by side: `mops survey` does so at its end")
    found = [one.costs.noise for one in ours.summary.candidates if one.costs.noise]
    if not found:
        raise UntoldError("the machine's noise is not known")
    return float(max(found))


def slower(one: Match, other: Match) -> Test:
    """One takes longer to train, by more than the noise."""

    def test(ours: Ours) -> Judgement:
        a, b = present(ours, one), present(ours, other)
        noise = noise_of(ours, a, b)
        seconds = [each.costs.train_seconds for each in (a, b)]
        ratio = seconds[0] / seconds[1]
        said = (
            f"time of {a.name} {format_seconds(seconds[0])}, {b.name} {format_seconds(seconds[1])}"
        )
        if 1 / (1 + noise) <= ratio <= 1 + noise:
            return UNTOLD, f"{said}: within this machine's noise of {noise:.0%}"
        return (HOLDS if ratio > 1 else FAILS), f"{said}: {ratio - 1:+.0%}, noise {noise:.0%}"

    return judged(test)


def as_quick(one: Match, other: Match, margin: float) -> Test:
    """Both take the same time, up to this share."""

    def test(ours: Ours) -> Judgement:
        a, b = present(ours, one), present(ours, other)
        noise = noise_of(ours, a, b)
        ratio = a.costs.train_seconds / b.costs.train_seconds
        said = f"time of {a.name}: {ratio:.0%} of that of {b.name}; noise {noise:.0%}"
        said += f", up to {margin:.0%} is taken for equal"
        if abs(ratio - 1) + noise <= margin:
            return HOLDS, said
        return (FAILS if abs(ratio - 1) > margin + noise else UNTOLD), said

    return judged(test)


def pays_more(one: Match, other: Match) -> Test:
    """One has the higher TM-relative score: by the ends of the interval of its score, and by times
    that may be off by the noise either way."""

    def test(ours: Ours) -> Judgement:
        a, b = present(ours, one), present(ours, other)
        found, noise = gap(ours, one, other, "overall"), noise_of(ours, a, b)
        score = b.overall.mean
        if score <= 0:
            raise UntoldError(f"the score of {b.name} is not above 0")
        cheaper = b.costs.train_seconds / a.costs.train_seconds * stored(b) / stored(a)
        low = (1 + found.low / score) * cheaper / (1 + noise)
        high = (1 + found.high / score) * cheaper * (1 + noise)
        said = f"TM of {a.name} between {low:.2f} and {high:.2f}, {b.name} being 1"
        if found.seeds < 2 or low <= 1 <= high:
            return UNTOLD, said
        return (HOLDS if low > 1 else FAILS), said

    return judged(test)
