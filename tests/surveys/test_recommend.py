"""The decision on records made by hand, where the right answer is known."""

from __future__ import annotations

import csv
import math
import shlex
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import numpy as np
import pytest

from mops.cli.options import NUMBER, SIZE, TIME
from mops.cli.recommend import command, parse_weights
from mops.errors import UsageError
from mops.evaluate import posterior as posterior_module
from mops.evaluate.metrics import SOFT
from mops.evaluate.posterior import posterior
from mops.surveys.pack import read_pack
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import CHEAPEST, SURE, WORTH, Decision, pareto_front, recommend
from mops.surveys.results.results import CandidateResult, Results, read_results
from mops.surveys.results.tables import difference_table
from mops.surveys.run import open_survey
from surveying import made_costs, made_standing, made_summary, made_trial, own_flops

FIXTURES = Path(__file__).parent.parent / "fixtures"
FIELDS = {  # what `--cheapest` names -> the cost behind it
    "parameters": "parameters",
    "latency": "latency_seconds",
    "train_time": "train_seconds",
    "memory": "peak_memory_bytes",
    "tm": "weight_bytes",
}
USUAL = {"parameters": 20e6, "latency_seconds": 0.01, "train_seconds": 60.0,
         "peak_memory_bytes": 1e9, "weight_bytes": 80e6}  # fmt: skip


@pytest.fixture(autouse=True)
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior_module, "SIMULATED", 40)


def sharp(name: str, score: float, millions: float = 20, **facts: Any) -> CandidateResult:
    """A candidate whose score is known to a thousandth."""
    return made_standing(name, score, stderr=0.001, cost=(millions, 10, 60), **facts)


def noisy(
    name: str, score: float, millions: float = 20, *, seeds: int = 3, spread: float = 0.008
) -> CandidateResult:
    """A candidate whose seeds scatter around its score, and whose rows hardly do."""
    draw = np.random.default_rng([*name.encode()])
    off = draw.normal(size=seeds)
    off = spread * (off - off.mean()) / max(1e-9, off.std())
    trials = tuple(
        made_trial(
            n + 1,
            id=f"{name}-{n + 1}",
            digest=f"{name}-{n + 1}",
            score=score + off[n],
        )
        for n in range(seeds)
    )
    return made_standing(name, score, stderr=0.001, cost=(millions, 10, 60), trials=trials)


def near(decision: Decision) -> dict[str, float]:
    return {one.name: one.within for one in decision.odds}


# ------------------------------------------------------------------ the rule


def test_the_rule_by_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fewest parameters of those within the margin with the probability; else least loss."""
    monkeypatch.setattr("mops.surveys.results.recommend.seeds_to_settle", lambda *_: None)
    draw, decided = np.random.default_rng(1), []
    for n in range(40):
        names = ["shared", *(f"p{k}" for k in range(5))]
        made = [
            made_standing(name, 0.7 + 0.01 * draw.normal(), stderr=0.002 + 0.0003 * n,
                          cost=(int(draw.permutation(50)[0]) + 10 * k + 10, 10, 60))
            for k, name in enumerate(names)
        ]  # fmt: skip
        results = made_summary(*made)
        chances = posterior(results.joint()["overall"])
        within, regret = chances.within(0.004), chances.regret()
        sizes = {one.name: one.costs.parameters for one in results.candidates}
        sure = [name for name in names if within[name] >= SURE]
        expected = min(sure, key=sizes.__getitem__) if sure else min(regret, key=regret.get)
        decision = recommend(results, worth=0.004)
        assert decision.candidate == expected and decision.is_decided == bool(sure)
        assert near(decision) == pytest.approx(within)
        decided.append(decision.is_decided)
    assert 10 < sum(decided) < 30


def test_a_clear_winner_is_chosen_though_it_costs_more() -> None:
    decision = recommend(
        made_summary(sharp("hybrid:3", 0.75, 40), sharp("shared", 0.70), sharp("separate", 0.68))
    )
    assert (decision.candidate, decision.plan) == ("hybrid:3", "hybrid:3")
    assert decision.is_decided and decision.is_shared and decision.best_set == ("hybrid:3",)
    assert decision.lines[:2] == (
        "Use hybrid:3 (40.00 M parameters): within 0.01 of the best with 99% probability.",
        "shared (20.00 M parameters): 1%, expected loss 0.050.",
    )
    assert "With 95 % confidence the best of 3 candidates is hybrid:3." in decision.lines


def test_worth_is_what_a_cheaper_plan_may_cost() -> None:
    summary = made_summary(
        sharp("separate", 0.70, 60), sharp("hybrid:3", 0.692, 40), sharp("shared", 0.675, 20)
    )
    chosen = {worth: recommend(summary, worth=worth) for worth in (0.0, 0.002, 0.015, 0.04)}
    assert [one.candidate for one in chosen.values()] == [
        "separate", "separate", "hybrid:3", "shared",
    ]  # fmt: skip
    assert "At --worth 0.03: shared." in chosen[0.015].lines
    assert not any("At --worth" in line for line in chosen[0.04].lines)
    assert "the best with 99% probability" in chosen[0.0].lines[0]


def test_sure_is_the_probability_that_it_needs() -> None:
    summary = made_summary(
        made_standing("separate", 0.70, stderr=0.003, cost=(60, 30, 120)),
        made_standing("shared", 0.694, stderr=0.003),
    )
    probability = near(recommend(summary))["shared"]
    assert 0.6 < probability < 0.95
    assert recommend(summary, sure=probability - 0.01).candidate == "shared"
    decision = recommend(summary, sure=probability + 0.01)
    assert decision.candidate == "separate" and decision.is_decided


def test_without_a_sure_candidate_the_smallest_loss_and_not_decided() -> None:
    summary = made_summary(
        made_standing("shared", 0.70, stderr=0.03),
        made_standing("good", 0.72, stderr=0.03, cost=(90, 90, 90)),
        made_standing("other", 0.71, stderr=0.03),
    )
    decision = recommend(summary)
    assert decision.candidate == "good" and not decision.is_decided
    losses = {one.name: one.regret for one in decision.odds}
    assert losses["good"] == min(losses.values()) and max(near(decision).values()) < SURE
    assert decision.lines[0].startswith(
        f"Not decided; use good (90.00 M parameters), which has the smallest expected loss, "
        f"{losses['good']:.3f}: within 0.01 of the best with "
    )
    among = "With 95 % confidence the best of 3 candidates is any of them."
    assert among in decision.lines


def test_the_set_of_the_best_is_said() -> None:
    first, second = sharp("shared", 0.70), sharp("b", 0.701)
    two = recommend(made_summary(first, second, sharp("c", 0.6)))
    assert set(two.best_set) == {"shared", "b"}
    assert "With 95 % confidence the best of 3 candidates is b or shared." in two.lines


def test_do_not_share() -> None:
    """A model per task is better beyond doubt; a cheaper one within the margin is preferred."""
    alone = sharp("separate", 0.80, 60)
    decision = recommend(made_summary(alone, sharp("shared", 0.70)))
    assert decision.candidate == "separate" and not decision.is_shared
    assert decision.lines[0].startswith("Do not share: use separate (60.00 M parameters)")
    close = recommend(made_summary(alone, sharp("shared", 0.798)))
    assert close.candidate == "shared" and close.is_shared
    doubt = [
        made_standing("separate", 0.72, stderr=0.03),
        made_standing("shared", 0.70, stderr=0.03),
    ]
    lines = recommend(made_summary(*doubt), sure=0.95).lines
    assert lines[0].startswith("Not decided; do not share: use separate")


def test_a_single_candidate() -> None:
    decision = recommend(made_summary(made_standing("shared", 0.7)))
    assert decision.candidate == "shared" and decision.is_decided and decision.more is None
    assert decision.lines == ("Use shared (20.00 M parameters): no other candidate may be chosen.",)


def test_nothing_to_recommend() -> None:
    with pytest.raises(UsageError, match="no trial is finished"):
        recommend(made_summary())


# ------------------------------------------------------------------ what cheap means


def priced(name: str, score: float = 0.7, **costs: float | None) -> CandidateResult:
    own = {"flops_per_step": own_flops(name)} | USUAL | costs
    return made_standing(name, score, stderr=0.0005, costs=made_costs(**own))


@pytest.mark.parametrize("cheapest", CHEAPEST)
def test_each_cost_decides_where_it_is_asked_for(cheapest: str) -> None:
    """One candidate is much cheaper in this cost, the other half as cheap in all others."""
    others = {field: USUAL[field] / 2 for key, field in FIELDS.items() if key != cheapest}
    own = {FIELDS[cheapest]: USUAL[FIELDS[cheapest]] / 10}
    decision = recommend(
        made_summary(priced("shared", **others), priced("b", **own)), cheapest=cheapest
    )
    assert decision.candidate == "b" and decision.cheapest == cheapest
    measure, form, _ = CHEAPEST[cheapest]
    chosen = made_summary(priced("shared", **others), priced("b", **own))["b"]
    assert decision.odds[0].cost == form(measure(chosen) or 0)


@pytest.mark.parametrize("cheapest", CHEAPEST)
def test_a_difference_within_the_noise_is_none_and_the_next_cost_decides(cheapest: str) -> None:
    equal = CHEAPEST[cheapest][2]
    following = "latency_seconds" if cheapest == "parameters" else "parameters"
    for factor, chosen in ((1 - 0.5 * equal, "shared"), (1 - 2 * equal, "b")):
        own = {FIELDS[cheapest]: USUAL[FIELDS[cheapest]] * factor}
        other = {following: USUAL[following] / 2}
        summary = made_summary(priced("shared", **other), priced("b", **own))
        assert recommend(summary, cheapest=cheapest).candidate == chosen


@pytest.mark.parametrize(("noise", "chosen"), [(0.02, "b"), (0.5, "shared")])
def test_times_of_a_busy_machine_do_not_decide(noise: float, chosen: str) -> None:
    """Half the latency counts, unless the times of the baseline itself scatter as much."""
    slow = priced("shared", latency_seconds=0.014, noise=noise)
    summary = made_summary(slow, priced("b", noise=noise, peak_memory_bytes=2e9))
    assert recommend(summary).candidate == chosen


def test_a_cost_that_was_not_measured_is_not_cheap() -> None:
    unknown = priced("shared", latency_seconds=None, parameters=1e6)
    decision = recommend(made_summary(unknown, priced("b")), cheapest="latency")
    assert decision.candidate == "b" and decision.odds[1].cost == "not measured"
    nobody = made_summary(unknown, priced("b", latency_seconds=None))
    decision = recommend(nobody, cheapest="latency")
    assert decision.candidate == "shared" and "(not measured)" in decision.lines[0]


def test_a_score_below_zero_has_no_score_by_time_and_memory() -> None:
    summary = made_summary(priced("shared", 0.05), priced("odd", -0.05, weight_bytes=1e3))
    decision = recommend(summary, worth=1.0, cheapest="tm")
    assert decision.candidate == "shared" and decision.odds[1].cost == "TM 0.00"


def test_the_options_of_the_command_are_those_of_the_rule() -> None:
    options = {option.name: option for option in command.params}
    assert (options["worth"].default, options["sure"].default) == (WORTH, SURE)
    assert options["cheapest"].default == "parameters"
    assert list(options["cheapest"].type.choices) == list(CHEAPEST)


# ------------------------------------------------------------------ limits


def test_limits_exclude_and_say_by_how_much() -> None:
    summary = made_summary(
        made_standing("large", 0.80, stderr=0.001, cost=(60, 30, 90)),
        made_standing("slow", 0.75, stderr=0.001, cost=(20, 50, 90)),
        made_standing("shared", 0.70, stderr=0.001, cost=(20, 10, 90)),
    )
    decision = recommend(summary, max_params=40e6, max_latency=0.02)
    assert decision.candidate == "shared" and decision.best_set == ("shared",)
    assert "parameters 60.00 M, 50% above the limit of 40.00 M" in decision.excluded["large"]
    assert "latency 50.0 ms, 150% above the limit of 20.0 ms" in decision.excluded["slow"]
    assert any(line.startswith("Excluded: large: parameters 60") for line in decision.lines)
    assert recommend(summary, max_latency=0.03).candidate == "large"
    assert {point.name for point in decision.front} == {"large", "slow", "shared"}


def test_the_best_is_the_best_within_the_limits() -> None:
    """What is too large is no reason to call the rest far from the best."""
    summary = made_summary(sharp("large", 0.80, 90), sharp("b", 0.705, 30), sharp("shared", 0.70))
    decision = recommend(summary, max_params=40e6)
    assert decision.candidate == "shared" and decision.is_decided
    assert set(near(decision)) == {"b", "shared"}


def test_limits_that_nothing_meets_say_by_how_much() -> None:
    summary = made_summary(
        made_standing("large", 0.80, cost=(60, 5, 90)),
        made_standing("shared", 0.7, cost=(9, 20, 90)),
    )
    decision = recommend(summary, max_params=10e6, max_latency=0.01, worth=0.02)
    assert decision.candidate is None and decision.trial is None and decision.worth == 0.02
    assert decision.lines[0] == "No candidate meets the limits."
    assert decision.lines[2].startswith("Excluded: shared: latency 20.0 ms, 100% above")
    assert len(decision.excluded) == 2


def test_a_cost_that_was_not_measured_is_not_within_a_limit() -> None:
    summary = made_summary(made_standing("shared", 0.7, cost=(20, None, 60)))
    decision = recommend(summary, max_latency=1.0)
    assert decision.candidate is None and "not measured" in decision.excluded["shared"]


def test_other_limits() -> None:
    summary = made_summary(made_standing("shared", 0.7, cost=(20, 10, 600)))
    assert recommend(summary, max_train_time=60).candidate is None
    assert recommend(summary, max_train_time=600, max_memory=1e9).candidate == "shared"
    assert "10% above the limit of 909" in recommend(summary, max_memory=909.1e6).lines[1]


# ------------------------------------------------------------------ seeds


def test_fewer_seeds_are_less_sure() -> None:
    """One run of 0.72 is not taken at its word; three of them are."""
    other = noisy("shared", 0.70, 20)
    once = recommend(made_summary(noisy("b", 0.72, 10, seeds=1), other, noisy("c", 0.69)))
    thrice = recommend(made_summary(noisy("b", 0.72, 10), other, noisy("c", 0.69)))
    assert near(once)["b"] < near(thrice)["b"] and near(once)["shared"] > near(thrice)["shared"]
    assert not once.excluded and not any("One seed" in line for line in once.lines)


def test_one_seed_does_not_decide_between_close_plans() -> None:
    """Runs scatter though one seed does not show it; a clearly worse plan is still not chosen."""
    good = made_standing("good", 0.80, seeds=(1,), stderr=0.002, cost=(60, 9, 9))
    close = made_standing("close", 0.799, seeds=(1,), stderr=0.002, cost=(40, 9, 9))
    poor = made_standing("poor", 0.50, seeds=(1,), stderr=0.002, cost=(1, 1, 1))
    decision = recommend(made_summary(good, close, poor, seeds=(1,)))
    assert decision.candidate == "good" and set(decision.best_set) == {"good", "close", "poor"}
    odds = {odd.name: odd.within for odd in decision.odds}
    assert not decision.is_decided and odds["close"] > 0.6 and odds["poor"] == 0
    assert any("assume a standard deviation of 0.01" in line for line in decision.lines)
    assert not any("95 % confidence" in line for line in decision.lines)


def undecided() -> Results:
    return made_summary(
        noisy("shared", 0.70), noisy("b, rate=0.1", 0.705, 40), noisy("poor", 0.5), folder="my dir"
    )


def test_more_seeds_that_would_decide_as_a_command() -> None:
    decision = recommend(undecided(), worth=0.002)
    assert not decision.is_decided and decision.more is not None
    more = decision.more
    assert more.candidates[:2] == ("b, rate=0.1", "shared") and more.seeds >= 1
    assert more.seconds == pytest.approx(12.0 * more.seeds * len(more.candidates))
    (line,) = (line for line in decision.lines if "would probably settle it" in line)
    assert line.startswith(f"{more.seeds} more seed")
    words = shlex.split(line.split("`")[1])
    named = [word for name in more.candidates for word in ("--only", name)]
    options = ["--out", "my dir", "--more-seeds", str(more.seeds)]
    assert words == ["mops", "survey", *options, *named]


def test_more_seeds_are_not_asked_for_in_vain() -> None:
    assert recommend(undecided(), worth=0.05).more is None  # decided
    rows = [
        made_standing(name, score, stderr=0.03) for name, score in (("shared", 0.7), ("b", 0.71))
    ]
    assert recommend(made_summary(*rows)).more is None  # the noise of rows stays
    single = [replace(one, trials=one.trials[:1]) for one in rows]
    assert recommend(made_summary(*single)).more is None  # unknown noise of runs
    many = [noisy(f"p{n}", 0.70 + 0.0005 * n, spread=0.03) for n in range(12)]
    assert recommend(made_summary(*many), worth=0.001).more is None  # others may be better


def test_the_model_is_that_of_the_best_validation_score() -> None:
    chosen = {1: -0.5, 2: 0.0, 3: -0.1}
    trials = tuple(made_trial(n, id=f"shared-{n}", best_score=score) for n, score in chosen.items())
    assert recommend(made_summary(made_standing("shared", 0.7, trials=trials))).trial == "shared-2"


# ------------------------------------------------------------------ what else is said


def test_the_difference_from_the_baseline_and_what_sharing_costs_a_task() -> None:
    shared = made_standing("shared", 0.7, stderr=0.001, scores={"a": 0.65, "b": 0.75})
    decision = recommend(made_summary(shared, sharp("separate", 0.70, 60), sharp("c", 0.6)))
    assert decision.candidate == "shared"
    (line,) = (line for line in decision.lines if "loses" in line)
    assert line.startswith("a loses against a model of its own (separate): -0.050")
    best = recommend(made_summary(sharp("shared", 0.70), sharp("b", 0.75)))
    assert any(
        line.startswith("Against the baseline shared: overall +0.050") for line in best.lines
    )


def test_tasks_of_its_own_are_not_compared() -> None:
    alone = made_standing("alone", 0.99, tasks=("a",), cost=(1, 1, 1))
    decision = recommend(made_summary(made_standing("shared", 0.7), alone))
    assert decision.candidate == "shared" and "learnt a and not" in decision.excluded["alone"]


# ------------------------------------------------------------------ the front


def front_names(points: dict[str, tuple[float, ...]]) -> list[str]:
    """Of candidates given as score, parameters, latency, training time."""
    made = [made_standing(name, score, cost=tuple(cost)) for name, (score, *cost) in points.items()]
    return [point.name for point in pareto_front(made)]


def test_front_by_its_definition() -> None:
    """All points of a grid: the front is the corner that is best in everything."""
    grid = product((1, 2), (3, 4), (5, 6))
    assert front_names({f"{s}{p}{t}": (s, p, t, 1.0) for s, p, t in grid}) == ["235"]


def test_front_keeps_what_is_best_in_something() -> None:
    points = {
        "score": (0.9, 60, 30, 90),
        "small": (0.5, 10, 30, 90),
        "quick": (0.5, 60, 5, 90),
        "taught": (0.5, 60, 30, 9),
        "beaten": (0.5, 60, 30, 90),
        "unmeasured": (0.5, 10, None, 90),
    }
    assert set(front_names(points)) == {"score", "small", "quick", "taught"}
    assert len(front_names({"one": (0.5, 1, 1, 1), "two": (0.5, 1, 1, 1)})) == 2


def test_noise_of_times_separates_nobody_on_the_front() -> None:
    """Equal candidates stay both; with another score the better one beats what is as quick."""
    assert len(front_names({"one": (0.5, 1, 10, 100), "two": (0.5, 1, 9.6, 95)})) == 2
    assert front_names({"one": (0.51, 1, 10, 100), "two": (0.5, 1, 9.6, 95)}) == ["one"]
    assert len(front_names({"one": (0.51, 1, 10, 100), "two": (0.5, 1, 5, 100)})) == 2
    busy = [
        priced(name, score, train_seconds=seconds, noise=0.5)
        for name, score, seconds in (("one", 0.71, 60), ("two", 0.7, 45))
    ]
    assert [point.name for point in pareto_front(busy)] == ["one"]


@pytest.mark.parametrize("cheapest", ["train_time", "latency", "tm"])
def test_equal_work_is_not_separated_by_its_times(cheapest: str) -> None:
    """Times of two plans with equal FLOPs and equally many trained weights, far apart by chance.

    The front, the choice and its costs see them as one; what was measured is still shown.
    """
    times = {"latency_seconds": 0.02, "train_seconds": 120.0}
    slow = priced("shared", 0.7, flops_per_step=1e10, parameters=19e6, **times)
    quick = priced("twin", 0.7, flops_per_step=1e10)
    summary = made_summary(slow, quick)
    assert len(pareto_front([slow, priced("twin", 0.7, flops_per_step=1e10, parameters=19e6)])) == 2
    decision = recommend(summary, cheapest=cheapest)
    assert decision.candidate == "shared", "the next cost decides: parameters"
    assert {p.name: p.costs["train_seconds"] for p in decision.front} == {"shared": 120.0}
    other = replace(quick, settings={"plan": "twin", "training.gradients": "pcgrad"})
    assert recommend(made_summary(slow, other), cheapest=cheapest).candidate == "twin"
    trials = tuple(replace(trial, digest="same") for trial in slow.trials)
    same = (replace(one, trials=trials) for one in (slow, other))
    assert recommend(made_summary(*same), cheapest=cheapest).candidate == "shared"


# ------------------------------------------------------------------ words of the command


@pytest.mark.parametrize(
    ("text", "parse", "value"),
    [
        ("40M", NUMBER, 40e6), ("1.5b", NUMBER, 1.5e9), ("12000", NUMBER, 12000),
        ("20ms", TIME, 0.02), ("15m", TIME, 900), ("1.5 h", TIME, 5400),
        ("2GB", SIZE, 2e9), ("512MiB", SIZE, 2**29),
    ],
)  # fmt: skip
def test_amounts(text: str, parse: Any, value: float) -> None:
    assert parse(None, click.Option(["--x"]), text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "parse"),
    [
        ("20", TIME),
        ("forty", NUMBER),
        ("-3M", NUMBER),
        ("0M", NUMBER),
        ("20ms", NUMBER),
        ("", SIZE),
    ],
)
def test_amounts_that_make_no_sense(text: str, parse: Any) -> None:
    with pytest.raises(UsageError, match=r"--x .*write a number above 0 and its unit"):
        parse(None, click.Option(["--x"]), text)


def test_weights_as_typed() -> None:
    assert parse_weights("sentiment=2, similarity=1.5") == {"sentiment": 2, "similarity": 1.5}
    for wrong in ("sentiment", "sentiment=two", "a=-1", "a=1,,b=2", "a=nan"):
        with pytest.raises(UsageError, match="write TASK=NUMBER"):
            parse_weights(wrong)


# ------------------------------------------------------------------ soft accuracy


def test_the_soft_score_is_the_mean_probability_of_the_true_class(tmp_path: Path) -> None:
    """It stands beside the overall score, and a decision may be made by it."""
    read_pack(FIXTURES / "survey.mops", tmp_path)
    results = judge_survey(open_survey(tmp_path), tmp_path)
    one = results.candidates[0]
    soft = []
    for trial in one.trials:
        means = [trial.scores["similarity"]]
        for task in ("sentiment", "paraphrase"):
            path = results.run_folder(trial) / "predictions" / f"{task}-report.csv"
            rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
            known = [math.exp(-float(row["loss"])) for row in rows if row["label"]]
            means.append(fmean(known))
            assert trial.scores[f"{task} soft"] == pytest.approx(means[-1])
        soft.append(fmean(means))
    assert one.scores[SOFT].mean == pytest.approx(fmean(soft))
    assert one.scores[SOFT].stderr > 0 and "soft" in difference_table(results).columns
    decision = recommend(results, score=SOFT)
    chances = posterior(results.joint()[SOFT]).within(0.01)
    assert {odd.name: odd.within for odd in decision.odds} == chances
    old = read_results(tmp_path)  # stored before there was such a score
    with pytest.raises(UsageError, match="has no overall_soft"):
        recommend(old, score=SOFT)
