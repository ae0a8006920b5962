"""A run whose folder was changed behind its back goes on, or says why it does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import mops
from mops.config.recipe import Recipe
from mops.errors import RunError
from mops.model.pretrained import read_tensors
from mops.predict.manifest import write_manifest
from mops.training.checkpoint import STATE, saved_step
from mops.training.machine import hold_folder
from mops.training.tracking import CurveWarning
from mops.yaml_io import content_digest
from running import StopAt, run_python, world


@pytest.fixture
def recipe() -> Recipe:
    return world().recipe(training__save_steps=2, training__eval_steps=2)


@pytest.fixture
def stopped(recipe: Recipe, tmp_path: Path) -> Path:
    """Saved and evaluated at 2, 4 and 6."""
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, tmp_path / "run", StopAt(7))
    return tmp_path / "run"


@pytest.mark.parametrize("chooser", ["all", "a", "b"])
def test_a_best_state_that_was_removed_is_missed(
    recipe: Recipe, stopped: Path, chooser: str
) -> None:
    """Before, the last state was scored under the name of the best one."""
    (stopped / f"state/best-{chooser}.safetensors").unlink()
    with pytest.raises(RunError, match=rf"best-{chooser}\.safetensors.*start again"):
        mops.train(recipe, stopped)


def test_a_best_state_that_was_cut_is_told(recipe: Recipe, stopped: Path) -> None:
    best = stopped / "state/best-all.safetensors"
    content = best.read_bytes()
    best.unlink()  # other choosers may have a link to it
    best.write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match="best-all"):
        mops.train(recipe, stopped)


def test_a_best_state_of_another_step_is_told(recipe: Recipe, stopped: Path) -> None:
    """Of a run that was stopped earlier, with the same recipe."""
    best = stopped / "state/best-all.safetensors"
    weights = load_file(best)
    best.unlink()
    save_file(weights, best, {"format": "pt", "step": "1"})
    with pytest.raises(RunError, match="is the state of step 1, and the best one was that of step"):
        mops.train(recipe, stopped)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "has no key"),
        ({"key": "{key}"}, "has no progress"),
        ({"key": "{key}", "progress": "no JSON"}, "cannot be read"),
        ({"key": "{key}", "progress": '{"step": "many"}'}, "step must be a whole number"),
    ],
)
def test_a_state_of_something_else_is_told(
    recipe: Recipe, stopped: Path, facts: dict[str, str], words: str
) -> None:
    tensors, known = read_tensors(stopped / STATE)
    own = {name: text.replace("{key}", known["key"]) for name, text in facts.items()}
    save_file(tensors, stopped / STATE, {"format": "pt", **own})
    assert own or saved_step(stopped / STATE) == 0
    with pytest.raises(RunError, match=rf"state\.safetensors.*{words}.*start again"):
        mops.train(recipe, stopped)


def test_a_curve_that_was_removed_has_no_nul_bytes(recipe: Recipe, stopped: Path) -> None:
    (stopped / "curve.jsonl").unlink()
    with pytest.warns(CurveWarning, match="removed or cut"):
        run = mops.train(recipe, stopped)
    lines = [json.loads(line) for line in (stopped / "curve.jsonl").read_text().splitlines()]
    assert lines and min(line["step"] for line in lines) > 6
    whole = mops.train(recipe, stopped.parent / "whole")
    assert run.scores == whole.scores


def test_a_curve_that_was_cut_keeps_its_whole_lines(recipe: Recipe, stopped: Path) -> None:
    curve = stopped / "curve.jsonl"
    first, second, *_ = curve.read_text().splitlines(keepends=True)
    curve.write_text(first + second[:20])
    with pytest.warns(CurveWarning):
        mops.train(recipe, stopped)
    after, *others = curve.read_text().splitlines(keepends=True)
    assert after == first and all(json.loads(line)["step"] > 6 for line in others)


HOLDER = """
import sys
from pathlib import Path
from mops.training.machine import hold_folder
with hold_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders are not locked there")
def test_two_processes_do_not_train_in_one_folder(recipe: Recipe, tmp_path: Path) -> None:
    run, environment = tmp_path / "run", {"PYTHONPATH": str(Path(mops.__file__).parents[1])}
    command: Any = [sys.executable, "-c", HOLDER, str(run)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process is training in"):
            mops.train(recipe, run)
        assert list(run.iterdir()) == []  # nothing of the other one is touched
        other.kill()  # the system gives the folder back
    assert mops.train(recipe, run).record.train_info.steps == 8
    again = run_python("-c", HOLDER, str(run))
    assert again.stdout == "held\n"


@pytest.mark.skipif(sys.platform == "win32", reason="folders are not locked there")
def test_a_folder_is_held_once_in_one_process_too(tmp_path: Path) -> None:
    with (
        hold_folder(tmp_path / "run"),
        pytest.raises(RunError, match="as `out`"),
        hold_folder(tmp_path / "run"),
    ):
        pass


def flip_model(run: Path) -> None:
    path = run / "model/model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def swap_predictions(run: Path) -> None:
    path = run / "predictions/sentiment-report.csv"
    header, first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, second, first, *rest]))


def change_record(run: Path) -> None:
    path = run / "record.json"
    record = json.loads(path.read_text())
    record["scores"]["overall"]["report"]["overall"] = 0.99
    path.write_text(json.dumps(record))


def foreign_record(run: Path) -> None:
    path = run / "record.json"
    record = json.loads(path.read_text())
    record["run_info"]["recipe"]["plan"] = "separate"
    path.write_text(json.dumps(record | {"sha256": content_digest(record)}))


def foreign_model(run: Path) -> None:
    """Complete, and as its own manifest says."""
    flip_model(run)
    write_manifest(run / "model")


def foreign_config(run: Path) -> None:
    path = run / "model/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 99}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flip_model, r"model\.safetensors has the SHA-256"),
        (swap_predictions, r"predictions/sentiment-report\.csv is not as it was written"),
        (lambda run: (run / "predictions/sentiment-report.csv").unlink(), "csv is missing"),
        (change_record, r"record\.json is not as it was written"),
        (foreign_record, r"record\.json is of another training \(plan"),
        (foreign_model, "not the weights of this run"),
        (foreign_config, r"config\.json has"),
    ],
)
def test_a_finished_run_that_was_changed_is_not_called_finished(
    tmp_path: Path, change: Any, words: str
) -> None:
    run = shutil.copytree(world().run, tmp_path / "run")
    (run / "state").mkdir()
    (run / "state/left").touch()
    change(run)
    files = set(run.rglob("*"))
    with pytest.raises(RunError, match=words):
        mops.train(world().recipe(), run)
    assert set(run.rglob("*")) == files
