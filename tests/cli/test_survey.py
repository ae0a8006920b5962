"""`mops survey`, `mops recommend` and `mops quickstart` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mops.surveys.pack import read_pack
from running import QUICK, World, run_cli_with, world

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLANS = ("--plan", "shared", "--plan", "frozen+shared", "--plan", "frozen+late:SI")


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    return run_cli_with(monkeypatch, capsys)


@pytest.fixture(scope="module")
def made() -> World:
    return world()


def options(made: World, *more: str) -> list[str]:
    found = ["--data", str(made.data), "--encoder", str(made.encoder), "--max-steps", "4"]
    for key in ("training.max_length", "training.threads", "training.per_task_batch_size"):
        found += ["--set", f"{key}={QUICK[key]}"]
    return [*found, *PLANS, *more]


@pytest.mark.slow
def test_from_a_survey_to_a_decision(run_cli: Any, made: World, tmp_path: Path) -> None:
    """Trained once, judged, recommended; a larger survey trains only what is new."""
    folder = tmp_path / "mine"
    words = ["survey", "trunks", *options(made, "--seeds", "2", "--out", str(folder))]
    code, out, err = run_cli(*words)
    assert code == 0, err
    lines = err.splitlines()
    assert sum(": finished, " in line for line in lines) == 6 and "1 of 6 trials done" in err
    assert any("measuring costs" in line for line in lines) and "comparing candidates" in err
    assert all(plan in out for plan in ("shared", "frozen+shared", "frozen+late:SI"))
    assert (folder / "summary.json").is_file()
    models = list(folder.glob("trials/*/model"))
    assert len(models) == 3  # one of each candidate stays
    written = {f: f.stat().st_mtime_ns for f in folder.glob("trials/*/record.json")}
    code, out, _ = run_cli("survey", "--status", "--out", str(folder), "--json")
    assert code == 0 and set(json.loads(out)["states"].values()) == {"finished"}
    code, out, _ = run_cli(*words[:-4], "--seeds", "3", "--out", str(folder), "--json")
    assert code == 0 and len(list(folder.glob("trials/*/record.json"))) == 9
    assert all(f.stat().st_mtime_ns == then for f, then in written.items())
    assert json.loads(out)["seeds"] == [1, 2, 3]
    code, out, _ = run_cli("recommend", str(folder), "--json")
    decision = json.loads(out)
    assert code == 0 and decision["candidate"] in PLANS
    code, out, err = run_cli("recommend", str(folder), "--max-params", "10")
    assert code == 1


def test_a_dry_run_trains_nothing(run_cli: Any, made: World, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    code, out, _ = run_cli("survey", *options(made, "--out", str(folder)), "--dry-run")
    assert code == 0 and "frozen+late:SI" in out and not folder.exists()
    code, out, _ = run_cli("survey", *options(made), "--dry-run", "--json")
    assert len(json.loads(out)["candidates"]) == 3


def test_the_named_experiments_are_listed(run_cli: Any) -> None:
    code, out, _ = run_cli("survey", "--list", "--json")
    names = {entry["name"] for entry in json.loads(out)}
    assert code == 0 and {"late-frozen", "trunks", "pals", "everything"} <= names
    code, out, _ = run_cli("survey", "--list")
    assert code == 0 and "late-frozen" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["late-frosen"], "late-frozen"),
        (["--seeds", "few"], "--seeds 'few'"),
        (["--budget", "soon"], "budget 'soon'"),
        (["--budget", "5m", "--seeds", "2"], "leave out one"),
        (["--address", "here:1"], "belongs to the engine ray"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["--set", "training.learning_rat=1"], "learning_rate"),
    ],
)
def test_wrong_words_exit_2_and_start_nothing(
    run_cli: Any, made: World, tmp_path: Path, words: list[str], said: str
) -> None:
    folder = tmp_path / "survey"
    given = options(made, *words, "--out", str(folder))
    if words[0] == "--budget" and said != "leave out one":
        given = [word for word in given if word not in ("--max-steps", "4")]
    code, _, err = run_cli("survey", *given)
    assert code == 2 and said in err and len(err.strip().splitlines()) == 1
    assert not folder.exists()


@pytest.mark.slow
def test_quickstart_ends_with_a_decision(run_cli: Any, made: World, tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    words = ["--encoder", str(made.encoder), "--steps", "2", "--out", str(folder)]
    code, out, err = run_cli("quickstart", *words, "--plan", "shared", "--plan", "frozen+shared")
    assert code == 0, err
    assert "frozen+shared" in out and (folder / "summary.json").is_file()
    assert (
        out.endswith(f"report: {folder / 'report.html'}\n") and (folder / "report.html").is_file()
    )


@pytest.mark.slow
def test_a_race_its_pack_and_more_seeds(run_cli: Any, made: World, tmp_path: Path) -> None:
    """Rates first, then a race; packed, read elsewhere, and continued with more seeds."""
    folder, file, other = tmp_path / "race", tmp_path / "race.mops", tmp_path / "other"
    given = [word for word in options(made) if word not in ("--max-steps", "4")]
    words = [*given, "--budget", "40s", "--tune-rates", "--out", str(folder)]
    code, out, err = run_cli("survey", "trunks", *words)
    assert code == 0, err
    assert "round 1" in err and "within 0.01" in out
    rounds = json.loads((folder / "summary.json").read_text())["rounds"]
    assert rounds and (tmp_path / "race-rates" / "survey.yaml").is_file()
    code, out, err = run_cli("survey", "trunks", *words)  # nothing is trained again
    assert code == 0 and ": finished, " not in err, err
    code, out, err = run_cli("survey", str(folder), "--pack", str(file))
    assert code == 0 and str(file) in out
    code, out, err = run_cli("report", str(file), "--json")
    assert code == 0 and json.loads(out)["candidate"], err
    moved = ["--data", str(made.data), "--encoder", str(made.encoder)]
    more = ["--more-seeds", "1", "--only", "shared", *moved]
    code, out, err = run_cli("survey", "--from", str(file), "--out", str(other), *more)
    assert code == 0, err
    added = json.loads((other / "summary.json").read_text())["rounds"]
    assert added[: len(rounds)] == rounds and len(added) > len(rounds)
    assert added[len(rounds)]["candidates"] == ["shared"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "sentiment"], "a design of its own, which tasks would change"),
        (["--only", "shared"], "`only` belongs to `more_seeds`"),
        (["--seeds", "4"], "a design of its own, which seeds would change"),
        (["--values", "training.dropout=0,0.1"], "a design of its own, which values would change"),
        (["--more-seeds", "1", "--only", "sharde"], "Did you mean 'shared'"),
    ],
)
def test_options_that_a_begun_survey_cannot_follow(
    run_cli: Any, tmp_path: Path, words: list[str], said: str
) -> None:
    read_pack(FIXTURES / "survey.mops", tmp_path)
    data = ["--data", str(FIXTURES / "data")]
    code, _, err = run_cli("survey", str(tmp_path), *data, *words, "--dry-run")
    assert code == 2 and said in err and err.count("\n") == 1
