"""Trials are named by their content, grouped into jobs, and held by one process at a time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from designs import survey
from executing import ledger_with, trial

from mops.config.training import Training
from mops.errors import RecipeError, UsageError
from mops.surveys.executors import plan_jobs
from mops.surveys.ledger import RUNNING, STARTED, WAITING, Ledger
from mops.surveys.run import begin, open_survey
from running import world


def test_a_trial_has_its_own_seed() -> None:
    assert trial(seed=5).recipe.training.seed == 5
    assert trial(seed=5).name == "shared, seed 5"


def test_the_same_content_has_the_same_id(tmp_path: Path) -> None:
    """The id depends on the content of files, not on their place, threads or save interval."""
    copy = shutil.copytree(world().data, tmp_path / "copy")
    same = trial(training__threads=2, training__save_steps=7)
    assert trial().id == trial(data=copy).id == same.id
    file = copy / "sts-train.csv"
    file.write_text(file.read_text("utf-8") + "\n", "utf-8")
    other = shutil.copytree(copy, tmp_path / "other")  # digests are cached by path
    ids = {trial().id, trial(seed=2).id, trial(training__learning_rate=1e-4).id}
    assert len(ids) == 3 and trial(data=other).id not in ids


def test_keys_at_their_defaults_are_not_in_the_id() -> None:
    """A later version with a new key continues this survey."""
    content = trial(seed=2).recipe.identity("max_steps")
    assert "seed" in content["training"] and "max_steps" not in content["training"]
    defaults = Training().model_dump(mode="json")
    assert all(value != defaults[key] for key, value in content["training"].items())


def test_one_process_at_a_time_holds_a_trial(tmp_path: Path) -> None:
    one = trial()
    ledger = ledger_with(tmp_path, one)
    assert ledger.state(one.id) == WAITING
    ledger.run_folder(one.id).mkdir(parents=True)
    assert ledger.state(one.id) == STARTED
    with ledger.claim([one.id]) as mine:
        assert mine == [one.id]
        assert Ledger(tmp_path).state(one.id) == RUNNING
        with Ledger(tmp_path).claim([one.id]) as theirs:
            assert theirs == []
    assert ledger.state(one.id) == STARTED


# ------------------------------------------------------------------ the folder


def test_a_survey_killed_in_its_first_write_starts_again(tmp_path: Path) -> None:
    (tmp_path / ".survey.yaml.4711.part").write_text("name: mi", "utf-8")
    design = survey()
    begin(design, tmp_path)
    assert open_survey(tmp_path) == design


def test_a_folder_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine", "utf-8")
    with pytest.raises(RecipeError, match="holds no survey"):
        begin(survey(), tmp_path)
    with pytest.raises(RecipeError, match="holds no survey"):
        open_survey(tmp_path)


# ------------------------------------------------------------------ jobs


@pytest.mark.parametrize(
    "names", [{"e4" * 200: "x, seed 1"}, {"../..": "x, seed 1"}, {"a\0b": "x"}]
)
def test_names_of_trials_that_name_no_folder_are_refused(
    tmp_path: Path, names: dict[str, object]
) -> None:
    ledger = Ledger(tmp_path)
    (tmp_path / "names.json").write_text(json.dumps(names))
    with pytest.raises(UsageError, match="is not the id of a training"):
        ledger.names()


def test_small_networks_on_one_frozen_encoder_are_one_job() -> None:
    trials = [trial(plan, seed) for plan in ("shared", "frozen+late:SI", "frozen+shared")
              for seed in (1, 2)]  # fmt: skip
    jobs = plan_jobs(trials)
    assert [len(job.trials) for job in jobs] == [1, 1, 4]
    assert sorted(i for job in jobs for i in job.ids) == sorted(trial.id for trial in trials)
    assert [len(job.trials) for job in plan_jobs(trials, workers=2)] == [1, 1, 2, 2]
    cross, bi = trial("frozen+shared"), trial("frozen+shared", training__pair="bi")
    assert len(plan_jobs([cross, bi])) == 2
