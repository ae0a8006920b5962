"""Trackers hear what curve.jsonl gets, once; they never stop a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import pytest
from tracking import Recorder, Told, curve, recipe, record, told_by

import mops
from mops.config.training import Tracker, Training
from mops.errors import RecipeError, UsageError
from mops.surveys.executors import train_trials
from mops.surveys.ledger import Candidate, Ledger, Trial
from mops.training.batched import train_many
from mops.training.distributed import ProcessGroup
from mops.training.pretrain import pretrain
from mops.training.tracking import (
    TRACKERS,
    Label,
    TrackerWarning,
    final_scores,
    named_scalars,
)
from running import StopAt, world

SAVED = {"training__save_steps": 3}  # the last save before a break at step 7 is at 6


@pytest.fixture(autouse=True)
def every_second_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines at the first and at each second step, evaluations at 4 and 8."""
    world()  # the shared run keeps the usual lines
    monkeypatch.setattr("mops.training.trainer.LOG_STEPS", 2)


def untimed(told: Told) -> Told:
    return [
        (step, {name: of for name, of in values.items() if not name.endswith("/seconds")})
        for step, values in told
    ]


# ------------------------------------------------------------------ the setting


def test_the_setting_and_the_table_name_the_same_trackers() -> None:
    assert set(get_args(Tracker)) == set(TRACKERS)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("none", ()),
        ("wandb", ("wandb",)),
        (["mlflow", "wandb", "mlflow"], ("mlflow", "wandb")),
        ([], ()),
    ],
)
def test_one_name_or_a_list(given: Any, names: tuple[str, ...]) -> None:
    assert Training(report_to=given).trackers == names


def test_an_unknown_tracker_is_named_with_those_that_are_known() -> None:
    with pytest.raises(RecipeError, match=r"report_to.*'wandb'.*found 'tensorbord'"):
        world().recipe(training__report_to="tensorbord")


def test_what_is_not_installed_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a folder of that name in the working directory a package."""
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(RecipeError, match="wandb is not installed here; pip install wandb"):
        mops.train(recipe("wandb"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------ what is told


def test_names() -> None:
    step = {
        "step": 7, "epoch": 0.5, "seconds": 1.5, "loss": 2.0, "losses": {"a": 0.5, "b": 1.5},
        "gradient_norm": 3.0, "loss_weights": {"a": 1, "b": 1}, "learning_rate": 1e-4,
        "gradient_shares": {"a": 0.25, "b": 0.75},
    }  # fmt: skip
    assert dict(named_scalars(step)) == {
        "train/epoch": 0.5, "train/seconds": 1.5, "train/loss": 2.0, "train/loss/a": 0.5,
        "train/loss/b": 1.5, "train/gradient_norm": 3.0, "train/loss_weight/a": 1.0,
        "train/loss_weight/b": 1.0, "train/learning_rate": 1e-4, "train/gradient_share/a": 0.25,
        "train/gradient_share/b": 0.75,
    }  # fmt: skip
    judged = {"step": 8, "selection": {"a": {"f1": 0.5}}, "overall": 0.6, "best": True}
    assert dict(named_scalars(judged)) == {"eval/a/f1": 0.5, "eval/overall": 0.6}
    masked = {"step": 1, "held_out": {"report": 4.0}, "best": False}
    assert dict(named_scalars(masked)) == {"eval/held_out/report": 4.0}


def test_all_trackers_hear_the_curve_and_the_final_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = record(monkeypatch, "wandb", "mlflow")
    run = mops.train(recipe("wandb", "mlflow"), tmp_path / "run")
    assert len(runs) == 2
    report = run.scores.tasks["sentiment"]["report"]["accuracy"]
    for one in runs.values():
        assert one.told == told_by(run.folder)
        assert [step for step, _ in one.told] == [1, 2, 4, 4, 6, 8, 8]
        assert one.ends == [final_scores(run.scores)]
        assert one.ends[0]["final/sentiment/accuracy"] == report
        assert one.label == Label("run", tmp_path / "run")
        assert one.parameters["training.max_steps"] == 8
        assert one.parameters["plan"] == "shared"


def test_the_learning_rate_of_a_step(tmp_path: Path) -> None:
    """Two steps of warm-up, then down to zero after the eighth: step n of 6 is at (6 - n) / 6."""
    settings = {"training__warmup_steps": 2, "training__learning_rate": 6e-4}
    run = mops.train(recipe(**settings), tmp_path / "run")
    rates = {line["step"]: line["learning_rate"] for line in curve(run.folder) if "loss" in line}
    assert rates == pytest.approx({1: 2e-4, 2: 4e-4, 4: 5e-4, 6: 3e-4, 8: 1e-4})


def test_runs_abreast_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = record(monkeypatch, "mlflow")
    recipes = [recipe("mlflow", plan="frozen+late:SI", training__seed=seed) for seed in (1, 2)]
    folders = [tmp_path / "one", tmp_path / "two"]
    train_many(recipes, folders)
    assert {one.label.name for one in runs.values()} == {"one", "two"}
    for one in runs.values():
        assert one.told == told_by(one.label.folder)
        assert [bool(scores) for scores in one.ends] == [True]


def test_a_pretraining_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = record(monkeypatch, "wandb")
    made = pretrain(recipe("wandb", training__max_steps=2), tmp_path / "encoder", batch_size=8)
    (one,) = runs.values()
    assert one.told == [(line["step"], dict(named_scalars(line))) for line in made.record["curve"]]
    assert one.ends == [{"final/perplexity": made.record["held_out"]["end"]["perplexity"]}]


def test_of_several_processes_the_first_one_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = record(monkeypatch, "wandb")
    second = ProcessGroup(rank=1)
    monkeypatch.setattr("mops.training.run.process_group", lambda: nullcontext(second))
    with pytest.raises(UsageError, match="not a record"):  # the first one would have written it
        mops.train(recipe("wandb"), tmp_path / "run")
    assert not runs and not (tmp_path / "run" / "curve.jsonl").exists()


# ------------------------------------------------------------------ interrupted


@pytest.mark.parametrize("step", [2, 7])
def test_a_run_goes_on_where_it_was_heard_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Broken off before the first save, and after lines that will be written once more."""
    runs = record(monkeypatch, "wandb")
    given = recipe("wandb", **SAVED)
    with pytest.raises(ZeroDivisionError):
        mops.train(given, tmp_path / "run", StopAt(step))
    assert list(runs) == ["key-0"] and runs["key-0"].ends == [{}]
    run = mops.train(given, tmp_path / "run")
    assert list(runs) == ["key-0"]
    assert untimed(runs["key-0"].told) == untimed(told_by(run.folder))
    assert runs["key-0"].ends == [final_scores(run.scores)]


def test_a_tracker_that_joins_later_hears_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told is no difference between two recipes."""
    runs = record(monkeypatch, "wandb", "mlflow")
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe("wandb", **SAVED), tmp_path / "run", StopAt(7))
    run = mops.train(recipe("wandb", "mlflow", **SAVED), tmp_path / "run")
    assert runs["key-1"].told == told_by(run.folder)
    assert mops.train(recipe(**SAVED), tmp_path / "run").was_finished and len(runs) == 2


# ------------------------------------------------------------------ failures


class Failing(Recorder):
    """Breaks at an action: begin, scalars or end."""

    at = ""

    def __init__(self, *facts: Any) -> None:
        self.break_at("begin")
        super().__init__(*facts)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        super().scalars(step, values)
        if step == 4:
            self.break_at("scalars")

    def end(self, scores: Mapping[str, float]) -> None:
        self.break_at("end")

    def break_at(self, action: str) -> None:
        if action == self.at:
            raise OSError("no space left\non this device")


@pytest.mark.parametrize("at", ["begin", "scalars", "end"])
def test_a_tracker_that_fails_warns_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    runs = record(monkeypatch, "wandb", "mlflow")
    monkeypatch.setattr(Failing, "at", at)
    monkeypatch.setitem(TRACKERS, "wandb", Failing)
    with pytest.warns(TrackerWarning, match="wandb failed.*no space left on this") as caught:
        run = mops.train(recipe("wandb", "mlflow"), tmp_path / "run")
    assert len(caught) == 1
    (other,) = (one for one in runs.values() if not isinstance(one, Failing))
    assert other.told == told_by(run.folder) and other.ends == [final_scores(run.scores)]
    broken = [one for one in runs.values() if isinstance(one, Failing)]
    assert [len(one.told) for one in broken] == {"begin": [], "scalars": [3], "end": [7]}[at]


# ------------------------------------------------------------------ surveys


def trial(seed: int, *told: str) -> Trial:
    return Candidate("late:S/I", {}, recipe(*told, plan="frozen+late:SI")).trial(seed)


def test_trials_of_a_survey_go_by_candidate_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone and abreast."""
    runs, ledger = record(monkeypatch, "mlflow"), Ledger(tmp_path / "mine")
    trials = [trial(seed, "mlflow") for seed in (1, 2, 3)]
    ledger.register(trials)
    train_trials(ledger.folder, [trials[0].id])
    train_trials(ledger.folder, [one.id for one in trials])
    labels = [one.label for one in runs.values()]
    assert [label.name for label in labels] == [one.name for one in trials]
    assert {(label.folder, label.group) for label in labels} == {(ledger.folder, "mine")}


def test_a_trial_is_the_same_whoever_is_told() -> None:
    assert trial(1).id == trial(1, "wandb").id == trial(1, "mlflow", "wandb").id != trial(2).id


def test_trials_that_have_not_begun_get_the_present_trackers(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.register([trial(1), trial(2)])
    ledger.run_folder(trial(1).id).mkdir(parents=True)
    ledger.register([trial(1, "wandb"), trial(2, "wandb")])
    told = [ledger.recipe(trial(seed).id).training.trackers for seed in (1, 2)]
    assert told == [(), ("wandb",)]
