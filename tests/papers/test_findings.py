"""Verdicts on findings, on surveys whose truth and errors are known."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from papers_made import candidate, material, ours_of, paired, trials_of

from mops.papers import compare_with
from mops.papers.findings import ABSENT, FAILS, HOLDS, OPEN, SMALLER, Claim, at_least, judge
from mops.papers.paper import TASKS, Finding, OurResults, PaperModel, read_paper
from mops.surveys.results.results import WAITING, CandidateResult, MissingTrial

ERROR = 0.01 * math.sqrt(2)  # of a difference between two made candidates
Contrast = tuple[str, ...] | dict[str, float]


def finding(*contrasts: Contrast, **facts: Any) -> Finding:
    return Finding(**{"text": "", "measures": ("overall",), "contrasts": contrasts} | facts)


def judged(ours: OurResults, *findings: Finding) -> list[Claim]:
    return list(judge(replace(read_paper("mops"), findings=findings), ours))


def verdict(ours: OurResults, *contrasts: Contrast, **facts: Any) -> str:
    return judged(ours, finding(*contrasts, **facts))[0].verdict


def why(ours: OurResults, *contrasts: Contrast, **facts: Any) -> str:
    return judged(ours, finding(*contrasts, **facts))[0].why


def survey(**gains: float) -> OurResults:
    """A baseline, and candidates that are better by so many errors of a difference."""
    scores = {"base": 0.6} | {name: 0.6 + gain * ERROR for name, gain in gains.items()}
    return ours_of(*(candidate(name, score) for name, score in scores.items()))


# ------------------------------------------------------------------ one comparison


@pytest.mark.parametrize(
    ("gain", "expected"), [(1.7, HOLDS), (1.6, OPEN), (0, OPEN), (-1.6, OPEN), (-1.7, FAILS)]
)
def test_a_difference_is_tested_on_one_side(gain: float, expected: str) -> None:
    """The quantile of the normal distribution at 95 % is 1.645."""
    assert verdict(survey(a=gain), ("a", "base")) == expected


@pytest.mark.parametrize(
    ("gain", "not_worse", "equal"),
    [
        (0.0, HOLDS, HOLDS),
        (20.0, HOLDS, FAILS),
        (-20.0, FAILS, FAILS),
        (4.2, HOLDS, OPEN),  # 5 errors are the margin
        (-4.2, OPEN, OPEN),
        (-3.2, HOLDS, HOLDS),  # significantly worse than 0, but by less than the margin
    ],
)
def test_no_difference_needs_a_90_percent_interval_inside_the_margin(
    gain: float, not_worse: str, equal: str
) -> None:
    ours, margin = survey(a=gain), 5 * ERROR
    assert verdict(ours, ("a", "base"), above=-margin) == not_worse
    assert verdict(ours, ("a", "base"), above=-margin, below=margin) == equal


@pytest.mark.parametrize(
    ("gain", "expected"), [(0.0, SMALLER), (1.0, OPEN), (1.7, HOLDS), (-1.7, FAILS)]
)
def test_a_size_that_the_errors_exclude(gain: float, expected: str) -> None:
    """The paper claims two errors. If the difference is real, its size does not matter."""
    ours = survey(a=gain)
    assert verdict(ours, ("a", "base"), claimed=(2 * ERROR,)) == expected
    assert verdict(ours, ("a", "base"), claimed=(None,)) == expected.replace(SMALLER, OPEN)


def test_the_reason_has_the_interval_and_the_papers_number() -> None:
    text = why(survey(a=2), ("a", "base"), claimed=(0.05,), above=-0.01)
    assert text.startswith("overall, a minus base: +0.028 [+0.00")
    assert text.endswith("], +0.050 in the paper; claimed is more than -0.01")
    text = why(survey(a=2), ("a", "base"), measures=("parameters",), above=1.0)
    assert text == "parameters, a / base: 1.000 [1.000, 1.000]; claimed is more than 2"


def test_two_plans_beside_the_baseline_are_compared_by_their_covariance() -> None:
    """Rows that are hard for one are hard for the other: a tenth of the variance is left."""
    ours = survey(a=1.0, b=0.0)
    alone, together = (
        re.findall(r"[+-]0\.\d+", why(one, ("a", "b"))) for one in (ours, paired(ours, 0.9))
    )
    widths = [float(high) - float(low) for _, low, high in (alone, together)]
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(0.1), abs=0.02)
    assert verdict(ours, ("a", "b")) == OPEN and verdict(paired(ours, 0.9), ("a", "b")) == HOLDS


# ------------------------------------------------------------------ what cannot be tested


def test_an_absent_candidate() -> None:
    waiting = MissingTrial("id", "gone, x, seed 1", "gone, x", 1, WAITING, "not finished yet")
    (claim,) = judged(ours_of(candidate("a"), missing=(waiting,)), finding(("a", "b")))
    assert (claim.verdict, claim.why) == (ABSENT, "b; trials not finished: 1")


def test_what_says_nothing() -> None:
    ours = ours_of(candidate("a", 0.9, seeds=(1,)), candidate("b", 0.1, seeds=(1,)))
    assert "one seed" in why(ours, ("a", "b")) and verdict(ours, ("a", "b")) == OPEN
    ours = ours_of(candidate("a", 0.9), candidate("b", 0.1))
    assert verdict(ours, ("a", "b")) == HOLDS
    assert "not scored" in why(ours, ("a", "b"), measures=("movies",))


def test_findings_that_cannot_be_tested_do_not_count_in_the_correction() -> None:
    """At 1.7 errors one finding holds, two do not (Holm); an absent one changes nothing."""
    ours = survey(a=1.7, b=1.7)
    a, b, gone = finding(("a", "base")), finding(("b", "base")), finding(("gone", "base"))
    assert [claim.verdict for claim in judged(ours, a, gone)] == [HOLDS, ABSENT]
    assert [claim.verdict for claim in judged(ours, a, b)] == [OPEN, OPEN]
    ours = survey(a=2.1, b=1.7)
    assert [claim.verdict for claim in judged(ours, a, b)] == [HOLDS, HOLDS]


# ------------------------------------------------------------------ several comparisons


def test_all_comparisons_must_hold() -> None:
    """An intersection-union test: no correction; its opposite: one of several, corrected."""
    pairs = [("a", "base"), ("b", "base")]
    assert verdict(survey(a=1.7, b=1.7), *pairs) == HOLDS
    assert verdict(survey(a=9.0, b=1.6), *pairs) == OPEN
    assert verdict(survey(a=9.0, b=-1.7), *pairs) == OPEN
    assert verdict(survey(a=9.0, b=-2.1), *pairs) == FAILS


def test_tasks_are_drawn_independently() -> None:
    """The error of a task is 1.73 times that of the overall score; one of two is corrected."""
    lost = {"paraphrase": 0.6 - 1.8 * math.sqrt(3) * ERROR, "similarity": 0.9}
    ours = ours_of(candidate("base"), candidate("a", scores=lost))
    assert verdict(ours, ("a", "base"), measures=("paraphrase",)) == FAILS
    assert verdict(ours, ("a", "base"), measures=("paraphrase", "similarity")) == OPEN


def test_a_candidate_that_scatters_more_has_a_larger_error() -> None:
    """Its own variance counts if it is larger than the common one."""
    ours = survey(a=2.0, b=0.0)
    noisy = ours.results["a"]
    trials = tuple(
        replace(trial, scores={key: value + 0.02 * n for key, value in trial.scores.items()})
        for n, trial in zip((-1, 0, 1), noisy.trials, strict=True)
    )
    others = [one for one in ours.results.candidates if one.name != "a"]
    results = replace(ours.results, candidates=(*others, replace(noisy, trials=trials)))
    assert verdict(ours, ("a", "base")) == HOLDS
    assert verdict(replace(ours, results=results), ("a", "base")) == OPEN


REGIMES = [(name, "base") for name in "abcdefg"]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([9, 9, 9, 2.2, 0, 0, 0], HOLDS),
        ([9, 9, 9, 1.7, 0, 0, 0], OPEN),  # the fourth is the best of four
        ([9, 9, 9, 1.7, -9, -9, -9], OPEN),  # it might as well be another one
        ([0, 0, 0, 0, 0, 0, 0], OPEN),
        ([9, 9, 9, -2.2, -2.2, -2.2, -2.2], FAILS),
        ([9, 9, 9, -1, -1, -1, -1], OPEN),
    ],
)
def test_four_of_seven(gains: list[float], expected: str) -> None:
    ours = survey(**dict(zip("abcdefg", gains, strict=True)))
    assert verdict(ours, *REGIMES, hold=4) == expected


def test_the_count_of_what_is_greater() -> None:
    text = why(survey(a=5, b=4, c=3, d=2, e=-1, f=-2, g=-3), *REGIMES, hold=4)
    assert text.startswith("overall, d minus base: +0.028")  # the fourth decides
    assert text.endswith("; as claimed: 4 of 7")


@pytest.mark.parametrize("large", [0, 1, 3])
@pytest.mark.parametrize("needed", [1, 2, 4, 7])
def test_the_level_of_m_of_n(large: int, needed: int) -> None:
    """Where fewer are above 0, "at least so many" is claimed in at most 5 % of the surveys."""
    draw = np.random.default_rng(needed)
    errors = draw.standard_normal((4000, 8))
    errors = (errors[:, 1:] - errors[:, :1]) / math.sqrt(2)  # seven, and a common baseline
    truth = np.where(np.arange(7) < min(large, needed - 1), 9.0, 0.0)
    p = np.array([at_least(needed, truth + error_K, errors) for error_K in errors[:1000]])
    assert np.mean(p < 0.05) < 0.07


def test_sums_with_weights() -> None:
    """A mean of two minus a mean of two has the error of one candidate."""
    ours = survey(a=1.5, b=1.5, c=0, d=0)
    halves = {"a": 0.5, "b": 0.5, "c": -0.5, "d": -0.5}
    assert verdict(ours, halves) == HOLDS and verdict(ours, ("a", "c")) == OPEN
    assert "+0.5 a +0.5 b -0.5 c -0.5 d: +0.021" in why(ours, halves)


# ------------------------------------------------------------------ simulated surveys


def simulated(draw: np.random.Generator, gain: float, error: float = 0.004) -> OurResults:
    """Three plans and three seeds; rows move all plans together, runs each one alone."""
    common, made = draw.normal(0, 0.02), []
    for name, truth in (("base", 0.6), ("a", 0.6 + gain), ("b", 0.6)):
        one = candidate(name, truth, stderr=0.02)
        scores = truth + common + draw.normal(0, error * math.sqrt(1.5), 3)
        trials = [
            replace(trial, scores=dict.fromkeys(trial.scores, float(score)))
            for trial, score in zip(one.trials, scores, strict=True)
        ]
        made.append(replace(one, trials=tuple(trials)))
    return paired(ours_of(*made), 1.0)


def rates(gain: float, error: float = 0.004) -> dict[str, float]:
    """How often the finding "a is 0.03 better than b" gets each verdict."""
    draw, claim = np.random.default_rng(1), finding(("a", "b"), claimed=(0.03,))
    verdicts = [judged(simulated(draw, gain, error), claim)[0].verdict for _ in range(60)]
    return {verdict: verdicts.count(verdict) / 60 for verdict in (HOLDS, FAILS, SMALLER, OPEN)}


def test_a_true_difference_is_found() -> None:
    assert rates(0.03)[HOLDS] > 0.95


def test_no_difference_is_undecided_or_with_a_small_error_of_another_size() -> None:
    small, large = rates(0.0), rates(0.0, error=0.1)
    assert small[HOLDS] < 0.1 and small[FAILS] < 0.1 and small[SMALLER] > 0.8
    assert large[OPEN] > 0.75


# ------------------------------------------------------------------ size and time


def costing(a: dict[str, Any], b: dict[str, Any]) -> OurResults:
    return ours_of(candidate("b", costs=b, stderr=0.004), candidate("a", costs=a, stderr=0.004))


def test_parameters_are_counted() -> None:
    ours = costing({"parameters": 328_400_000}, {"parameters": 195_700_000})
    facts: dict[str, Any] = {"measures": ("parameters",)}
    assert verdict(ours, ("a", "b"), **facts) == HOLDS
    assert verdict(ours, ("a", "b"), above=1.0, **facts) == FAILS
    assert why(ours, ("a", "b"), **facts) == "parameters, a / b: 1.678 [1.678, 1.678]"


@pytest.mark.parametrize(
    ("seconds", "longer", "equal"),
    [(63, OPEN, HOLDS), (90, HOLDS, FAILS), (50, FAILS, OPEN)],
)
def test_times_are_judged_by_the_noise(seconds: float, longer: str, equal: str) -> None:
    """The other takes 60 s, and the machine varies by 5 %."""
    ours = costing({"train_seconds": seconds}, {})
    assert verdict(ours, ("a", "b"), measures=("seconds",)) == longer
    assert verdict(ours, ("a", "b"), measures=("seconds",), above=-0.2, below=0.2) == equal


def test_times_of_different_moments_are_not_compared() -> None:
    ours = costing({"source": "records of the trainings", "train_seconds": 600.0}, {})
    for measure in ("seconds", "tm"):
        assert verdict(ours, ("a", "b"), measures=(measure,)) == OPEN
        assert "side by side" in why(ours, ("a", "b"), measures=(measure,))


@pytest.mark.parametrize(
    ("seconds", "expected"), [(50, HOLDS), (60, OPEN), (57, OPEN), (70, FAILS)]
)
def test_tm_has_the_errors_of_score_and_time(seconds: float, expected: str) -> None:
    ours = costing({"train_seconds": seconds}, {})
    assert verdict(ours, ("a", "b"), measures=("tm",)) == expected


# ------------------------------------------------------------------ findings of the papers


def verdict_of(paper: str, words: str, *made: CandidateResult, **facts: Any) -> str:
    claims = compare_with(paper, *material(*made, **facts)).claims
    (found,) = (claim.verdict for claim in claims if words in claim.text)
    return found


@pytest.mark.parametrize(("better", "expected"), [(4, HOLDS), (3, OPEN)])
def test_regimes_that_beat_the_baseline_are_counted(better: int, expected: str) -> None:
    regimes = ["IIS", "ISI", "SII", "ISS", "SIS", "SSI", "SSS"]
    words, base = "4 of the 7 regimes that share a layer score higher", candidate("frozen+late:III")
    for sign, turned in ((1, expected), (-1, {HOLDS: FAILS}.get(expected, OPEN))):
        gains = [sign * (9 if n < better else 0) * ERROR for n in range(7)]
        made = [
            candidate(f"frozen+late:{regime}", 0.6 + gain)
            for regime, gain in zip(regimes, gains, strict=True)
        ]
        assert verdict_of("mops", words, base, *made) == turned


def test_any_other_learning_rate_may_be_better() -> None:
    """The best of several is corrected for the choice; the paper claims 0.064."""
    base = candidate("frozen+late:III, x", learning_rate=1e-3)
    words = "a learning rate other than the default"

    def others(*gains: float) -> list[CandidateResult]:
        regimes = ["SSI", "IIS", "SII", "ISS"]
        return [
            candidate(
                f"frozen+late:{regime}, {n}", 0.6 + gain * ERROR, learning_rate=1e-5 * (n + 1)
            )
            for n, gain in enumerate(gains)
            for regime in regimes
        ]

    assert verdict_of("mops", words, base, *others(-9, 3)) == HOLDS
    assert verdict_of("mops", words, base, *others(-9, 1.9)) == SMALLER
    assert verdict_of("mops", words, base, *others(0, 2.4)) == OPEN
    assert verdict_of("mops", words, base, *others(-9, -9)) == FAILS
    assert verdict_of("mops", words, base) == ABSENT


@pytest.mark.parametrize(
    ("scores", "paraphrase", "similarity"),
    [
        ([0.50, 0.52, 0.51], HOLDS, FAILS),
        ([0.01, -0.01, 0.0], FAILS, HOLDS),
        ([0.3, -0.3, 0.1], OPEN, OPEN),
    ],
)
def test_untrained_tasks_against_chance(
    scores: list[float], paraphrase: str, similarity: str
) -> None:
    settings = {"training.train_tasks": ["sentiment"]}
    one = candidate("frozen+shared, x", tasks=("sentiment",), settings=settings)
    trials = trials_of(one, [dict.fromkeys(("paraphrase", "similarity"), s) for s in scores])
    for words, expected in (("paraphrases better", paraphrase), ("predict sim", similarity)):
        assert verdict_of("milestone", words, one, trials=trials) == expected
    assert verdict_of("milestone", "predict sim", one) == OPEN


def test_of_several_candidates_the_first_of_the_survey_is_meant_not_the_best() -> None:
    made = [candidate("base"), candidate("late:III, x", 0.5), candidate("late:III, y", 0.9)]
    ours = ours_of(*made, models={"III": PaperModel("late:III")})
    assert ours.results.candidates[0].name == "late:III, y"
    assert [one.name for one in ours.find("III")] == ["late:III, x"]


def test_overall_scores_are_over_the_papers_tasks() -> None:
    """A fourth task that one candidate alone has learnt well moves nothing."""
    four = {"tasks": (*TASKS, "movies"), "loss_weights": {}}
    ours = ours_of(
        candidate("base", 0.6, scores={"movies": 0.5}, **four),
        candidate("a", 0.6, scores={"movies": 0.9}, **four),
    )
    text = why(ours, ("a", "base"))
    assert text.startswith("overall, a minus base: +0.000 ["), text
    assert why(ours, ("a", "base"), measures=("movies",)).startswith("movies, a minus base: +0.400")
