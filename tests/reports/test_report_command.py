"""`mops report` as a user types it: the files it leaves, what it says, what it refuses."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from mops import reports
from running import run_cli_with, run_python
from surveys import make_large_survey, make_survey

TORCHLESS = (
    "import sys, time\n"
    "from mops.cli.main import cli\n"
    "cli.main(['report', *sys.argv[1:]], standalone_mode=False)\n"
    "assert 'torch' not in sys.modules\n"
    "print(time.process_time())\n"
)
SECONDS = 15.0  # of the processor, imports included: five times what a quiet machine takes


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    return run_cli_with(monkeypatch, capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_survey(tmp_path_factory.mktemp("reports") / "mine")


def files_of(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }


def test_all_files_and_the_same_bytes_again(folder: Path, run_cli: Any, tmp_path: Path) -> None:
    """The page, the text, tables as CSV and LaTeX, figures; the survey itself is left alone."""
    before = files_of(folder)
    first, second = tmp_path / "first", tmp_path / "second"
    code, out, err = run_cli("report", str(folder), "--out", str(first))
    assert (code, out, err) == (0, f"report: {first / 'report.html'}\n", "")
    run_cli("report", str(folder), "--out", str(second))
    made = files_of(first)
    assert made == files_of(second) and files_of(folder) == before
    assert {"report.html", "report.md", "tables/plans.csv", "tables/plans.tex"} <= set(made)
    assert any(name.startswith("figures/pareto") and name.endswith(".svg") for name in made)
    assert not any(name.endswith((".png", ".part")) for name in made)


def test_where_nothing_else_is_said_it_lies_in_the_survey(folder: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("report", str(folder), "--json")
    found = json.loads(out)
    assert code == 0 and found["report"] == str(folder / "report.html")
    assert all(Path(file).is_file() for file in found["files"])
    assert found["candidate"] in (folder / "report.md").read_text("utf-8")


def test_figures_as_png(folder: Path, run_cli: Any, tmp_path: Path) -> None:
    code, _, _ = run_cli("report", str(folder), "--png", "--out", str(tmp_path))
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    plans = {name for name in drawn if name.startswith("plan-")}  # diagrams, not charts
    pictures = list((tmp_path / "figures").glob("*.png"))
    assert code == 0 and plans and {path.stem for path in pictures} == drawn - plans
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_like_a_paper(folder: Path, run_cli: Any, tmp_path: Path) -> None:
    code, out, _ = run_cli("report", str(folder), "--like", "hybrid", "--out", str(tmp_path))
    assert code == 0 and "does not hold" in out
    assert "does not hold" in (tmp_path / "report.html").read_text("utf-8")
    code, _, err = run_cli("report", str(folder), "--like", "nobody")
    assert code == 2 and "milestone" in err and err.count("\n") == 1


def test_one_broken_record_is_named_and_the_rest_is_shown(run_cli: Any, tmp_path: Path) -> None:
    place = make_survey(tmp_path / "torn", broken=[("hybrid:2", 1)])
    code, _, err = run_cli("report", str(place))
    page = (place / "report.html").read_text("utf-8")
    assert code == 0, err
    assert "hybrid:2, seed 1" in page and all(
        plan in page for plan in ("separate", "frozen+shared")
    )


def test_a_survey_in_which_nothing_is_finished(run_cli: Any, tmp_path: Path) -> None:
    seeds = [(plan, 1) for plan in ("shared", "separate")]
    place = make_survey(tmp_path / "new", ("shared", "separate"), seeds=1, waiting=seeds)
    code, _, err = run_cli("report", str(place))
    assert code == 0, err
    assert "No trial is finished" in (place / "report.html").read_text("utf-8")


def test_opened_in_the_browser(folder: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is none, the page is named."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    code, _, err = run_cli("report", str(folder), "--open")
    assert code == 0 and opened == [(folder / "report.html").as_uri()]
    assert "report.html yourself" in err


def test_what_is_no_survey(run_cli: Any, tmp_path: Path) -> None:
    code, _, err = run_cli("report", str(tmp_path))
    assert code == 2 and "neither a survey" in err and err.count("\n") == 1


def test_without_the_extra(folder: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "find_spec", lambda name: None if name == "matplotlib" else name)
    code, _, err = run_cli("report", str(folder))
    assert code == 2 and err.count("\n") == 1
    assert "needs matplotlib" in err and 'pip install "mops-nlp[report]"' in err


@pytest.mark.slow
def test_two_hundred_trials_without_torch(tmp_path: Path) -> None:
    place = make_large_survey(tmp_path / "large", broken=[("shared, learning_rate=1e-05", 1)])
    done = run_python("-W", "error", "-c", TORCHLESS, str(place))
    assert done.returncode == 0, done.stderr
    assert "seed 1" in (place / "report.html").read_text("utf-8")
    assert float(done.stdout.splitlines()[-1]) < SECONDS
