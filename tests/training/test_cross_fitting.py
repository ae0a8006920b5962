"""Every validation row is judged by the state that the other half of them has chosen."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from same_runs import assert_same_model

import mops
from mops.config.recipe import Recipe
from mops.data.dataset import read_dataset
from mops.data.splits import cut_halves
from mops.training.batched import train_many
from mops.training.checkpoint import BEST
from mops.training.prepare import TaskObjective
from mops.training.trainer import Trainer
from running import StopAt, run_cli_with, world

OTHER = {"a": "b", "b": "a"}


@dataclass
class Taste:
    """Which step each chooser likes best, and the weights of all states that were evaluated."""

    steps: Mapping[str, int]
    states: dict[int, dict[str, torch.Tensor]]
    step: int = 0  # that is evaluated now


@pytest.fixture
def taste(monkeypatch: pytest.MonkeyPatch) -> Taste:
    """Evaluations at 2, 4, 6 and 8; each chooser has a step of its own."""
    made = Taste({"all": 4, "a": 2, "b": 6}, {})
    evaluate, judge = TaskObjective.evaluate, Trainer.judge

    def evaluate_by_taste(objective: TaskObjective, network: Any) -> Any:
        weights = {name: weight.clone() for name, weight in network.weights().items()}
        made.states[made.step] = weights
        scores = {chooser: -abs(made.step - best) / 10 for chooser, best in made.steps.items()}
        return evaluate(objective, network)._replace(scores=scores)

    def judge_step(trainer: Trainer, watcher: Any) -> None:
        made.step = trainer.state.step
        judge(trainer, watcher)

    monkeypatch.setattr(TaskObjective, "evaluate", evaluate_by_taste)
    monkeypatch.setattr(Trainer, "judge", judge_step)
    return made


def recipe_of(plan: str) -> Recipe:
    """Rates so high that states answer differently."""
    return world().recipe(
        plan, training__eval_steps=2, training__save_steps=3, training__learning_rate=0.02,
        training__head_learning_rate=0.5,
    )  # fmt: skip


def train_alone(recipe: Recipe, folder: Path, *watching: Any) -> None:
    mops.train(recipe, folder, *watching)


def train_batched(recipe: Recipe, folder: Path, *watching: Any) -> None:
    other = recipe.model_copy(update={"plan": "frozen+shared"})
    train_many([recipe, other], [folder, folder.with_name("beside")], *watching)


WAYS = pytest.mark.parametrize(
    ("train", "plan"),
    [(train_alone, "hybrid:1"), (train_alone, "frozen+late:SI"), (train_batched, "frozen+late:SI")],
    ids=["alone", "frozen", "batched"],
)


def written(run: Path, task: str, split: str) -> list[str]:
    with (run / "predictions" / f"{task}-{split}.csv").open(newline="", encoding="utf-8") as file:
        return [row["prediction"] for row in csv.DictReader(file)]


def answers_of(run: Path, state: Mapping[str, torch.Tensor], texts: Any) -> dict[str, list[str]]:
    """The answers of the bundle with the weights of another state."""
    predictor = mops.load(run / "model")
    for name, weight in predictor.bundle.network.weights().items():
        weight.copy_(state[name])
    return {n: list(a.as_strings()) for n, a in predictor.predict_tasks(texts).items()}


@WAYS
def test_rows_are_answered_by_the_state_that_the_other_half_chose(
    train: Any, plan: str, taste: Taste, tmp_path: Path
) -> None:
    recipe, run = recipe_of(plan), tmp_path / "run"
    train(recipe, run)
    splits = read_dataset(recipe, ("train", "validation")).splits
    rows = {name: parts["validation"].rows for name, parts in splits.items()}
    texts = {name: [row.texts for row in own] for name, own in rows.items()}
    by_chooser = {
        chooser: answers_of(run, taste.states[step], texts) for chooser, step in taste.steps.items()
    }
    assert by_chooser["a"] != by_chooser["b"] != by_chooser["all"] != by_chooser["a"]
    for name, own in rows.items():
        choosers = [OTHER[half] for half in cut_halves(own)]
        expected = [by_chooser[who][name][n] for n, who in enumerate(choosers)]
        assert written(run, name, "report") == expected
        assert written(run, name, "validation") == by_chooser["all"][name]
    record = mops.read_record(run / "record.json")
    assert (record.train_info.best_step, record.train_info.best_score) == (4, 0.0)
    scores = record.scores.tasks["sentiment"]
    assert scores["report"]["rows"] == scores["validation"]["rows"] == 20


@WAYS
def test_a_killed_run_keeps_all_best_states(
    train: Any, plan: str, taste: Taste, tmp_path: Path
) -> None:
    """Saved at 6, killed at 7: all three have chosen, and nothing better follows."""
    whole, run = tmp_path / "whole" / "run", tmp_path / "killed" / "run"
    train(recipe_of(plan), whole)
    with pytest.raises(ZeroDivisionError):
        train(recipe_of(plan), run, StopAt(7))
    kept = {chooser: (run / BEST.format(chooser)).read_bytes() for chooser in taste.steps}
    assert len(set(kept.values())) == 3
    taste.states.clear()
    train(recipe_of(plan), run)
    assert list(taste.states) == [8]
    assert_same_model(run, whole)


def test_one_state_for_all_answers_all_rows(taste: Taste, tmp_path: Path) -> None:
    taste.steps = dict.fromkeys(taste.steps, 4)
    mops.train(recipe_of("shared"), tmp_path / "run")
    for name in ("sentiment", "paraphrase", "similarity"):
        report, own = (
            (tmp_path / "run" / "predictions" / f"{name}-{split}.csv").read_bytes()
            for split in ("report", "validation")
        )
        assert report == own


def test_the_bundle_is_the_state_that_all_rows_chose(
    taste: Taste,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mops.train(recipe_of("shared"), tmp_path / "run")
    weights = mops.load(tmp_path / "run" / "model").bundle.network.weights()
    assert all(torch.equal(weight, taste.states[4][name]) for name, weight in weights.items())
    run_cli = run_cli_with(monkeypatch, capsys)
    code, out, _ = run_cli("eval", str(tmp_path / "run" / "model"), "--verify")
    assert code == 0 and "verified: stored scores reproduced" in out
