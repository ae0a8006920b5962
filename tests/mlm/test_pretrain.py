"""A whole pretraining in the toy world: what it learns, writes, refuses, and how it goes on."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import mops
from mops.errors import RecipeError, RunError, UsageError
from mops.model.pretrained import read_weights
from mops.training.pretrain import Pretrained
from mops.training.tracking import Watcher
from mops.training.trainer import Interrupted
from running import World, world

STEPS = 12


@pytest.fixture(scope="module")
def made() -> World:
    return world()


def recipe(made: World, **settings: Any) -> mops.Recipe:
    quick = {
        "training__max_steps": STEPS,
        "training__eval_steps": 4,
        "training__learning_rate": 3e-3,
        "training__head_learning_rate": 3e-3,
        "training__save_steps": 5,
    }
    return made.recipe(**quick | settings)


def run(made: World, out: Path, **settings: Any) -> Pretrained:
    more = {key: settings.pop(key) for key in ("watcher",) if key in settings}
    return mops.pretrain(recipe(made, **settings), out, batch_size=16, **more)


@pytest.fixture(scope="module")
def whole(made: World, tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    return run(made, tmp_path_factory.mktemp("pretrain") / "whole")


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def curve(record: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in record["curve"]]


# ------------------------------------------------------------------ what it learns


def test_perplexity_falls_far_below_the_frequency_of_words(made: World, tmp_path: Path) -> None:
    """All words of a toy text have one vowel, 8 words each: only the encoder can see which."""
    rates = {"training__learning_rate": 1e-2, "training__head_learning_rate": 1e-2}
    budget = {"training__max_steps": 60, "training__eval_steps": 60}
    done = mops.pretrain(recipe(made, **rates, **budget), tmp_path / "run", batch_size=32)
    found = done.record["held_out"]
    assert 8 < found["end"]["perplexity"] < 0.5 * found["start"]["perplexity"]
    assert done.record["warnings"] == [
        "the best evaluation is the last one: a larger budget may lower it further"
    ]


def test_the_end_is_the_best_evaluation_read_from_the_files(whole: Pretrained) -> None:
    judged = [line for line in curve(whole.record) if line.get("held_out")]
    assert [line["step"] for line in judged] == [0, 4, 8, 12]
    best = min(judged, key=lambda line: line["held_out"]["selection"])
    end = whole.record["held_out"]["end"]
    assert end["step"] == best["step"] == whole.record["train_info"]["best_step"]
    assert end["loss"] == best["held_out"]["report"]  # to the last bit


def test_a_second_pretraining_goes_on_with_the_head(
    made: World, whole: Pretrained, tmp_path: Path
) -> None:
    again = run(made, tmp_path / "again", encoder=whole.folder, training__max_steps=1)
    assert again.record["head"] == "of the encoder's file"
    start, end = again.record["held_out"]["start"], whole.record["held_out"]["end"]
    assert start["loss"] == end["loss"]


def test_the_encoder_trains_tasks(made: World, whole: Pretrained, tmp_path: Path) -> None:
    trained = mops.train(made.recipe(encoder=whole.folder, training__max_steps=2), tmp_path / "run")
    assert 0 <= trained.scores.overall["report"]["overall_normalised"] <= 1


def test_record_and_folder(made: World, whole: Pretrained) -> None:
    assert whole.record["head"] == "new" and not whole.was_finished
    for at in whole.record["held_out"].values():
        assert at["perplexity"] == pytest.approx(math.exp(at["loss"]))
    assert whole.record["held_out"]["start"]["step"] == 0
    there = {file.name for file in whole.folder.iterdir()}
    assert there == {"config.json", "model.safetensors", "tokenizer.json", "pretrain.json"}
    record = json.loads((whole.folder / "pretrain.json").read_text("utf-8"))
    assert record == whole.record
    assert record["settings"]["encoder"] == str(made.encoder)
    assert "plan" not in record["settings"] and record["settings"]["batch_size"] == 16
    assert record["train_info"]["steps"] == STEPS
    assert len(record["meta_info"]["data_sha256"]) == 9
    texts = record["texts"]
    assert texts["selection"] + texts["report"] == texts["held_out"]


# ------------------------------------------------------------------ going on


class Stopping(Watcher):
    """Asks the run to stop, kindly or not, after a step."""

    def __init__(self, step: int, number: signal.Signals = signal.SIGINT) -> None:
        self.at, self.number = step, number

    def step(self, step: int, facts: object) -> None:
        if step == self.at:
            os.kill(os.getpid(), self.number)


class Killing(Watcher):
    """Ends a run at once, as a kill does: nothing is saved any more."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int, facts: object) -> None:
        if step == self.at:
            raise ZeroDivisionError

    def phase(self, name: str) -> None:
        if self.at < 0 and name == "writing":
            raise ZeroDivisionError


CUTS = {
    "asked": Stopping(7),
    "terminated": Stopping(6, signal.SIGTERM),
    "before the first save": Killing(3),
    "after a later evaluation": Killing(9),  # saved at 5, evaluated at 8
    "before writing": Killing(-1),
}


@pytest.mark.parametrize("cut", CUTS)
def test_an_interrupted_run_goes_on_to_the_same_bits(
    made: World, whole: Pretrained, tmp_path: Path, cut: str
) -> None:
    out = tmp_path / "run"
    with pytest.raises((Interrupted, ZeroDivisionError)):
        run(made, out, watcher=CUTS[cut])
    assert not (out / "pretrain.json").exists()
    done = run(made, out)
    assert weights(out) == weights(whole.folder)
    assert curve(done.record) == curve(whole.record)
    assert done.record["held_out"] == whole.record["held_out"]
    assert {file.name for file in out.iterdir()} == {f.name for f in whole.folder.iterdir()}


def test_killed_around_the_record(
    made: World, whole: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before it is written, and just after."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("mops.training.pretrain.build_record", lambda *given, **more: 1 // 0)
        run(made, out)
    assert (out / "model.safetensors").is_file()
    state = Path(shutil.copytree(out / "state", tmp_path / "state"))
    assert run(made, out).record["held_out"] == whole.record["held_out"]
    shutil.copytree(state, out / "state")
    assert run(made, out).was_finished and not (out / "state").exists()
    assert weights(out) == weights(whole.folder)


def test_killed_in_the_first_write(made: World, whole: Pretrained, tmp_path: Path) -> None:
    draft = tmp_path / "run" / "state" / ".settings.json.77.part"
    draft.parent.mkdir(parents=True)
    draft.write_text('{"enc', "utf-8")
    assert weights(run(made, tmp_path / "run").folder) == weights(whole.folder)


def test_a_finished_folder_is_left_alone(made: World, whole: Pretrained) -> None:
    before = {file: file.stat().st_mtime_ns for file in whole.folder.iterdir()}
    again = run(made, whole.folder)
    assert again.was_finished and again.record == whole.record
    assert before == {file: file.stat().st_mtime_ns for file in whole.folder.iterdir()}


# ------------------------------------------------------------------ refusals


def test_other_settings_are_refused_with_their_key(made: World, whole: Pretrained) -> None:
    with pytest.raises(RecipeError, match=r"training\.learning_rate: 0\.003 there, 0\.1 here"):
        run(made, whole.folder, training__learning_rate=0.1)
    with pytest.raises(RecipeError, match="batch_size: 16 there, 8 here"):
        mops.pretrain(recipe(made), whole.folder, batch_size=8)
    # The plan and what only matters to tasks does not count.
    assert run(made, whole.folder, training__pair="bi", plan="separate").was_finished


def test_an_unfinished_run_with_other_settings_is_refused_too(made: World, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(made, tmp_path / "run", watcher=Stopping(2))
    with pytest.raises(RecipeError, match=r"training\.seed: 3 there, 4 here"):
        run(made, tmp_path / "run", training__seed=4)


def test_other_data_and_foreign_folders_are_refused(
    made: World, whole: Pretrained, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(made.data, tmp_path / "data"))
    out = Path(tmp_path / "out")
    run(made, out, data=data, training__max_steps=1)
    file = data / "sts-train.csv"
    file.write_text(file.read_text("utf-8") + "77\tx77\tban ban\tden\t1.0\n", "utf-8")
    with pytest.raises(
        RecipeError, match=r"the data or the encoder \(weights, tokenizer or config\) have changed"
    ):
        run(made, out, data=data, training__max_steps=1)
    with pytest.raises(RecipeError, match="not empty and holds no pretraining"):
        run(made, data)
    assert (data / "sts-train.csv").is_file()


def test_wrong_numbers(made: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"batch size is 0; it must be at least 1"):
        mops.pretrain(recipe(made), tmp_path / "run", batch_size=0)
    with pytest.raises(RecipeError, match="max_length is 300, the encoder accepts at most 256"):
        run(made, tmp_path / "run", training__max_length=300)
    with pytest.raises(RunError, match=r"not a number .*lower training\.learning_rate"):
        run(made, tmp_path / "nan", training__learning_rate=1e9, training__max_grad_norm=0)


def test_an_encoder_that_does_not_gain_is_named(made: World, tmp_path: Path) -> None:
    done = run(made, tmp_path / "slow", training__max_steps=4, training__learning_rate=1e-9,
               training__dropout=0.0)  # fmt: skip
    found = done.record["held_out"]
    is_told = any("has not gained" in warning for warning in done.record["warnings"])
    assert is_told == (found["end"]["perplexity"] >= found["start"]["perplexity"])
    bad = run(made, tmp_path / "bad", training__max_steps=2, training__learning_rate=30.0,
              training__warmup_steps=0)  # fmt: skip
    assert "nothing was gained" in bad.record["warnings"][0]
    mine, theirs = (
        read_weights(folder / "model.safetensors", "bert") for folder in (bad.folder, made.encoder)
    )
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items())
    assert len(load_file(bad.folder / "model.safetensors")) == len(theirs) + 5  # the head


def test_early_stopping(made: World, tmp_path: Path) -> None:
    done = run(made, tmp_path / "run", training__learning_rate=1.0, training__early_stopping=1,
               training__eval_steps=2)  # fmt: skip
    info = done.record["train_info"]
    assert info["stopped_early"] and info["steps"] < info["planned_steps"] == STEPS


@pytest.mark.parametrize("text", ["{", "[]", '{"head": "new"}'])
def test_a_damaged_record_is_one_clear_line(made: World, text: str, tmp_path: Path) -> None:
    (tmp_path / "pretrain.json").write_text(text)
    with pytest.raises(UsageError, match=r"pretrain\.json cannot be read: .*; delete .* and start"):
        run(made, tmp_path)
