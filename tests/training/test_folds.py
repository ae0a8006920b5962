"""Folds: every row is judged once, by a network that did not see it, and the whole is one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mops
from kinds.kind_data import kinds_recipe
from mops.config.recipe import Recipe
from mops.data.dataset import read_dataset
from mops.errors import RecipeError
from mops.evaluate.evaluate import read_columns, read_predictions
from mops.evaluate.metrics import score
from mops.reports.errors import read_texts
from mops.reports.source import TrialFiles
from mops.surveys.results.judge import judge_run
from mops.surveys.results.results import read_results
from mops.training import run as single_run
from running import StopAt, run_cli_with, write_long_encoder

NAMES = ("topic", "moods", "spans", "price", "closeness")
FOLDS = 3


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long_encoder(tmp_path_factory.mktemp("encoder"))


def folds_recipe(folder: Path, encoder: Path, *names: str, **settings: Any) -> Recipe:
    """Without validation files."""
    given = {"training__folds": FOLDS, **settings}
    removed = {f"tasks__{name}__validation": None for name in names}
    return kinds_recipe(folder, encoder, *names, **removed, **given)


@pytest.fixture(scope="module")
def whole(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, mops.Run]:
    folder = tmp_path_factory.mktemp("whole")
    recipe = folds_recipe(folder, encoder, *NAMES)
    return recipe, mops.train(recipe, folder / "run")


def test_every_row_is_judged_once_by_the_fold_that_did_not_see_it(
    whole: tuple[Recipe, mops.Run], tmp_path: Path
) -> None:
    recipe, run = whole
    assert not (run.folder / "state").exists()
    for number in range(1, FOLDS + 1):
        own = mops.train(recipe.in_fold(number), tmp_path / f"fold{number}")
        splits = read_dataset(recipe.in_fold(number)).splits
        for name in NAMES:
            rows = splits[name]["validation"].rows
            assert not {row.where for row in rows} & {r.where for r in splits[name]["train"].rows}
            lines = [int(row.where.rpartition(":")[2]) - 1 for row in rows]
            file = f"predictions/{name}-report.csv"
            joined, alone = (read_columns(place / file) for place in (run.folder, own.folder))
            assert len(joined["id"]) == 60 and joined["id"].tolist() == [
                str(n + 1) for n in range(60)
            ]
            for key in ("id", "prediction", "label"):
                assert joined[key][lines].tolist() == alone[key].tolist()
    for name in NAMES:
        task = read_dataset(recipe).tasks[name]
        rows = read_predictions(run.folder / "predictions" / f"{name}-report.csv", task)
        stored = run.scores.tasks[name]["report"]
        assert stored == {**score(task, rows.targets, rows.values), "stderr": stored["stderr"]}
        assert stored["rows"] == 60 and stored["stderr"] > 0


def test_the_tasks_of_a_row_are_in_one_fold(whole: tuple[Recipe, mops.Run]) -> None:
    """Also of the task that reads one more text."""
    held = []
    for number in range(1, FOLDS + 1):
        splits = read_dataset(whole[0].in_fold(number)).splits
        sides = [{row.where for row in splits[name]["validation"].rows} for name in NAMES]
        assert all(side == sides[0] for side in sides)
        held.append(sides[0])
    assert sorted(map(len, held)) == [20, 20, 20] and len(set().union(*held)) == 60


def test_the_record_is_of_all_folds_and_the_model_of_the_first(
    whole: tuple[Recipe, mops.Run],
) -> None:
    recipe, run = whole
    assert run.record.run_info.recipe["training"]["folds"] == FOLDS
    assert run.record.meta_info.data_notes[0].startswith("3 folds")
    results = judge_run(run.folder)
    assert results.rows == dict.fromkeys(NAMES, 60)
    trial = results.candidates[0].trials[0]
    rows = read_predictions(
        run.folder / "predictions" / "topic-report.csv", read_dataset(recipe).tasks["topic"]
    )
    files = TrialFiles("shared", trial, run.folder, run.record)
    lines = (Path(recipe.tasks["topic"].files()["train"])).read_text().splitlines()
    assert read_texts(files, rows, "report") == [(json.loads(line)["text"],) for line in lines]
    again = mops.train(recipe, run.folder)
    assert again.was_finished and again.scores == run.scores


@pytest.mark.parametrize("step", [5, 13])
def test_a_run_of_folds_resumes(encoder: Path, tmp_path: Path, step: int) -> None:
    """In its first fold and in its second; a pause stops every fold."""
    recipe = folds_recipe(tmp_path, encoder, "topic", training__save_steps=1)
    wanted = mops.train(recipe, tmp_path / "whole")

    class StopLater(StopAt):
        """Counts the steps of all folds."""

        taken = 0

        def step(self, step: int, facts: Any) -> None:
            self.taken += 1
            super().step(self.taken, facts)

    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, tmp_path / "run", watcher=StopLater(step))
    assert mops.train(recipe, tmp_path / "run").scores == wanted.scores
    paused = single_run.train_until(recipe, tmp_path / "race", until=0.5)
    assert isinstance(paused, single_run.Paused) and paused.score is not None
    done = single_run.train_until(recipe, tmp_path / "race")
    assert isinstance(done, single_run.Run) and done.scores == wanted.scores


def test_folds_need_training_rows_of_their_own(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecipeError, match=r"'topic' has a `validation` file.*validation to null"):
        kinds_recipe(tmp_path, encoder, "topic", training__folds=5)
    recipe = folds_recipe(tmp_path, encoder, "topic", training__folds=40)
    with pytest.raises(mops.MopsError, match="cannot be halved"):
        mops.train(recipe, tmp_path / "many")
    monkeypatch.setattr(single_run, "world_size", lambda: 2)
    with pytest.raises(RecipeError, match=r"training\.folds needs a single process"):
        mops.train(recipe, tmp_path / "two")


@pytest.mark.slow
def test_a_survey_has_one_run_for_each_seed(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    config, design = tmp_path / "recipe.yaml", tmp_path / "design.yaml"
    given = folds_recipe(tmp_path, encoder, "topic", training__max_steps=4)
    training = given.training.model_copy(update={"folds": None})
    config.write_text(given.model_copy(update={"training": training}).to_yaml())
    plans = ["shared", "frozen+shared"]
    design.write_text(json.dumps({"name": "folds", "axes": {"plan": plans}, "seeds": [1]}))
    run, out = run_cli_with(monkeypatch, capsys), tmp_path / "survey"
    words = ["survey", str(design), "--config", str(config), "--folds", "2", "--out", str(out)]
    code, _, said = run(*words)
    assert code == 0, said
    results = read_results(out)
    assert not results.missing and results.rows == {"topic": 60}
    for candidate in results.candidates:
        assert len(candidate.trials) == 1 and candidate.overall.seeds == 1
        assert np.isfinite(candidate.overall.stderr) and candidate.overall.stderr > 0
    assert run("recommend", str(out))[0] == 0
