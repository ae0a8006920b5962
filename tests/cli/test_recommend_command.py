"""`mops recommend`: the decision on the screen, as JSON, and when nothing fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mops.cli.screen import WIDE
from mops.cli.survey_screen import print_decision, print_summary
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import Results
from surveying import made_difference, made_standing, made_summary, write_summary


def three() -> Results:
    against = {"overall": made_difference(-0.01)}
    gains = {"a": made_difference(0.03, is_significant=True), "b": made_difference(-0.01)}
    return made_summary(
        made_standing("shared", 0.70, gains=gains),
        made_standing("hybrid:3", 0.71, cost=(40, 12, 90), against=against, gains=gains),
        made_standing("separate", 0.69, cost=(60, 30, 120), against=against),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    summary = three()
    write_summary(tmp_path, summary)
    (tmp_path / "trials" / "shared-1" / "model").mkdir(parents=True)
    return tmp_path


def test_the_decision_and_where_its_model_lies(folder: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("recommend", str(folder))
    assert code == 0
    assert "Use shared with 0.700 ± 0.010 over 3 seeds" in out
    assert "Tied with it: hybrid:3, separate." in out and "Pareto front" in out
    assert f"mops predict {folder}/trials/shared-1/model INPUT.csv" in out


def test_as_json(folder: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("recommend", str(folder), "--json", "--max-params", "50M")
    found = json.loads(out)
    assert code == 0 and found["candidate"] == "shared" and found["tied"] == ["hybrid:3"]
    assert list(found["excluded"]) == ["separate"]
    assert {point["name"] for point in found["front"]} == {"shared", "hybrid:3"}
    assert found["model"].endswith("trials/shared-1/model")


def test_nothing_within_the_limits(folder: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("recommend", str(folder), "--max-latency", "5ms")
    assert code == 1
    assert (
        "No candidate meets the limits; the nearest is shared: latency 10.0 ms, 100% above" in out
    )


def test_a_model_that_was_not_kept(folder: Path, run_cli: Any) -> None:
    (folder / "trials" / "shared-1" / "model").rmdir()
    code, out, _ = run_cli("recommend", str(folder))
    assert code == 0 and "was not kept" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--max-params", "many"], "--max-params 'many': write a number above 0 and its unit"),
        (["--max-latency", "20"], "--max-latency '20'"),
        (["--weights", "a"], "write TASK=NUMBER"),
        (["--weights", "sentiment=1"], "the tasks are a, b"),
        (
            ["--weights", "a=2"],
            "--weights compares stored predictions again, and some cannot be used",
        ),
    ],
)
def test_wrong_words(folder: Path, run_cli: Any, words: list[str], error: str) -> None:
    code, _, err = run_cli("recommend", str(folder), *words)
    assert code == 2 and error in err and err.count("\n") == 1


def test_a_folder_that_is_no_survey(tmp_path: Path, run_cli: Any) -> None:
    code, _, err = run_cli("recommend", str(tmp_path))
    assert code == 2 and "not the results of a survey" in err and err.count("\n") == 1


def test_tables_fit_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    summary = three()
    print_summary(summary)
    print_decision(recommend(summary))
    out = capsys.readouterr().out
    table = [line for line in out.splitlines() if not line.startswith(("Use ", "Against "))]
    assert table and max(len(line) for line in table) <= WIDE
    assert "-0.010 [-0.030, +0.010]" in out and "+0.030 [+0.010, +0.050]*" in out
