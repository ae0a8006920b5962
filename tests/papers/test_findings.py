"""When a finding holds, does not hold or is undecided: on made results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from papers_made import candidate, difference, material, ours_of, trials_of

from mops.papers import compare_with
from mops.papers.findings import Verdict, combine, judge
from mops.papers.paper import Finding, OurResults, PaperModel
from mops.surveys.results.results import WAITING, CandidateResult, MissingTrial

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
TURNED = {HOLDS: FAILS, FAILS: HOLDS, UNDECIDED: UNDECIDED}
Test = Callable[[OurResults], tuple[str, str]]


def test_of(claim: Any, above: str, below: str, **facts: Any) -> Test:
    """The verdict and the reason of a claim about two groups of plans."""
    pair = tuple(tuple(map(PaperModel, side.split())) for side in (above, below))
    facts = {"metrics": ("overall",), "pairs": (pair,), **facts}
    finding = Finding(text="", claim=claim, **facts)

    def test(ours: OurResults) -> tuple[str, str]:
        judged = judge(finding, ours)
        return judged.verdict, judged.why

    return test


test_of.__test__ = False  # type: ignore[attr-defined]


def against(mean: float, reach: float, is_real: bool = False, seeds: int = 3) -> OurResults:
    """a minus the baseline b."""
    of = difference(mean, reach, is_real, seeds)
    one = candidate("a", against={"overall": of}, reference="b")
    return ours_of(one, candidate("b", reference="b"), baseline="b")


# ------------------------------------------------------------------ two candidates


@pytest.mark.parametrize(
    ("mean", "reach", "is_real", "verdict"),
    [
        (0.05, 0.02, True, HOLDS),
        (-0.05, 0.02, True, FAILS),
        (0.01, 0.02, False, UNDECIDED),
        (0.05, 0.02, False, UNDECIDED),  # the interval alone is not enough
    ],
)
def test_greater_needs_a_significant_difference(
    mean: float, reach: float, is_real: bool, verdict: str
) -> None:
    ours = against(mean, reach, is_real)
    assert test_of("greater", "a", "b")(ours)[0] == verdict
    assert test_of("greater", "b", "a")(ours)[0] == TURNED[verdict]


@pytest.mark.parametrize(
    ("mean", "reach", "is_real", "not_worse", "equal"),
    [
        (0.002, 0.005, False, HOLDS, HOLDS),  # inside the margin of 0.01
        (0.05, 0.02, True, HOLDS, FAILS),  # better is not worse
        (-0.05, 0.02, True, FAILS, FAILS),
        (-0.005, 0.02, False, UNDECIDED, UNDECIDED),  # neither significant nor ruled out
        (-0.005, 0.004, True, HOLDS, HOLDS),  # significant, but smaller than the margin
    ],
)
def test_no_difference_needs_an_interval_inside_the_margin(
    mean: float, reach: float, is_real: bool, not_worse: str, equal: str
) -> None:
    ours = against(mean, reach, is_real)
    assert test_of("not_worse", "a", "b")(ours)[0] == not_worse
    assert test_of("equal", "a", "b")(ours)[0] == equal


@pytest.mark.parametrize("claim", ["greater", "not_worse", "equal"])
def test_the_reason_of_an_undecided_claim(claim: str) -> None:
    assert test_of(claim, "a", "b")(against(0.0, 0.001, seeds=1)) == (
        UNDECIDED, "Overall, a minus b: +0.000 [-0.001, +0.001]; only one seed.",
    )  # fmt: skip
    ours = against(0.05, 0.01, True)
    assert test_of(claim, "a", "gone")(ours) == (UNDECIDED, "Not in this survey: gone.")
    assert test_of(claim, "a", "a")(ours) == (UNDECIDED, "A stands for both models.")
    unscored = test_of(claim, "a", "b", metrics=("paraphrases",))(ours)
    assert unscored[0] == UNDECIDED and "not scored" in unscored[1]


def test_a_candidate_that_waits_is_not_absent() -> None:
    waiting = MissingTrial("id", "gone, x, seed 1", "gone, x", 1, WAITING, "not finished yet")
    ours = ours_of(candidate("a"), missing=(waiting,))
    assert test_of("greater", "a", "gone")(ours)[1] == "Not in this survey yet: gone."
    assert test_of("greater", "a", "b")(ours)[1] == "Not in this survey: b."


def test_the_reason_has_the_interval_of_the_first_minus_the_second() -> None:
    ours = against(0.05, 0.02, True)
    assert test_of("greater", "a", "b")(ours)[1] == "Overall, a minus b: +0.050 [+0.030, +0.070]."
    assert test_of("greater", "b", "a")(ours)[1] == "Overall, b minus a: -0.050 [-0.070, -0.030]."


def pair(a: CandidateResult, b: CandidateResult, **facts: Any) -> OurResults:
    return ours_of(a, b, candidate("base"), **{"baseline": "base", **facts})


def test_two_candidates_without_the_baseline_use_the_comparison_of_all_pairs() -> None:
    apart = pair(candidate("a", 0.8, apart=("b",)), candidate("b", 0.6, apart=("a",)))
    assert test_of("greater", "a", "b")(apart)[0] == HOLDS
    assert test_of("greater", "b", "a")(apart)[0] == FAILS
    tied = pair(candidate("a", 0.8, apart=("x",)), candidate("b", 0.6, apart=("x",)))
    assert test_of("greater", "a", "b")(tied)[0] == UNDECIDED


def test_other_scores_have_an_upper_bound_of_the_error() -> None:
    """Three seeds each: Student's quantile of 4 degrees of freedom x 0.01 x sqrt(2) = 0.039."""
    test = test_of("greater", "a", "b", metrics=("sentiment",))
    assert test(pair(candidate("a", 0.80), candidate("b", 0.70))) == (
        HOLDS, "Sentiment, a minus b: +0.100 [+0.061, +0.139].",
    )  # fmt: skip
    assert test(pair(candidate("a", 0.73), candidate("b", 0.70)))[0] == UNDECIDED
    once = pair(candidate("a", 0.9, seeds=(1,)), candidate("b", 0.1, seeds=(1,)))
    assert test(once)[0] == UNDECIDED


def test_against_one_model_per_task_by_the_gains() -> None:
    """The mean of the gains; a correlation's gain is halved if normalised; errors are added."""
    gains = {
        "sentiment": difference(-0.03, 0.03),
        "paraphrase": difference(0.0, 0.03),
        "similarity": difference(0.06, 0.06),
    }
    ours = pair(candidate("a", gains=gains), candidate("b"), single="b")

    def why(metric: str, *sides: str) -> str:
        return test_of("greater", *sides, metrics=(metric,))(ours)[1]

    assert "+0.010 [-0.030, +0.050]" in why("overall", "a", "b")
    assert "+0.000 [-0.030, +0.030]" in why("overall_normalised", "a", "b")
    assert "-0.010 [-0.050, +0.030]" in why("overall", "b", "a")
    assert "+0.060 [+0.000, +0.120]" in why("similarity", "a", "b")


# ------------------------------------------------------------------ several comparisons


@pytest.mark.parametrize(
    ("verdicts", "every", "two"),
    [
        ((HOLDS, HOLDS, HOLDS), HOLDS, HOLDS),
        ((HOLDS, HOLDS, UNDECIDED), UNDECIDED, HOLDS),
        ((HOLDS, HOLDS, FAILS), FAILS, HOLDS),
        ((HOLDS, UNDECIDED, FAILS), FAILS, UNDECIDED),
        ((UNDECIDED, FAILS, FAILS), FAILS, FAILS),  # two cannot hold any more
    ],
)
def test_all_and_at_least(verdicts: tuple[Verdict, ...], every: str, two: str) -> None:
    cases = [(verdict, f"why {n}") for n, verdict in enumerate(verdicts)]
    assert combine("all", cases)[0] == every
    assert combine(2, cases)[0] == two


def test_available_leaves_out_candidates_that_the_survey_has_not() -> None:
    absent: tuple[Verdict, str] = (UNDECIDED, "not in this survey: x")
    there: tuple[Verdict, str] = (HOLDS, "so it is")
    assert combine("available", [absent, there]) == there
    assert combine("available", [absent, absent]) == absent
    assert combine("all", [absent, there])[0] == UNDECIDED


def test_means_of_two_groups() -> None:
    """Means of two each: the error is that of one candidate, times the quantile of 8."""
    scores = {"a": 0.74, "b": 0.76, "c": 0.70, "d": 0.70}
    ours = ours_of(*(candidate(name, score) for name, score in scores.items()))
    verdict, why = test_of("greater", "a b", "c d")(ours)
    assert verdict == HOLDS and why.endswith(": +0.050 [+0.027, +0.073].")  # 2.306 x 0.01
    assert test_of("greater", "c d", "a b")(ours)[0] == FAILS
    assert test_of("greater", "a", "b")(ours)[0] == UNDECIDED


@pytest.mark.parametrize(
    ("gain", "other", "verdict"),
    [(0.05, 0.0, HOLDS), (0.0, 0.05, FAILS), (0.015, 0.0, UNDECIDED)],  # 0.015 ± 0.02
)
def test_gains_of_some_pairs_against_gains_of_others(
    gain: float, other: float, verdict: str
) -> None:
    made = [
        candidate(name, against={"overall": difference(mean, 0.01)}, reference="base")
        for name, mean in (("a", gain), ("b", other))
    ]
    than = (((PaperModel("b"),), (PaperModel("base"),)),)
    test = test_of("greater", "a", "base", than=than)
    assert test(ours_of(candidate("base"), *made))[0] == verdict


# ------------------------------------------------------------------ size and time


def costing(a: dict[str, Any], b: dict[str, Any]) -> OurResults:
    tie = {"overall": difference(0.0, 0.006)}
    one = candidate("a", costs=a, against=tie, reference="b")
    return ours_of(one, candidate("b", costs=b, reference="b"), baseline="b")


def test_parameters_are_counted() -> None:
    ours = costing({"parameters": 195_700_000}, {"parameters": 328_400_000})
    half, more = (test_of("greater", "a", "b", quantity="parameters", bound=b) for b in (0.5, 0.6))
    assert half(ours) == (FAILS, "Parameters of a 195.70 M, b 328.40 M: 59.6%.")
    assert more(ours)[0] == HOLDS


@pytest.mark.parametrize(
    ("seconds", "longer", "equal"),
    [(63, UNDECIDED, HOLDS), (90, HOLDS, FAILS), (50, FAILS, UNDECIDED)],
)
def test_times_are_judged_by_the_noise(seconds: float, longer: str, equal: str) -> None:
    """The other takes 60 s, and the machine varies by 5 %."""
    ours = costing({"train_seconds": seconds}, {})
    assert test_of("greater", "a", "b", quantity="time")(ours)[0] == longer
    assert test_of("equal", "a", "b", quantity="time", bound=0.2)(ours)[0] == equal


def test_times_of_different_moments_are_not_compared() -> None:
    ours = costing({"source": "records of the trainings", "train_seconds": 600.0}, {})
    for quantity in ("time", "tm"):
        verdict, why = test_of("greater", "a", "b", quantity=quantity)(ours)
        assert verdict == UNDECIDED and "side by side" in why


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(50, HOLDS), (60, UNDECIDED), (59, UNDECIDED), (70, FAILS)]
)
def test_tm_has_the_errors_of_score_and_time(seconds: float, verdict: str) -> None:
    """Score 0.6 ± 0.006 (1 %) on both sides, time 5 %, equal size."""
    ours = costing({"train_seconds": seconds}, {})
    assert test_of("greater", "a", "b", quantity="tm")(ours)[0] == verdict


# ------------------------------------------------------------------ findings of the papers


def verdict_of(paper: str, words: str, *made: CandidateResult, **facts: Any) -> str:
    claims = compare_with(paper, *material(*made, **facts)).claims
    (verdict,) = (claim.verdict for claim in claims if words in claim.text)
    return verdict


def frozen(regime: str, gain: float, is_real: bool) -> CandidateResult:
    base = "frozen+late:III"
    of = {} if regime == "III" else {"overall": difference(gain, 0.01, is_real)}
    return candidate(f"frozen+late:{regime}", 0.6 + gain, against=of, reference=base)


@pytest.mark.parametrize(("better", "verdict"), [(4, HOLDS), (3, UNDECIDED)])
def test_regimes_that_beat_the_baseline_are_counted(better: int, verdict: str) -> None:
    regimes = ["IIS", "ISI", "SII", "ISS", "SIS", "SSI", "SSS"]
    words = "4 of the 7 regimes that share a layer score higher"
    made = [frozen(regime, 0.05, n < better) for n, regime in enumerate(regimes)]
    assert verdict_of("mops", words, frozen("III", 0.0, False), *made) == verdict
    worse = [frozen(regime, -0.05, n < better) for n, regime in enumerate(regimes)]
    refuted = FAILS if better == 4 else UNDECIDED
    assert verdict_of("mops", words, frozen("III", 0.0, False), *worse) == refuted


@pytest.mark.parametrize(
    ("is_real", "gain", "verdict"),
    [(True, 0.05, HOLDS), (False, 0.05, UNDECIDED), (True, -0.05, FAILS)],
)
def test_another_learning_rate_must_be_significantly_better(
    is_real: bool, gain: float, verdict: str
) -> None:
    base = candidate("frozen+late:III, x", learning_rate=1e-3, reference="frozen+late:III, x")
    of = {"overall": difference(gain, 0.01, is_real)}
    facts: dict[str, Any] = {"against": of, "reference": base.name}
    other = candidate("frozen+late:ISS, y", learning_rate=1e-5, **facts)
    words = "a learning rate other than the default"
    assert verdict_of("mops", words, base, other) == verdict
    assert verdict_of("mops", words, base) == UNDECIDED


@pytest.mark.parametrize(
    ("scores", "paraphrase", "similarity"),
    [
        ([0.50, 0.52, 0.51], HOLDS, FAILS),
        ([0.01, -0.01, 0.0], FAILS, HOLDS),
        ([0.3, -0.3, 0.1], UNDECIDED, UNDECIDED),
    ],
)
def test_untrained_tasks_against_chance(
    scores: list[float], paraphrase: str, similarity: str
) -> None:
    settings = {"training.train_tasks": ["sentiment"]}
    one = candidate("frozen+shared, x", tasks=("sentiment",), settings=settings)
    trials = trials_of(one, [dict.fromkeys(("paraphrase", "similarity"), s) for s in scores])
    for words, verdict in (("paraphrases better", paraphrase), ("predict sim", similarity)):
        assert verdict_of("milestone", words, one, trials=trials) == verdict
    assert verdict_of("milestone", "predict sim", one) == UNDECIDED
