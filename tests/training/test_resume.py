"""Interrupted runs: whatever stops them, the same call goes on to the same bits."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from same_runs import assert_same_model

import mops
from mops.api.progress import TrainingScreen
from mops.cli.main import main
from mops.training.tracking import Watcher
from running import World, run_python, world

# A child that trains in forks of itself, each killed without a chance to tidy up.
CHILD = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
import torch._dynamo  # an optimizer imports it: here once, not in every fork
import mops.training.run
from mops.evaluate import evaluate
from mops.training.tracking import Watcher
from mops.predict import bundle

def die(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)

class Deadly(Watcher):
    def step(self, step, facts):
        if (moment, number) == ("step", step):
            die()
    def evaluation(self, step, scores, is_best):
        if (moment, number) == ("evaluation", step):
            die()
    def phase(self, name):
        if moment == name:
            die()

def train():
    if moment == "judging":  # the bundle is there, the predictions are not complete
        write, written = evaluate.write_predictions, []
        def write_some(*given, **named):
            write(*given, **named)
            written.append(1)
            if len(written) == number:
                die()
        evaluate.write_predictions = write_some
    if moment == "writing":  # a draft of the bundle lies beside its place
        bundle.format_card = die
    if moment == "recorded":  # the record is written, the state not yet removed
        mops.training.run.shutil = SimpleNamespace(rmtree=die)
    mops.train(mops.recipe(config=sys.argv[1]), out, Deadly())

for word in sys.argv[2:]:
    name, *cuts = word.split(":")
    for cut in cuts:
        out, (moment, _, number) = Path(sys.argv[1]).parent / name, cut.partition("@")
        number = int(number or 0)
        if not (child := os.fork()):
            train()
            os._exit(0)
        print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
# name of the folder -> where its run is killed, one time after the other
CUTS = {
    "before-the-first-save": ["step@2"],
    "after-a-later-evaluation": ["step@5"],  # saved at 3, evaluated at 4
    "between-saves": ["step@7"],
    "again-and-again": ["step@4", "step@7"],
    "in-the-last-evaluation": ["evaluation@8"],
    "before-scoring": ["scoring"],
    "among-the-predictions": ["judging@2"],
    "while-the-bundle-is-written": ["writing"],
    "after-the-record": ["recorded"],
    "damaged": ["step@7"],
}


@pytest.fixture(scope="module")
def made() -> World:
    return world()


@pytest.fixture(scope="module")
def recipe_file(made: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two evaluations, a save every third step, an epoch of 15 steps: all cuts lie inside one."""
    path = tmp_path_factory.mktemp("resume") / "mops.yaml"
    path.write_text(made.recipe("hybrid:1", training__save_steps=3).to_yaml())
    return path


@pytest.fixture(scope="module")
def whole(recipe_file: Path) -> Path:
    """The same run without an interruption."""
    out = recipe_file.parent / "whole"
    mops.train(mops.recipe(config=recipe_file), out)
    return out


def assert_same_run(run: Path, whole: Path) -> None:
    """The same model, the same account of its training, the same files."""
    assert_same_model(run, whole)
    mine, theirs = (mops.read_record(folder / "record.json") for folder in (run, whole))
    measured = {"train_seconds", "run_seconds", "step_seconds_median"}
    for key in set(vars(theirs.train_info)) - measured:
        assert getattr(mine.train_info, key) == getattr(theirs.train_info, key), key
    assert everything(run) == everything(whole)


def everything(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*")}


@pytest.fixture(scope="module")
def killed(recipe_file: Path) -> Path:
    """The folder of all runs that were killed."""
    cuts = [":".join((name, *moments)) for name, moments in CUTS.items()]
    done = run_python("-c", CHILD, str(recipe_file), *cuts)
    said = [line.split()[1] for line in done.stdout.splitlines()]
    assert said == ["-9"] * sum(map(len, CUTS.values())), done.stdout + done.stderr
    return recipe_file.parent


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CUTS if name != "damaged"])
def test_a_killed_run_goes_on_to_the_same_bits(
    killed: Path, recipe_file: Path, whole: Path, name: str
) -> None:
    run = killed / name
    assert (run / "record.json").exists() == (name == "after-the-record")
    mops.train(mops.recipe(config=recipe_file), run)
    assert_same_run(run, whole)


@pytest.mark.slow
def test_a_damaged_state_is_named_and_not_used(killed: Path, recipe_file: Path) -> None:
    state = killed / "damaged" / "state" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(mops.MopsError, match=r"state\.safetensors cannot be read.*start again"):
        mops.train(mops.recipe(config=recipe_file), killed / "damaged")


class Broken(Exception):
    """Stops a run in the middle, after its last save."""


class Breaking(Watcher):
    def step(self, step: int, facts: object) -> None:
        if step == 7:
            raise Broken


@pytest.mark.parametrize(
    ("weights", "gradients"),
    [("uncertainty", "gradvac"), ("dwa", "pcgrad"), ("uncertainty", "sum"), ("dwa", "graddrop")],
)
def test_what_weights_and_gradients_remember_goes_on_too(
    made: World, tmp_path: Path, weights: str, gradients: str
) -> None:
    """Saved at 3 and 6 in intervals of 2 steps: weights, moments and running means come back."""
    settings = {
        "loss_weights": weights, "gradients": gradients, "save_steps": 3, "max_steps": 10,
        "head_learning_rate": 0.05, **({"dwa_steps": 2} if weights == "dwa" else {}),
    }  # fmt: skip
    recipe = made.recipe("hybrid:1", **{f"training__{k}": v for k, v in settings.items()})
    mops.train(recipe, tmp_path / "whole")
    with pytest.raises(Broken):
        mops.train(recipe, tmp_path / "run", Breaking())
    mops.train(recipe, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


# ------------------------------------------------------------------ asked to stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_saves_says_so_and_the_same_command_goes_on(
    recipe_file: Path,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    out = tmp_path / "run"
    words = ["mops", "train", "--config", str(recipe_file), "--out", str(out)]
    monkeypatch.setattr("sys.argv", words)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(TrainingScreen, "step", lambda *given: ask_at_step_5(given[1], number))
        main()
    printed, said = capsys.readouterr()
    assert stopped.value.code == 130 and printed == ""
    assert said.splitlines()[-1] == "mops: stopped; the same command goes on where it was"
    assert "Traceback" not in said and not (out / "record.json").exists()
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    main()
    assert "resuming after step 5 of 8" in capsys.readouterr().err
    assert_same_run(out, whole)


def ask_at_step_5(step: int, number: signal.Signals) -> None:
    if step == 5:
        os.kill(os.getpid(), number)


def test_asked_twice_it_stops_at_once(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Watcher):
        def step(self, step: int, facts: object) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        mops.train(mops.recipe(config=recipe_file), tmp_path / "run", Impatient())
    assert not (tmp_path / "run" / "state" / "state.safetensors").exists()


def test_a_finished_run_forgets_nothing_of_its_start(
    recipe_file: Path, whole: Path, tmp_path: Path
) -> None:
    """A copy of a finished folder elsewhere is finished too: nothing in it names its place."""
    shutil.copytree(whole, tmp_path / "copy")
    assert mops.train(mops.recipe(config=recipe_file), tmp_path / "copy").was_finished
