"""Estimates follow from what is computed; budgets give the steps that fit."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from designs import recipe, survey

from mops.config.training import Training
from mops.data.schedule import plan_steps
from mops.evaluate.cost import training_work
from mops.surveys.budget import (
    LEAST_STEPS,
    SAMPLE,
    Estimator,
    TrialEstimate,
    fit_budget,
    fit_race,
)
from mops.surveys.experiments import named_survey

SPEED = 100.0  # GFLOP/s


@cache
def estimator() -> Estimator:
    return Estimator(gflops=SPEED)


def one(plan: Any, **training: Any) -> TrialEstimate:
    """The estimate of a plan on the sample, 100 steps of 8 rows of three tasks."""
    settings = {"max_steps": 100, "per_task_batch_size": 8, **training}
    found = survey({"plan": [plan]}, recipe=recipe(**settings))
    return estimator().survey(found).candidates[0]


# ------------------------------------------------------------------ what is computed


def test_work_is_counted_by_hand() -> None:
    """A forward and two backward passes over the tokens of the rows that are seen."""
    settings = recipe(max_steps=10, per_task_batch_size=8)
    layout, schedule, family = estimator().lay_out(settings)
    tables, shape = estimator().samples[family], layout.encoder
    expected = 0.0
    for table in tables.values():
        lengths = table.lengths
        weights = 4 * shape.width**2 + 2 * shape.width * shape.inner
        per_sequence = 2.0 * shape.depth * lengths * (weights + 2 * lengths * shape.width)
        expected += 3 * 10 * 8 * per_sequence.sum() / len(table)
    work = training_work(layout, schedule, tables)
    assert work.flops == pytest.approx(expected, rel=1e-3)  # and the heads
    assert work.frozen_flops == 0 and not work.is_frozen
    assert work.updates == 10 * layout.parameters


def test_plans_of_equal_products_differ_by_the_weights_they_move() -> None:
    shared, separate = one("shared"), one("separate")
    assert separate.parameters > 2 * shared.parameters
    assert 1 < separate.seconds / shared.seconds < 1.5


def test_a_frozen_encoder_costs_one_encoding_and_small_steps() -> None:
    shared, frozen = one("shared"), one("frozen+late:SIS")
    assert frozen.seconds < shared.seconds / 10
    assert frozen.encode_seconds > 0 == shared.encode_seconds
    assert one("frozen+late:SIS", max_steps=1000).encode_seconds < 3 * frozen.encode_seconds
    assert frozen.family and not shared.family


def test_a_family_is_encoded_once() -> None:
    plans = ["frozen+late:SIS", "frozen+late:III", "frozen+shared"]
    alone = estimator().survey(survey({"plan": plans[:1]})).encode_seconds
    three = estimator().survey(survey({"plan": plans}, seeds=3))
    assert three.encode_seconds == pytest.approx(alone)
    pairs = survey({"plan": plans, "training.pair": ["cross", "bi"]})
    assert estimator().survey(pairs).encode_seconds > 1.5 * alone


def test_frozen_layers_below_are_computed_once() -> None:
    """Many passes over few rows: two frozen layers of six leave about two thirds of the work."""
    ratio = one("layers:FFSSSS", max_steps=2000).seconds / one("shared", max_steps=2000).seconds
    assert 0.6 < ratio < 0.75


def test_additions_on_a_frozen_encoder_need_one_backward_pass() -> None:
    assert 0.5 < one("frozen+adapters:8").seconds / one("adapters:8").seconds < 0.85


def test_combined_gradients_cost_a_backward_pass_for_each_task() -> None:
    """With three tasks 1 + 3 x 2 passes instead of 1 + 2."""
    pairs = [one("shared", max_steps=1000, gradients=name).seconds for name in ("sum", "pcgrad")]
    assert pairs[1] / pairs[0] == pytest.approx(7 / 3, rel=0.12)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"max_steps": 100, "eval_steps": 50}, 2),
        ({"max_steps": 101, "eval_steps": 50}, 3),
        ({"max_steps": 10}, 1),
        ({"stages": [{"steps": 30}, {"steps": 30}], "eval_steps": 20}, 4),  # 20, 30, 40, 60
    ],
)
def test_evaluations_are_counted(training: dict[str, Any], expected: int) -> None:
    schedule = plan_steps({"a": 1000}, Training(per_task_batch_size=8, **training))
    assert schedule.evaluations == expected


def test_tokens_are_counted_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mops.surveys.budget.SAMPLE", 200)
    assert SAMPLE == 2000
    few = Estimator(gflops=SPEED)
    found = few.survey(survey())
    assert all(len(table) == 200 for tables in few.samples.values() for table in tables.values())
    assert found.seconds == pytest.approx(estimator().survey(survey()).seconds, rel=0.05)


# ------------------------------------------------------------------ budgets


@pytest.mark.parametrize(("name", "minutes"), [("everything", 15), ("stages", 30), ("pals", 90)])
def test_a_budget_is_met(name: str, minutes: int) -> None:
    fitted = fit_budget(named_survey(name, recipe()), 60 * minutes, estimator=estimator())
    assert not fitted.warning
    assert fitted.seconds == pytest.approx(60 * minutes, rel=0.06)
    assert {one.steps for one in fitted.candidates} == {fitted.survey.steps}
    assert (fitted.survey.steps or 0) > LEAST_STEPS


def test_evaluations_do_not_eat_the_budget() -> None:
    """Twenty of them, as the report has, would leave hardly a step of a small budget."""
    found = named_survey("trunks", recipe())
    fitted = fit_budget(found, 800, estimator=estimator())
    assert fitted.survey.evaluations in (2, 5)
    assert fitted.evaluating <= 0.25
    assert fitted.seconds == pytest.approx(800, rel=0.06)
    plenty = fit_budget(found, 40000, estimator=estimator())
    assert plenty.survey.evaluations is None


def test_a_budget_that_is_too_small_says_so() -> None:
    fitted = fit_budget(named_survey("everything", recipe()), 20, estimator=estimator())
    assert fitted.survey.steps == LEAST_STEPS
    assert fitted.warning.startswith(
        "a budget of 20 s is too small for 20 trials: 20 steps each take"
    )


# ------------------------------------------------------------------ races


def test_a_race_has_an_evaluation_at_each_of_its_rungs() -> None:
    """Whatever the recipe says, and one training of each candidate fits into most of the time."""
    base = survey(recipe=recipe(max_steps=100, eval_steps=50, per_task_batch_size=8))
    fitted = fit_race(base, 600, estimator=estimator())
    steps = fitted.survey.steps
    assert fitted.survey.budget == 600 and fitted.seconds <= 0.7 * 600 and steps
    for candidate in fitted.survey.candidates():
        training = candidate.recipe.training
        assert training.max_steps == steps and training.eval_steps == -(-steps // 4)
    assert fitted.survey.trials() == ()  # before its first round


def test_a_race_with_much_time_takes_more_seeds_and_not_endless_trainings() -> None:
    """The largest task of the sample has 825 rows."""
    base = survey(recipe=recipe(max_steps=100, per_task_batch_size=8))
    assert fit_race(base, 10**6, estimator=estimator()).survey.steps == 4 * 825 / 8 + 0.5


def test_a_race_keeps_the_steps_that_were_asked_for() -> None:
    base = survey(recipe=recipe(max_steps=100, per_task_batch_size=8)).changed(steps=777)
    fitted = fit_race(base, 600, estimator=estimator())
    assert (fitted.survey.steps, fitted.survey.evaluations, fitted.survey.budget) == (777, 4, 600)
