"""How a finding is judged: it holds, it does not, or our numbers cannot tell. Never by eye.

`holds` and `does not hold` need a difference that the survey calls real; that there is none needs
an interval within a margin. All else cannot be told, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from statistics import mean

from mops.papers.gaps import ABSENT, Gap, UntoldError, contrast, gap, present, words
from mops.papers.ours import Ours
from mops.papers.paper import Claim, Judgement, Match, Stated, Test, Verdict

HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
UNTOLD: Verdict = "cannot be told"
# Overall scores that differ by less are taken for equal: it is what three encoders gain over one in
# the hybrid paper's table 1 (0.772 and 0.761), the smallest step that any of the papers builds on.
MARGIN = 0.01
MOST = 2  # reasons that are told


def judge(stated: Stated, ours: Ours) -> Claim:
    verdict, why = stated.test(ours)
    return Claim(stated.text, verdict, f"{why[:1].upper()}{why[1:]}.")


def judged(test: Callable[[Ours], Judgement]) -> Test:
    """A test that cannot be made has its reason."""

    @wraps(test)
    def safe(ours: Ours) -> Judgement:
        try:
            return test(ours)
        except UntoldError as reason:
            return UNTOLD, str(reason)

    return safe


# ------------------------------------------------------------------ two candidates


def beats(one: Match, other: Match, by: str) -> Test:
    """One is better than the other."""

    def test(ours: Ours) -> Judgement:
        found = gap(ours, one, other, by)
        if not found.is_significant:
            return UNTOLD, f"{found.said}; {found.doubt}"
        return (HOLDS if found.mean > 0 else FAILS), found.said

    return judged(test)


def not_worse(one: Match, other: Match, by: str, margin: float = MARGIN) -> Test:
    """One loses less than the margin against the other."""

    def test(ours: Ours) -> Judgement:
        found = gap(ours, one, other, by)
        is_within, is_refuted = found.low > -margin, found.is_significant and found.mean < 0
        return within(found, is_within, is_refuted, f"a loss of {margin:g} or more")

    return judged(test)


def matches(one: Match, other: Match, by: str, margin: float = MARGIN) -> Test:
    """The two differ by less than the margin."""

    def test(ours: Ours) -> Judgement:
        found = gap(ours, one, other, by)
        is_within = -margin < found.low and found.high < margin
        return within(found, is_within, found.is_significant, f"a difference of {margin:g} or more")

    return judged(test)


def within(found: Gap, is_within: bool, is_refuted: bool, what: str) -> Judgement:
    if found.seeds < 2:
        return UNTOLD, f"{found.said}; {found.doubt}"
    if is_within:
        return HOLDS, f"{found.said}; {what} is ruled out"
    if is_refuted:
        return FAILS, found.said
    return UNTOLD, f"{found.said}; neither real nor is {what} ruled out"


# ------------------------------------------------------------------ several at once


def all_of(*tests: Test) -> Test:
    """Every one of them holds; one that does not is enough against it."""
    return lambda ours: joined([test(ours) for test in tests])


def either(*tests: Test) -> Test:
    """Every one whose candidates this survey has."""

    def test(ours: Ours) -> Judgement:
        found = [each(ours) for each in tests]
        return joined([of for of in found if not of[1].startswith(ABSENT)] or found[:1])

    return test


def joined(found: Sequence[Judgement]) -> Judgement:
    against = [why for verdict, why in found if verdict == FAILS]
    untold = [why for verdict, why in found if verdict == UNTOLD]
    if against:
        return FAILS, listed(against)
    if untold:
        return UNTOLD, listed(untold)
    return HOLDS, listed([why for _, why in found])


def listed(reasons: Sequence[str]) -> str:
    """The first ones, and how many more."""
    reasons = list(dict.fromkeys(reasons))
    more = f"; and {len(reasons) - MOST} more" if len(reasons) > MOST else ""
    return f"{'; '.join(reasons[:MOST])}{more}"


def at_least(count: int, tests: Sequence[Test]) -> Test:
    """So many of them hold."""

    def test(ours: Ours) -> Judgement:
        found = [each(ours) for each in tests]
        sure, against = ([v for v, _ in found].count(verdict) for verdict in (HOLDS, FAILS))
        absent = sum(why.startswith(ABSENT) for _, why in found)
        parts = {"yes": sure, "no": against, ABSENT: absent,
                 "cannot be told": len(found) - sure - against - absent}  # fmt: skip
        said = f"of {len(found)}: {', '.join(f'{n} {what}' for what, n in parts.items() if n)}"
        decided = [why for verdict, why in found if verdict != UNTOLD]
        said = "; ".join([said, *([listed(decided)] if decided else [])])
        if sure >= count:
            return HOLDS, said
        return (FAILS if len(found) - against < count else UNTOLD), said

    return test


def ahead(some: Sequence[Match], others: Sequence[Match], by: str) -> Test:
    """The mean of some is above the mean of the others."""

    def test(ours: Ours) -> Judgement:
        groups = [[present(ours, match) for match in group] for group in (some, others)]
        if not all(by in one.scores for group in groups for one in group):
            raise UntoldError(f"{by} is not scored for all of them")
        above, below = ({one.name: one.scores[by] for one in group} for group in groups)
        value, reach, seeds = contrast(above, below)
        what = f"mean of {', '.join(above)} minus mean of {', '.join(below)}"
        said = words(by, what, value, value - reach, value + reach)
        if seeds < 2 or abs(value) <= reach:
            doubt = "one seed" if seeds < 2 else "the interval includes 0"
            return UNTOLD, f"{said}; {doubt}"
        return (HOLDS if value > 0 else FAILS), said

    return judged(test)


Pairs = Sequence[tuple[Match, Match]]


def gains_more(some: Pairs, others: Pairs, by: str) -> Test:
    """The mean gain of some pairs is above that of the others; intervals are added up, so that the
    error is too large rather than too small."""

    def test(ours: Ours) -> Judgement:
        first, second = ([gap(ours, a, b, by) for a, b in pairs] for pairs in (some, others))
        value = mean(g.mean for g in first) - mean(g.mean for g in second)
        low = mean(g.low for g in first) - mean(g.high for g in second)
        high = mean(g.high for g in first) - mean(g.low for g in second)
        said = words(by, "difference of the mean gains", value, low, high)
        if min(g.seeds for g in (*first, *second)) < 2:
            return UNTOLD, f"{said}; one seed"
        if low <= 0 <= high:
            return UNTOLD, f"{said}; the interval includes 0"
        return (HOLDS if low > 0 else FAILS), said

    return judged(test)
