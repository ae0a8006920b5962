"""`mops add-task`, `mops remove-task` and `mops merge`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mops
from running import World

NAMES = ("sentiment", "paraphrase", "similarity")


@pytest.fixture
def new(made: World, tmp_path: Path) -> list[str]:
    """A recipe file with one new task, and few steps."""
    entry = made.recipe().to_data()["tasks"]["paraphrase"]
    path = tmp_path / "new.yaml"
    training = {"max_steps": 4, "eval_steps": 2, "threads": 1}
    path.write_text(json.dumps({"tasks": {"same": entry}, "training": training}))
    return ["--config", str(path)]


def predictions(run_cli: Any, model: str, made: World, out: Path) -> bytes:
    file = str(made.data / "quora-dev.csv")
    answers = b""
    for task in NAMES[1:]:
        code, _, err = run_cli("predict", model, file, "--task", task, "--out", str(out))
        assert code == 0, err
        answers += out.read_bytes()
    return answers


def test_add_remove_and_merge(
    run_cli: Any, made: World, model: str, new: list[str], tmp_path: Path
) -> None:
    grown, other, both = (str(tmp_path / name) for name in ("grown", "other", "both"))
    code, out, err = run_cli("add-task", model, *new, "--plan", "lora:2", "--out", grown)
    assert code == 0, err
    assert "same" in out and str(Path(grown) / "model") in out
    before = predictions(run_cli, model, made, tmp_path / "before.csv")
    assert predictions(run_cli, f"{grown}/model", made, tmp_path / "after.csv") == before
    code, out, _ = run_cli("eval", f"{grown}/model", "--verify")  # old and new scores
    assert code == 0 and "verified" in out
    code, out, _ = run_cli("add-task", model, *new, "--plan", "lora:2", "--out", grown)
    assert code == 0 and "already holds this finished run" in out

    code, out, _ = run_cli("remove-task", f"{grown}/model", "sentiment", "--out", other)
    assert code == 0 and "paraphrase, similarity, same" in out
    assert predictions(run_cli, other, made, tmp_path / "left.csv") == before
    code, out, err = run_cli("merge", model, f"{grown}/model", "--out", both)
    assert code == 0, err
    assert set(mops.load(both).tasks) == {*NAMES, "same"}
    assert predictions(run_cli, both, made, tmp_path / "both.csv") == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "training.pair=bi"), "training.pair is 'bi'"),
        (("--set", "encoder=minilm"), "encoder is 'minilm'"),
        (("--like", "paraphrases"), "Did you mean 'paraphrase'?"),
        (("--plan", "late:I"), "late layers"),
    ],
)
def test_wrong_use_is_one_line(
    words: tuple[str, str], said: str, run_cli: Any, model: str, new: list[str], tmp_path: Path
) -> None:
    code, out, err = run_cli("add-task", model, *new, *words, "--out", str(tmp_path / "run"))
    assert (code, out) == (2, "")
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_tasks_of_the_model_are_taken(run_cli: Any, made: World, model: str) -> None:
    code, _, err = run_cli("add-task", model, "--data", str(made.data), "--tasks", "sentiment")
    assert code == 2 and "has a task of this name already" in err


def test_a_dry_run_prints_the_recipe(run_cli: Any, model: str, new: list[str]) -> None:
    code, out, _ = run_cli("add-task", model, *new, "--dry-run")
    assert code == 0 and f"base: {Path(model).resolve()}" in out and "frozen: [sentiment" in out
