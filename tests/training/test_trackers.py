"""Each tracker behind the same few lines: stand-ins for all, and the real TensorBoard."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from tracking import (
    Store,
    Told,
    mlflow_stand_in,
    recipe,
    told_by,
    wandb_stand_in,
)

import mops
from mops.training.tracking import TRACKERS, Label, final_scores
from running import StopAt

STAND_INS = {"mlflow": mlflow_stand_in, "wandb": wandb_stand_in}
STATES = {
    "mlflow": ["RUNNING", "KILLED", "RUNNING", "FINISHED"],
    "wandb": ["RUNNING", "KILLED", "RUNNING", "FINISHED"],
}


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_told_in_its_own_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """Begun, broken off, gone on with by its key, ended; stdout is for results."""
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    store, label = Store(), Label("late:SI, seed 1", tmp_path, group="mine")
    STAND_INS[name](monkeypatch, store)
    parameters = {"training.seed": 1, **{f"p{n}": n for n in range(150)}}
    begin = TRACKERS[name]
    first = begin(label, parameters, "")
    first.scalars(1, {"train/loss": 2.0})
    first.end({})
    later = begin(label, parameters, first.key)
    later.scalars(3, {"train/loss": 1.0, "train/loss/a": 0.5})
    later.scalars(3, {"eval/overall": 0.5})
    later.end({"final/overall": 0.6})
    assert first.key == later.key and set(store.keys) == {first.key}
    assert store.names == [("late:SI, seed 1", "mine")]
    assert store.parameters == {key: str(value) for key, value in parameters.items()}
    assert store.series == {
        "train/loss": [(1, 2.0), (3, 1.0)],
        "train/loss/a": [(3, 0.5)],
        "eval/overall": [(3, 0.5)],
        "final/overall": [(0, 0.6)],
    }
    assert store.states == STATES[name]
    assert not capsys.readouterr().out


def test_nothing_leaves_the_machine_unless_a_variable_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, start = Store(), (Label("run", tmp_path), {}, "")
    wandb_stand_in(monkeypatch, store)
    mlflow_stand_in(monkeypatch, store)
    for variable in ("MLFLOW_TRACKING_URI", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    TRACKERS["wandb"](*start)
    TRACKERS["mlflow"](*start)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there")
    TRACKERS["wandb"](*start)
    TRACKERS["mlflow"](*start)
    assert store.places == [
        f"offline {tmp_path}",
        f"sqlite:///{tmp_path}/mlflow/mlflow.db",
        f"online {tmp_path}",
        "http://there",
    ]


# ------------------------------------------------------------------ the real one


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar in a folder, as TensorBoard shows it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder))
    reader.Reload()
    tags = reader.Tags()["scalars"]
    return {tag: [(one.step, one.value) for one in reader.Scalars(tag)] for tag in tags}


def series(told: Told) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for step, values in told:
        for name, value in values.items():
            found.setdefault(name, []).append((step, value))
    return found


def test_tensorboard_shows_the_curve_of_an_interrupted_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    given = recipe("tensorboard", training__save_steps=3)
    with pytest.raises(ZeroDivisionError):
        mops.train(given, tmp_path / "run", StopAt(7))
    run = mops.train(given, tmp_path / "run")
    shown, expected = events(run.folder / "tensorboard"), series(told_by(run.folder))
    for name, points in expected.items():
        assert [step for step, _ in shown[name]] == [step for step, _ in points], name
        if not name.endswith("/seconds"):
            values = [value for _, value in points]
            assert [value for _, value in shown[name]] == pytest.approx(values, rel=1e-6), name
    for name, value in final_scores(run.scores).items():
        assert shown[name][-1][1] == pytest.approx(value, rel=1e-6)


def test_in_tensorboard_a_new_run_hides_an_older_one_of_its_name(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    label = Label("late:S/I, seed 1", tmp_path, group="mine")
    for value in (1.0, 2.0):
        run = TRACKERS["tensorboard"](label, {"plan": "late:S/I"}, "")
        for step in range(5 if value == 1.0 else 2):
            run.scalars(step, {"train/loss": value})
        run.end({})
    place = tmp_path / "tensorboard" / "late-S-I-seed-1"
    assert events(place)["train/loss"] == [(0, 2.0), (1, 2.0)]
