"""When a finding holds, does not hold or cannot be told: on standings made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from papers_made import candidate, difference, material, trials_of

from mops.papers import compare_with
from mops.papers.costs import as_quick, has_at_most, pays_more, slower
from mops.papers.gaps import gap
from mops.papers.ours import Ours
from mops.papers.paper import Judgement, Match, Test
from mops.papers.verdicts import (
    FAILS,
    HOLDS,
    UNTOLD,
    ahead,
    all_of,
    at_least,
    beats,
    either,
    gains_more,
    matches,
    not_worse,
)
from mops.surveys.results.results import CandidateResult, MissingTrial

A, B, GONE = Match("a"), Match("b"), Match("gone")


def against(mean: float, reach: float, is_significant: bool = False, seeds: int = 3) -> Ours:
    """a minus the baseline b."""
    of = difference(mean, reach, is_significant, seeds)
    one = candidate("a", against={"overall": of}, reference="b")
    return Ours(material(one, candidate("b", reference="b"), baseline="b"))


def always(*found: Judgement) -> list[Test]:
    return [lambda _, of=of: of for of in found]  # type: ignore[misc]


# ------------------------------------------------------------------ two candidates


@pytest.mark.parametrize(
    ("mean", "reach", "is_significant", "verdict"),
    [
        (0.05, 0.02, True, HOLDS),
        (-0.05, 0.02, True, FAILS),
        (0.01, 0.02, False, UNTOLD),
        (0.05, 0.02, False, UNTOLD),  # the interval alone is not enough
    ],
)
def test_better_needs_a_real_difference(
    mean: float, reach: float, is_significant: bool, verdict: str
) -> None:
    ours, turned = (
        against(mean, reach, is_significant),
        {HOLDS: FAILS, FAILS: HOLDS, UNTOLD: UNTOLD},
    )
    assert beats(A, B, "overall")(ours)[0] == verdict
    assert beats(B, A, "overall")(ours)[0] == turned[verdict]


@pytest.mark.parametrize(
    ("mean", "reach", "is_significant", "worse", "same"),
    [
        (0.002, 0.005, False, HOLDS, HOLDS),  # inside the margin of 0.01
        (0.05, 0.02, True, HOLDS, FAILS),  # better is not worse
        (-0.05, 0.02, True, FAILS, FAILS),
        (-0.005, 0.02, False, UNTOLD, UNTOLD),  # neither real nor ruled out
        (-0.005, 0.004, True, HOLDS, HOLDS),  # real, but smaller than the margin
    ],
)
def test_no_difference_needs_an_interval_inside_the_margin(
    mean: float, reach: float, is_significant: bool, worse: str, same: str
) -> None:
    ours = against(mean, reach, is_significant)
    assert not_worse(A, B, "overall")(ours)[0] == worse
    assert matches(A, B, "overall")(ours)[0] == same


@pytest.mark.parametrize("test", [beats, not_worse, matches])
def test_one_seed_says_nothing_of_plans(test: Any) -> None:
    verdict, why = test(A, B, "overall")(against(0.0, 0.001, seeds=1))
    assert verdict == UNTOLD and "one seed" in why


@pytest.mark.parametrize("test", [beats, not_worse, matches])
def test_who_is_missing_is_named(test: Any) -> None:
    verdict, why = test(A, GONE, "overall")(against(0.05, 0.01, True))
    assert verdict == UNTOLD and why == "not in this survey: gone"
    verdict, why = test(A, B, "paraphrases")(against(0.05, 0.01, True))
    assert verdict == UNTOLD and "not scored" in why


def test_who_is_still_to_come_is_not_missing() -> None:
    waiting = MissingTrial("id", "gone, x, seed 1", "gone, x", 1, "waiting", "not finished yet")
    ours = Ours(material(candidate("a"), missing=(waiting,)))
    assert beats(A, GONE, "overall")(ours) == (UNTOLD, "not in this survey yet: gone")
    assert beats(A, B, "overall")(ours) == (UNTOLD, "not in this survey: b")


def test_seen_from_the_baseline_the_interval_is_turned() -> None:
    found = gap(against(0.05, 0.02, True), B, A, "overall")
    assert (found.mean, found.low, found.high) == pytest.approx((-0.05, -0.07, -0.03))


def test_why_has_the_interval() -> None:
    assert beats(A, B, "overall")(against(0.05, 0.02, True)) == (
        HOLDS, "overall, a minus b: +0.050 [+0.030, +0.070]",
    )  # fmt: skip


def pair(a: CandidateResult, b: CandidateResult, **facts: Any) -> Ours:
    return Ours(material(a, b, candidate("base"), **{"baseline": "base", **facts}))


def test_two_that_are_not_the_baseline_go_by_the_comparison_of_all_pairs() -> None:
    told = pair(candidate("a", 0.8, apart=("b",)), candidate("b", 0.6, apart=("a",)))
    assert beats(A, B, "overall")(told)[0] == HOLDS
    assert beats(B, A, "overall")(told)[0] == FAILS
    tied = pair(candidate("a", 0.8, apart=("x",)), candidate("b", 0.6, apart=("x",)))
    assert beats(A, B, "overall")(tied)[0] == UNTOLD


def test_and_in_other_scores_by_an_error_that_is_too_large() -> None:
    """Three seeds each: Student's quantile of 4 degrees of freedom, errors as of other rows."""
    ours = pair(candidate("a", 0.80), candidate("b", 0.70))
    found = gap(ours, A, B, "sentiment")
    assert found.high - found.mean == pytest.approx(2.7764451 * 0.01 * 2**0.5)
    assert found.is_significant and beats(A, B, "sentiment")(ours)[0] == HOLDS
    close = pair(candidate("a", 0.73), candidate("b", 0.70))
    assert beats(A, B, "sentiment")(close)[0] == UNTOLD
    once = pair(candidate("a", 0.9, seeds=(1,)), candidate("b", 0.1, seeds=(1,)))
    assert beats(A, B, "sentiment")(once)[0] == UNTOLD


def test_against_a_model_per_task_by_the_gains() -> None:
    """The mean of the gains, a correlation's halved where it is normalised; reaches add up."""
    gains = {
        "sentiment": difference(-0.03, 0.03),
        "paraphrase": difference(0.0, 0.03),
        "similarity": difference(0.06, 0.06),
    }
    a = candidate("a", gains=gains)
    ours = pair(a, candidate("b"), single="b")
    plain, normalised = (gap(ours, A, B, by) for by in ("overall", "overall_normalised"))
    assert (plain.mean, plain.high) == pytest.approx((0.01, 0.05))
    assert (normalised.mean, normalised.low) == pytest.approx((0.0, -0.03))
    assert gap(ours, B, A, "overall").mean == pytest.approx(-0.01)
    assert gap(ours, A, B, "similarity").low == pytest.approx(0.0)


# ------------------------------------------------------------------ several


@pytest.mark.parametrize(
    ("found", "every", "two"),
    [
        ((HOLDS, HOLDS, HOLDS), HOLDS, HOLDS),
        ((HOLDS, HOLDS, UNTOLD), UNTOLD, HOLDS),
        ((HOLDS, HOLDS, FAILS), FAILS, HOLDS),
        ((HOLDS, UNTOLD, FAILS), FAILS, UNTOLD),
        ((UNTOLD, FAILS, FAILS), FAILS, FAILS),  # two cannot hold any more
    ],
)
def test_all_and_at_least(found: tuple[Any, ...], every: str, two: str) -> None:
    tests = always(*((verdict, f"why {n}") for n, verdict in enumerate(found)))
    ours = Ours(material())
    assert all_of(*tests)(ours)[0] == every
    assert at_least(2, tests)(ours)[0] == two


def test_either_leaves_out_what_the_survey_has_not() -> None:
    absent, there = (UNTOLD, "not in this survey: x"), (HOLDS, "so it is")
    ours = Ours(material())
    assert either(*always(absent, there))(ours) == there
    assert either(*always(absent, absent))(ours) == absent
    assert all_of(*always(absent, there))(ours)[0] == UNTOLD


def test_one_group_ahead_of_another() -> None:
    """Means of two each: the error is that of one candidate, times the quantile of 8."""
    some = [candidate("a", 0.74), candidate("b", 0.76), candidate("c", 0.70), candidate("d", 0.70)]
    groups = ([Match("a"), Match("b")], [Match("c"), Match("d")])
    ours = Ours(material(*some))
    verdict, why = ahead(*groups, "overall")(ours)
    assert verdict == HOLDS and why.endswith(": +0.050 [+0.027, +0.073]")  # 2.306 x 0.01
    assert ahead(*reversed(groups), "overall")(ours)[0] == FAILS
    assert ahead([Match("a")], [Match("b")], "overall")(ours)[0] == UNTOLD


def test_gains_in_one_context_against_gains_in_another() -> None:
    def ours(gain: float, other: float) -> Ours:
        made = [
            candidate("a", against={"overall": difference(gain, 0.01)}, reference="base"),
            candidate("b", against={"overall": difference(other, 0.01)}, reference="base"),
        ]
        return Ours(material(candidate("base"), *made))

    test = gains_more([(A, Match("base"))], [(B, Match("base"))], "overall")
    assert test(ours(0.05, 0.0))[0] == HOLDS
    assert test(ours(0.0, 0.05))[0] == FAILS
    assert test(ours(0.015, 0.0))[0] == UNTOLD  # 0.015 ± 0.02


# ------------------------------------------------------------------ size and time


def costing(a: dict[str, Any], b: dict[str, Any]) -> Ours:
    tie = {"overall": difference(0.0, 0.006)}
    one = candidate("a", costs=a, against=tie, reference="b")
    return Ours(material(one, candidate("b", costs=b, reference="b"), baseline="b"))


def test_parameters_are_counted() -> None:
    ours = costing({"parameters": 195.7e6}, {"parameters": 328.4e6})
    assert has_at_most(0.5, A, B)(ours) == (FAILS, "parameters of a 195.70 M, b 328.40 M: 59.6%")
    assert has_at_most(0.6, A, B)(ours)[0] == HOLDS


@pytest.mark.parametrize(
    ("seconds", "longer", "same"), [(63, UNTOLD, HOLDS), (90, HOLDS, FAILS), (50, FAILS, UNTOLD)]
)
def test_times_are_judged_by_the_noise(seconds: float, longer: str, same: str) -> None:
    """The other takes 60 s, the machine varies by 5 %."""
    ours = costing({"train_seconds": seconds}, {})
    assert slower(A, B)(ours)[0] == longer
    assert as_quick(A, B, margin=0.2)(ours)[0] == same


def test_times_of_different_moments_say_nothing() -> None:
    ours = costing({"source": "records of the trainings", "train_seconds": 600.0}, {})
    for test in (slower(A, B), pays_more(A, B)):
        verdict, why = test(ours)
        assert verdict == UNTOLD and "side by side" in why


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(50, HOLDS), (60, UNTOLD), (59, UNTOLD), (70, FAILS)]
)
def test_tm_has_the_errors_of_score_and_time(seconds: float, verdict: str) -> None:
    """Score 0.6 ± 0.006 (1 %) on both sides, time 5 %, equal size."""
    assert pays_more(A, B)(costing({"train_seconds": seconds}, {}))[0] == verdict


# ------------------------------------------------------------------ findings of the papers


def verdict_of(name: str, words: str, *standings: CandidateResult, **facts: Any) -> str:
    view = compare_with(name, material(*standings, **facts))
    (claim,) = (claim for claim in view.claims if words in claim.text)
    return claim.verdict


def frozen(regime: str, gain: float, is_significant: bool) -> CandidateResult:
    base = "frozen+late:III"
    of = {} if regime == "III" else {"overall": difference(gain, 0.01, is_significant)}
    return candidate(f"frozen+late:{regime}", 0.6 + gain, against=of, reference=base)


@pytest.mark.parametrize(("better", "verdict"), [(4, HOLDS), (3, UNTOLD)])
def test_regimes_that_beat_the_baseline_are_counted(better: int, verdict: str) -> None:
    regimes = ["IIS", "ISI", "SII", "ISS", "SIS", "SSI", "SSS"]
    made = [frozen(r, 0.05, n < better) for n, r in enumerate(regimes)]
    words = "4 of the 7 regimes that share a layer score higher"
    assert verdict_of("mops", words, frozen("III", 0.0, False), *made) == verdict
    worse = [frozen(r, -0.05, n < better) for n, r in enumerate(regimes)]
    against = FAILS if better == 4 else UNTOLD
    assert verdict_of("mops", words, frozen("III", 0.0, False), *worse) == against


def test_another_rate_must_really_win() -> None:
    base = candidate("frozen+late:III, x", learning_rate=1e-3, reference="frozen+late:III, x")

    def verdict(is_significant: bool, gain: float = 0.05) -> str:
        of = {"overall": difference(gain, 0.01, is_significant)}
        facts: dict[str, Any] = {"against": of, "reference": base.name, "learning_rate": 1e-5}
        other = candidate("frozen+late:ISS, y", **facts)
        return verdict_of("mops", "another rate", base, other)

    assert (verdict(True), verdict(False), verdict(True, -0.05)) == (HOLDS, UNTOLD, FAILS)


@pytest.mark.parametrize(
    ("scores", "paraphrase", "similarity"),
    [
        ([0.50, 0.52, 0.51], HOLDS, FAILS),
        ([0.01, -0.01, 0.0], FAILS, HOLDS),
        ([0.3, -0.3, 0.1], UNTOLD, UNTOLD),
    ],
)
def test_what_an_untaught_task_knows(scores: list[float], paraphrase: str, similarity: str) -> None:
    settings = {"training.train_tasks": ["sentiment"]}
    one = candidate("frozen+shared, x", tasks=("sentiment",), settings=settings)
    trials = trials_of(one, [dict.fromkeys(("paraphrase", "similarity"), s) for s in scores])
    for words, verdict in (("detects paraphrases", paraphrase), ("nothing of sim", similarity)):
        assert verdict_of("milestone", words, one, trials=trials) == verdict
    assert verdict_of("milestone", "nothing of sim", one, trials=[]) == UNTOLD
