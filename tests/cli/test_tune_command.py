"""`mops tune`: the default first, fresh seeds at the end, one line when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mops
from mops.surveys.ledger import FINISHED
from running import World

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
SPACE = """
plan: {choice: [shared, frozen+shared]}
training.head_learning_rate: {log_uniform: [1.0e-7, 1.0e-2]}
"""


@pytest.mark.slow
def test_a_search_ends_with_the_winner_beside_the_default(
    made: World, run_cli: Any, tmp_path: Path
) -> None:
    """Six trials; the better ones go on, and winner and default meet on fresh seeds."""
    space, out = tmp_path / "space.yaml", tmp_path / "out"
    space.write_text(SPACE, "utf-8")
    words = ["tune", *made.options(training__max_steps=16, training__eval_steps=2), "--json"]
    words += ["--space", str(space), "--trials", "6", "--plan", "hybrid:1", "--out", str(out)]
    code, told, error = run_cli(*words, "--seeds", "2")
    assert code == 0, error
    result = json.loads(told)
    first, *others = result["tried"]
    assert (first["name"], first["state"], first["reached"]) == ("hybrid:1", FINISHED, 1.0)
    assert {one["state"] for one in others} <= {"finished", "paused"} and len(others) == 5
    done = [one for one in result["tried"] if one["state"] == FINISHED]
    best = max(done, key=lambda one: one["score"])
    assert result["winner"] == best["name"]
    seed = mops.read_record(out / "trials" / first["id"] / "record.json").run_info.seed
    assert result["seeds"] == [seed + 1, seed + 2]
    if best["name"] != "hybrid:1":
        assert result["difference"]["seeds"] == 2


def test_wrong_use_is_one_line(made: World, run_cli: Any, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("plan: [shared]", "utf-8")
    code, _, error = run_cli("tune", *made.options(), "--space", str(space))
    assert code == 2 and "allowed: a mapping of one of choice" in error
    assert error.count("\n") == 1


def test_without_ray_it_says_what_to_install(
    made: World, run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = ["--out", str(tmp_path / "out"), "--engine", "ray"]
    code, _, error = run_cli("tune", *made.options(), *words)
    assert code == 2 and "pip install 'mops-nlp[ray]'" in error


def test_a_dry_run_prints_the_survey(made: World, run_cli: Any) -> None:
    code, told, _ = run_cli("tune", *made.options(), "--trials", "3", "--dry-run")
    assert code == 0 and told.count("axes:") == 3
