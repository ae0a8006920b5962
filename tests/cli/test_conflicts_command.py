"""The command `mops conflicts`."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mops.yaml_io import parse_yaml
from running import World

FEW = ("--steps", "6", "--every", "1")


@pytest.mark.slow
def test_tables_advice_files_and_json(made: World, run_cli: Any, tmp_path: Path) -> None:
    words = made.options("--plan", "hybrid:1", "--out", str(tmp_path), *FEW)
    code, out, err = run_cli("conflicts", *words)
    assert (code, err) == (0, "")
    for pair in (
        "sentiment and paraphrase",
        "sentiment and similarity",
        "paraphrase and similarity",
    ):
        assert pair in out
    assert "layer 0" in out and "layer 1" not in out and "feedforward" in out
    assert "over 6 measured steps" in out and "over 12 cells (6 for `all`)" in " ".join(out.split())
    assert "conflict" in out.split("allows\n\n")[-1]
    assert "correlation of the outputs" in out and "on texts of" in out
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "conflicts.json", "heatmap.png", "heatmap.svg",
    ]  # fmt: skip
    code, printed, _ = run_cli("conflicts", *words, "--json")  # the same numbers again
    assert code == 0
    assert json.loads(printed) == json.loads((tmp_path / "conflicts.json").read_text("utf-8"))


def test_without_matplotlib_everything_else_works(
    made: World, run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "mops.reports.figures.conflicts", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    code, out, err = run_cli("conflicts", *made.options("--out", str(tmp_path), *FEW))
    assert code == 0 and "sentiment and similarity" in out
    assert 'pip install "mops-nlp[report]"' in err
    assert [file.name for file in tmp_path.iterdir()] == ["conflicts.json"]


def test_a_dry_run_prints_the_recipe(made: World, run_cli: Any, tmp_path: Path) -> None:
    code, out, _ = run_cli("conflicts", *made.options("--dry-run", "--out", str(tmp_path), *FEW))
    assert code == 0 and parse_yaml(out)["training"]["max_steps"] == 6
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--plan", "separate", *FEW), "nothing can conflict"),
        (("--tasks", "similarity", *FEW), "there is only similarity"),
        (("--steps", "3"), "at least 5 measured steps"),
    ],
)
def test_wrong_use_is_one_line(
    made: World, run_cli: Any, tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    code, out, err = run_cli("conflicts", *made.options("--out", str(tmp_path / "x"), *more))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err and not (tmp_path / "x").exists()


def test_interrupted_leaves_nothing(
    made: World, run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mops.training.conflicts.draw_halves", interrupt)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out = tmp_path / "out"
    code, _, err = run_cli("conflicts", *made.options("--out", str(out), *FEW))
    assert code == 130 and "stopped" in err
    assert not list(tmp_path.iterdir())
