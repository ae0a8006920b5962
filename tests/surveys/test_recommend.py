"""The decision on records made by hand, where the right answer is known."""

from __future__ import annotations

from itertools import product

import pytest

from mops.cli.recommend import parse_weights
from mops.errors import UsageError
from mops.surveys.results.recommend import pareto_front, recommend
from mops.units import BYTES, COUNTS, SECONDS, parse_amount
from surveying import made_difference, made_standing, made_summary, made_trial


def test_the_significantly_best() -> None:
    """Alone in the first tie: chosen though it costs more."""
    summary = made_summary(
        made_standing("hybrid:3", 0.75, tie=1, cost=(40, 20, 90)),
        made_standing("shared", 0.70, tie=2),
        made_standing("separate", 0.68, tie=2, cost=(60, 30, 120)),
    )
    decision = recommend(summary)
    assert decision.candidate == "hybrid:3" and decision.is_shared and not decision.tied
    assert "0.750 ± 0.010 over 3 seeds" in decision.reason
    assert "shared with 0.700" in decision.reason and "significantly better" in decision.reason


def test_a_dominated_plan_is_never_chosen() -> None:
    """Same tie, worse in every cost and in the mean."""
    summary = made_summary(
        made_standing("dominated", 0.69, cost=(50, 20, 90)),
        made_standing("shared", 0.70, cost=(20, 10, 60)),
    )
    decision = recommend(summary)
    assert decision.candidate == "shared" and decision.tied == ("dominated",)
    assert [point.name for point in decision.front] == ["shared"]


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        # parameters first, whatever the rest
        ({"a": (30, 1, 1), "b": (20, 9, 9), "c": (40, 1, 1)}, "the fewest parameters (20.00 M)"),
        # equal parameters: latency
        ({"a": (20, 9, 1), "b": (20, 5, 9), "c": (40, 1, 1)}, "then the lowest latency (5.0 ms)"),
        # hardly more parameters, but its own are named
        ({"a": (20, 9, 1), "b": (20.1, 5, 9), "c": (40, 1, 1)}, "nearly the fewest parameters"),
        # equal parameters, latency within noise: training time
        ({"a": (20, 10, 60), "b": (20, 10.5, 6), "c": (20, 30, 1)}, "shortest training (6.0 s)"),
        # not measured is not cheap
        ({"a": (20, None, 60), "b": (20, 9, 60), "c": (40, 1, 1)}, ""),
    ],
)  # fmt: skip
def test_inside_a_tie_the_cheapest(costs: dict[str, tuple[float, ...]], words: str) -> None:
    means = {"a": 0.72, "b": 0.70, "c": 0.71}
    decision = recommend(
        made_summary(*(made_standing(name, means[name], cost=of) for name, of in costs.items()))
    )
    assert decision.candidate == "b" and set(decision.tied) == {"a", "c"}
    assert (
        words in decision.reason
        and "not significantly different from a with 0.720" in decision.reason
    )


def test_the_tie_of_the_best_is_not_that_of_the_cheapest() -> None:
    summary = made_summary(
        made_standing("good", 0.75, tie=1, cost=(60, 30, 90)),
        made_standing("cheap", 0.60, tie=2, cost=(1, 1, 1)),
    )
    assert recommend(summary).candidate == "good"


def test_do_not_share() -> None:
    """A model per task is better beyond doubt; in a tie it is only chosen if nothing is cheaper."""
    apart = made_standing("separate", 0.80, tie=1, cost=(60, 30, 90))
    decision = recommend(made_summary(apart, made_standing("shared", 0.70, tie=2)))
    assert decision.candidate == "separate" and not decision.is_shared
    assert decision.reason.startswith("do not share: use separate")
    tied = recommend(made_summary(apart, made_standing("shared", 0.79, tie=1)))
    assert tied.candidate == "shared" and tied.is_shared and tied.tied == ("separate",)


def test_limits_exclude_and_say_by_how_much() -> None:
    summary = made_summary(
        made_standing("large", 0.80, tie=1, cost=(60, 30, 90)),
        made_standing("slow", 0.75, tie=2, cost=(20, 50, 90)),
        made_standing("shared", 0.70, tie=3, cost=(20, 10, 90)),
    )
    decision = recommend(summary, max_params=40e6, max_latency=0.02)
    assert decision.candidate == "shared"
    assert "parameters 60.00 M, 50% above the limit of 40.00 M" in decision.excluded["large"]
    assert "latency 50.0 ms, 150% above the limit of 20.0 ms" in decision.excluded["slow"]
    assert recommend(summary, max_latency=0.03).candidate == "large"
    assert {point.name for point in decision.front} == {"large", "slow", "shared"}


def test_limits_can_make_a_new_tie() -> None:
    """The leader of the second tie is too large; the rest of it does not differ from the third."""
    best = made_standing("best", 0.80, tie=1, apart=("leader", "middle", "last"), cost=(90, 9, 9))
    leader = made_standing("leader", 0.75, tie=2, apart=("best", "last"), cost=(90, 9, 9))
    middle = made_standing("middle", 0.72, tie=2, apart=("best",), cost=(30, 9, 9))
    last = made_standing("last", 0.70, tie=3, apart=("best", "leader"), cost=(20, 9, 9))
    decision = recommend(made_summary(best, leader, middle, last), max_params=40e6)
    assert decision.candidate == "last" and decision.tied == ("middle",)
    assert [decision.scores[name].tie for name in ("best", "leader", "middle", "last")] == [
        1,
        2,
        2,
        3,
    ]


def test_limits_that_nothing_meets_name_the_nearest() -> None:
    """20 ms against 10 ms is nearer than 60 M against 10 M."""
    summary = made_summary(
        made_standing("large", 0.80, cost=(60, 5, 90)),
        made_standing("shared", 0.7, cost=(9, 20, 90)),
    )
    decision = recommend(summary, max_params=10e6, max_latency=0.01)
    assert decision.candidate is None and decision.trial is None
    assert "the nearest is shared" in decision.reason and "100% above" in decision.reason
    assert len(decision.excluded) == 2


def test_a_cost_that_was_not_measured_is_not_within_a_limit() -> None:
    summary = made_summary(made_standing("shared", 0.7, cost=(20, None, 60)))
    decision = recommend(summary, max_latency=1.0)
    assert decision.candidate is None and "not measured" in decision.excluded["shared"]


def test_other_limits() -> None:
    summary = made_summary(made_standing("shared", 0.7, cost=(20, 10, 600)))
    assert recommend(summary, max_train_time=60).candidate is None
    assert recommend(summary, max_train_time=600, max_memory=1e9).candidate == "shared"
    assert "10% above the limit of 909" in recommend(summary, max_memory=909.1e6).reason


def test_fewer_seeds_than_others_are_not_chosen() -> None:
    summary = made_summary(
        made_standing("lucky", 0.90, cost=(1, 1, 1), seeds=(1,)), made_standing("shared", 0.7)
    )
    decision = recommend(summary)
    assert decision.candidate == "shared"
    assert decision.excluded["lucky"] == "only 1 of 3 seeds are finished"


def test_one_seed_decides_between_trained_models() -> None:
    """The survey calls all plans tied; a model that is clearly worse is not chosen for its size."""
    good = made_standing("good", 0.80, seeds=(1,), cost=(60, 9, 9))
    close = made_standing("close", 0.79, seeds=(1,), cost=(40, 9, 9))
    poor = made_standing("poor", 0.50, seeds=(1,), cost=(1, 1, 1))
    decision = recommend(made_summary(good, close, poor, seeds=(1,)))
    assert decision.candidate == "close" and decision.tied == ("good",)
    assert any("one seed" in note for note in decision.notes)


def test_the_model_is_that_of_the_best_seed_on_selection() -> None:
    chosen = {1: 0.5, 2: 0.7, 3: 0.6}
    trials = tuple(made_trial(n, id=f"shared-{n}", selection=of) for n, of in chosen.items())
    assert recommend(made_summary(made_standing("shared", 0.7, trials=trials))).trial == "shared-2"


def test_what_sharing_costs_a_task_is_said() -> None:
    gains = {"a": made_difference(-0.05, is_significant=True), "b": made_difference(-0.01)}
    notes = recommend(made_summary(made_standing("shared", 0.7, gains=gains))).notes
    (note,) = (note for note in notes if "loses" in note)
    assert note.startswith("a loses against a model of its own (separate): -0.050")


def test_tasks_of_its_own_are_not_compared() -> None:
    alone = made_standing("alone", 0.99, tasks=("a",), cost=(1, 1, 1), reference="alone")
    decision = recommend(made_summary(made_standing("shared", 0.7), alone))
    assert decision.candidate == "shared" and "learnt a and not" in decision.excluded["alone"]


def test_nothing_to_recommend() -> None:
    with pytest.raises(UsageError, match="no trial is finished"):
        recommend(made_summary())


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


# ------------------------------------------------------------------ words of the command


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("40M", COUNTS, 40e6), ("1.5b", COUNTS, 1.5e9), ("12000", COUNTS, 12000),
        ("20ms", SECONDS, 0.02), ("15m", SECONDS, 900), ("1.5 h", SECONDS, 5400),
        ("2GB", BYTES, 2e9), ("512MiB", BYTES, 2**29),
    ],
)  # fmt: skip
def test_amounts(text: str, units: dict[str, float], value: float) -> None:
    assert parse_amount(text, units, "--x") == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("20", SECONDS),
        ("forty", COUNTS),
        ("-3M", COUNTS),
        ("0M", COUNTS),
        ("20ms", COUNTS),
        ("", BYTES),
    ],
)
def test_amounts_that_make_no_sense(text: str, units: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"--x .*write a number above 0 and its unit"):
        parse_amount(text, units, "--x")


def test_weights_as_typed() -> None:
    assert parse_weights("sentiment=2, similarity=1.5") == {"sentiment": 2, "similarity": 1.5}
    for wrong in ("sentiment", "sentiment=two", "a=-1", "a=1,,b=2", "a=nan"):
        with pytest.raises(UsageError, match="write TASK=NUMBER"):
            parse_weights(wrong)
