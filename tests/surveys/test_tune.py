"""A search: what is drawn, which trials are stopped, and whether its winner can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executing import ledger_with, trial

from mops.errors import RecipeError, RunError
from mops.evaluate.compare import Difference
from mops.surveys.ledger import STOPPED
from mops.surveys.search_space import (
    Draw,
    budget_in_steps,
    default_space,
    plan_search,
    read_space,
)
from mops.surveys.tune import close, find_warning, look_up, pick_winner, train_trial
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


def test_a_stopped_trial_is_noted_with_its_step(tmp_path: Path) -> None:
    stopped, failed = trial("shared"), trial("separate")
    ledger = ledger_with(tmp_path, stopped, failed)
    close(ledger, stopped.id, {"step": 12, "score": 0.5}, None)
    assert ledger.state(stopped.id) == STOPPED
    assert (look_up(stopped, ledger).step, look_up(stopped, ledger).selection) == (12, 0.5)
    close(ledger, failed.id, {}, RuntimeError("gone"))
    assert "gone" in ledger.failure(failed.id)["reason"]
    with pytest.raises(RunError, match="no trial of the search has finished"):
        pick_winner([stopped, failed], ledger)


def test_a_trial_reports_each_evaluation_once_and_again_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best score so far, after 4 and 8 steps; a finished or stopped trial is not trained."""
    tune = pytest.importorskip("ray.tune", reason="needs pip install 'mops-nlp[ray]'")
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(tune, "report", reports.append)
    one, stopped = trial("shared"), trial("frozen+shared")
    ledger = ledger_with(tmp_path, one, stopped)
    train_trial({"folder": str(tmp_path), "trial": one.id, "best_by": "overall"})
    assert [(line["step"], line["evaluations"]) for line in reports] == [(4, 1), (8, 2)]
    assert reports[1]["score"] == ledger.record(one.id).train_info.best_score
    written = (ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns
    train_trial({"folder": str(tmp_path), "trial": one.id, "best_by": "overall"})
    assert reports[2:] == reports[:2]
    assert (ledger.run_folder(one.id) / "record.json").stat().st_mtime_ns == written
    close(ledger, stopped.id, {"step": 4, "score": 0.5}, None)
    train_trial({"folder": str(tmp_path), "trial": stopped.id, "best_by": "overall"})
    assert ledger.state(stopped.id) == STOPPED and not ledger.run_folder(stopped.id).exists()


# ------------------------------------------------------------------ the winner


def difference(mean: float, *, is_real: bool = False, seeds: int = 3) -> Difference:
    return Difference(mean, 0.01, mean - 0.02, mean + 0.02, 0.5, 0.5, is_real, seeds)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (difference(-0.01), "worse than the default"),
        (difference(0.0), "worse than the default"),
        (difference(-0.3, is_real=True), "worse than the default"),
        (difference(0.01), "not significantly different from the default"),
        (difference(0.5, seeds=1), "one seed does not show"),
        (None, "has not finished"),
    ],
)
def test_a_winner_that_cannot_be_trusted_is_flagged(found: Difference | None, said: str) -> None:
    default, winner = trial("shared").candidate, trial("separate").candidate
    assert said in find_warning(winner, default, found)


def test_a_real_gain_has_no_warning_and_the_default_may_win() -> None:
    default, winner = trial("shared").candidate, trial("separate").candidate
    assert find_warning(winner, default, difference(0.1, is_real=True)) == ""
    assert "keep the default" in find_warning(default, default, None)
