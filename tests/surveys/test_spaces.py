"""What a search may draw, and what it draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mops.errors import RecipeError
from mops.surveys.tuning.spaces import Draw, budgeted, default_space, plan_search, read_space
from running import world


def test_numbers_are_drawn_evenly_or_evenly_in_their_logarithm() -> None:
    chance = np.random.default_rng(0)
    even = [Draw("uniform", (0.0, 1.0)).value(chance) for _ in range(2000)]
    logs = np.log10([Draw("log_uniform", (1e-5, 1e-1)).value(chance) for _ in range(2000)])
    assert np.mean(even) == pytest.approx(0.5, abs=0.03)
    assert np.mean(logs) == pytest.approx(-3.0, abs=0.12)
    assert min(logs) >= -5.001 and max(logs) <= -0.999
    chosen = {Draw("choice", ("a", "b", "c")).value(chance) for _ in range(100)}
    assert chosen == {"a", "b", "c"}


def test_the_default_comes_first_and_more_trials_begin_with_the_same() -> None:
    recipe = budgeted(world().recipe("hybrid:1"))
    space = default_space(recipe)
    few, many = (plan_search(recipe, space, n).candidates() for n in (4, 8))
    assert few[0].recipe.plan == "hybrid:1"
    assert few[0].recipe.training == recipe.training
    assert [one.recipe for one in few] == [one.recipe for one in many][:4]
    assert len({one.name for one in many}) == 8


def test_every_draw_lies_in_the_default_space() -> None:
    recipe = budgeted(world().recipe(training__eval_steps=None, training__max_steps=64))
    assert recipe.training.eval_steps == 8
    for one in plan_search(recipe, default_space(recipe), 30).candidates()[1:]:
        training = one.recipe.training
        assert 1e-5 <= training.learning_rate <= 1e-4
        assert all(0.25 <= training.weight(task) <= 4 for task in one.recipe.tasks)
        assert training.max_steps in (32, 64)
        assert training.max_steps // training.eval_steps == 8  # looked at equally often


def test_epochs_become_steps() -> None:
    """60 rows of the largest task, 4 in a step: 15 steps in each of 2 epochs."""
    recipe = world().recipe(training__max_steps=None, training__num_train_epochs=2)
    assert budgeted(recipe).training.max_steps == 30


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plan: shared", "allowed: a mapping of one of choice, uniform, log_uniform"),
        ("plan: {choise: [a]}", "Did you mean 'choice'"),
        ("plan: {choice: []}", "choice has"),
        ("training.learning_rate: {log_uniform: [0, 1]}", "above 0"),
        ("training.learning_rate: {uniform: [2, 1]}", "the lowest and the highest"),
        ("training.learning_rate: {uniform: [a, b]}", "the lowest and the highest"),
    ],
)
def test_a_wrong_space_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(RecipeError, match=said):
        read_space(path)


def test_an_unknown_key_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("training.learning_rates: {uniform: [0.1, 0.2]}", "utf-8")
    recipe = budgeted(world().recipe())
    with pytest.raises(RecipeError, match="learning_rate"):
        plan_search(recipe, read_space(path), 3)
