"""A search: what is drawn, which trials go on, and whether its winner can be trusted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from executing import InProcess, RecordingWatcher, ledger_with, trial

from mops.errors import RecipeError, RunError
from mops.evaluate.joint import Difference
from mops.surveys.design import to_survey
from mops.surveys.ledger import FINISHED, PAUSED, Ledger
from mops.surveys.run import train_round
from mops.surveys.tune import (
    RATES_UNTIL,
    Draw,
    budget_in_steps,
    default_space,
    find_warning,
    look_up,
    pick_winner,
    plan_search,
    rate_survey,
    read_space,
    train_rungs,
    with_best_rates,
)
from running import world

# ------------------------------------------------------------------ the space


def test_numbers_are_drawn_uniformly_or_log_uniformly() -> None:
    rng = np.random.default_rng(0)
    even = [Draw("uniform", (0.0, 1.0)).value(rng) for _ in range(2000)]
    logs = np.log10([Draw("log_uniform", (1e-5, 1e-1)).value(rng) for _ in range(2000)])
    assert np.mean(even) == pytest.approx(0.5, abs=0.03)
    assert np.mean(logs) == pytest.approx(-3.0, abs=0.12)
    assert min(logs) >= -5.001 and max(logs) <= -0.999
    chosen = {Draw("choice", ("a", "b", "c")).value(rng) for _ in range(100)}
    assert chosen == {"a", "b", "c"}


def test_the_default_comes_first_and_more_trials_begin_with_the_same() -> None:
    recipe = budget_in_steps(world().recipe("hybrid:1"))
    space = default_space(recipe)
    few, many = (plan_search(recipe, space, n).candidates() for n in (4, 8))
    assert few[0].recipe.plan == "hybrid:1"
    assert few[0].recipe.training == recipe.training
    assert [one.recipe for one in few] == [one.recipe for one in many][:4]
    assert len({one.name for one in many}) == 8


def test_every_draw_lies_in_the_default_space() -> None:
    recipe = budget_in_steps(world().recipe(training__eval_steps=None, training__max_steps=64))
    assert recipe.training.eval_steps == 8
    for one in plan_search(recipe, default_space(recipe), 30).candidates()[1:]:
        training = one.recipe.training
        assert 1e-5 <= training.learning_rate <= 1e-4
        assert all(0.25 <= training.weight(task) <= 4 for task in one.recipe.tasks)
        assert training.max_steps in (32, 64)
        assert training.max_steps // training.eval_steps == 8  # equally many evaluations


def test_epochs_become_steps() -> None:
    """60 rows of the largest task, 4 in a step: 15 steps in each of 2 epochs."""
    recipe = world().recipe(training__max_steps=None, training__num_train_epochs=2)
    assert budget_in_steps(recipe).training.max_steps == 30


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plan: shared", "allowed: a mapping of one of choice, uniform, log_uniform"),
        ("plan: {choise: [a]}", "Did you mean 'choice'"),
        ("plan: {choice: []}", "plan is {'choice': \\[\\]}; allowed"),
        ("training.learning_rate: {log_uniform: [0, 1]}", "above 0"),
        ("training.learning_rate: {uniform: [2, 1]}", "the lowest and the highest"),
        ("training.learning_rate: {uniform: [a, b]}", "the lowest and the highest"),
        ("training.learning_rates: {uniform: [0.1, 0.2]}", "learning_rate"),  # an unknown key
    ],
)
def test_a_wrong_space_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(RecipeError, match=said):
        plan_search(budget_in_steps(world().recipe()), read_space(path), 3)


# ------------------------------------------------------------------ trials


def test_the_better_half_goes_on_and_the_default_always(tmp_path: Path) -> None:
    recipe = budget_in_steps(world().recipe("hybrid:1", training__eval_steps=2))
    space = {"training.head_learning_rate": Draw("log_uniform", (1e-7, 1e-2))}
    survey = plan_search(recipe, space, 8)
    ledger = Ledger(tmp_path)
    train_rungs(survey, InProcess(ledger, RecordingWatcher()))
    tried = [look_up(one, ledger) for one in survey.trials()]
    assert (tried[0].state, tried[0].reached) == (FINISHED, 1.0)
    assert sorted(one.reached for one in tried[1:]).count(0.25) >= 3
    assert {one.state for one in tried} == {FINISHED, PAUSED}
    winner = pick_winner(survey.trials(), ledger)
    best = max((one for one in tried if one.state == FINISHED), key=lambda one: one.score or 0)
    assert winner.name == best.name
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/record.json")}
    train_rungs(survey, InProcess(ledger, RecordingWatcher()))  # nothing is left to do
    assert written == {p: p.stat().st_mtime_ns for p in tmp_path.glob("trials/*/record.json")}


def test_a_search_without_a_finished_trial(tmp_path: Path) -> None:
    one = trial("shared")
    ledger = ledger_with(tmp_path, one)
    ledger.fail(one.id, "gone")
    with pytest.raises(RunError, match=r"no trial of the search has finished.*gone"):
        pick_winner([one], ledger)


# ------------------------------------------------------------------ the winner


def difference(mean: float, *, is_real: bool = False, seeds: int = 3) -> Difference:
    return Difference(mean, 0.01, mean - 0.02, mean + 0.02, 0.5, is_real, seeds)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (difference(-0.01), "worse than the default"),
        (difference(0.0), "worse than the default"),
        (difference(-0.3, is_real=True), "worse than the default"),
        (difference(0.01), "not significantly better than the default"),
        (difference(0.5, seeds=1), "not significantly better than the default"),
        (None, "could not be compared"),
    ],
)
def test_a_winner_that_cannot_be_trusted_is_flagged(found: Difference | None, said: str) -> None:
    default, winner = trial("shared").candidate, trial("separate").candidate
    assert said in find_warning(winner.name, default.name, found)


def test_a_real_gain_has_no_warning_and_the_default_may_win() -> None:
    default, winner = trial("shared").candidate, trial("separate").candidate
    names = winner.name, default.name
    assert find_warning(*names, difference(0.1, is_real=True)) == ""
    assert "keep the default" in find_warning(default.name, default.name, None)


# ------------------------------------------------------------------ learning rates


def test_every_family_gets_the_learning_rate_that_was_best_for_it(tmp_path: Path) -> None:
    plans = ["shared", "separate", "frozen+shared", "frozen+late:SI", "late:SI", "lora:2"]
    base = world().recipe(training__eval_steps=2, training__learning_rate=1e-3)
    survey = to_survey({"name": "mine", "axes": {"plan": plans}, "seeds": 2}, base)
    rates = rate_survey(survey)
    assert len(rates.candidates()) == 5 * 3 and rates.seeds == (3,)
    ledger = Ledger(tmp_path)
    executor = InProcess(ledger, RecordingWatcher())
    train_round(rates.trials(), executor, RATES_UNTIL)
    assert {ledger.state(one.id) for one in rates.trials()} == {PAUSED}
    tuned = with_best_rates(survey, rates, ledger)
    assert [c.name for c in tuned.candidates()] == plans
    assert tuned.seeds == survey.seeds and tuned.baseline == "shared"
    by_name = {c.name: c.recipe.training for c in tuned.candidates()}
    tried = {float(f"{1e-3 * factor:.3g}") for factor in (1 / 3, 1, 3)}
    assert by_name["shared"].learning_rate == by_name["separate"].learning_rate
    assert {by_name[name].learning_rate for name in ("shared", "late:SI", "lora:2")} <= tried
    assert by_name["frozen+shared"].learning_rate == 1e-3
    own = base.training.head_learning_rate
    assert by_name["frozen+shared"].head_learning_rate / own in (
        pytest.approx(1 / 3, rel=0.01), pytest.approx(1), pytest.approx(3)
    )  # fmt: skip
