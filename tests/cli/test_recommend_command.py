"""`mops recommend`: the decision on the screen, as JSON, and when nothing fits."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mops.cli.screen import WIDE, print_decision, print_summary
from mops.evaluate import posterior
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import Results
from surveying import made_standing, made_summary, made_trial, write_summary


def three() -> Results:
    return made_summary(
        made_standing("shared", 0.70, stderr=0.002, scores={"a": 0.73, "b": 0.67}),
        made_standing("hybrid:3", 0.703, stderr=0.002, cost=(40, 12, 90)),
        made_standing("separate", 0.69, stderr=0.002, cost=(60, 30, 120)),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_summary(tmp_path, three())
    (tmp_path / "trials" / "shared-1" / "model").mkdir(parents=True)
    return tmp_path


def test_the_decision_and_where_its_model_lies(folder: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("recommend", str(folder))
    assert code == 0
    assert out.startswith("Use shared (20.00 M parameters): within 0.01 of the best with 9")
    assert "hybrid:3 (40.00 M parameters): 99%, expected loss 0.00" in out
    assert "Pareto front" in out
    assert f"mops predict {folder}/trials/shared-1/model INPUT.csv" in out


def test_options_change_the_decision(folder: Path, run_cli: Any) -> None:
    for words, chosen in (
        (["--worth", "0", "--sure", "0.6"], "hybrid:3"),
        (["--worth", "0.05", "--cheapest", "latency"], "shared"),
        (["--weights", "a=0"], "hybrid:3"),
        (["--max-train-time", "100s", "--weights", "a=0"], "hybrid:3"),
        (["--max-params", "30M", "--weights", "a=0"], "shared"),
    ):
        code, out, _ = run_cli("recommend", str(folder), "--json", *words)
        assert code == 0 and json.loads(out)["candidate"] == chosen, words


def test_as_json(folder: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("recommend", str(folder), "--json", "--max-params", "50M")
    found = json.loads(out)
    assert code == 0 and found["candidate"] == "shared" and found["is_decided"]
    assert [one["name"] for one in found["odds"]] == ["shared", "hybrid:3"]
    assert (found["worth"], found["sure"], found["cheapest"]) == (0.01, 0.8, "parameters")
    assert list(found["excluded"]) == ["separate"] and found["more"] is None
    assert {point["name"] for point in found["front"]} == {"shared", "hybrid:3"}
    assert found["model"].endswith("trials/shared-1/model")


def test_more_seeds_are_a_command_that_can_be_run(
    tmp_path: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mops.cli.survey import command

    monkeypatch.setattr(posterior, "SIMULATED", 40)
    scores = {"shared": (0.69, 0.70, 0.71), "b, rate=0.1": (0.70, 0.69, 0.722)}
    candidates = [
        replace(
            made_standing(name, 0.7, stderr=0.001),
            trials=tuple(
                made_trial(n, score=score, digest=f"{name}{n}") for n, score in enumerate(own)
            ),
        )
        for name, own in scores.items()
    ]
    folder = tmp_path / "my survey"
    folder.mkdir()
    write_summary(folder, made_summary(*candidates))
    code, out, _ = run_cli("recommend", str(folder), "--worth", "0.002")
    assert code == 0 and out.startswith("Not decided; use b, rate=0.1")
    (line,) = (line for line in out.splitlines() if "would probably settle it" in line)
    words = shlex.split(line.split("`")[1])
    assert words[:2] == ["mops", "survey"]
    given = command.make_context("survey", words[2:]).params
    assert given["out"] == folder and given["more_seeds"] > 0
    assert set(given["only"]) == set(scores)


def test_nothing_within_the_limits(folder: Path, run_cli: Any) -> None:
    code, out, _ = run_cli("recommend", str(folder), "--max-latency", "5ms")
    assert code == 1
    assert "No candidate meets the limits." in out
    assert "Excluded: shared: latency 10.0 ms, 100% above" in out


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
        (["--cheapest", "money"], "'money' is not one of"),
        (["--sure", "2"], "2"),
        (["--worth", "-1"], "-1"),
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
    decision = recommend(summary)
    print_decision(decision)
    out = capsys.readouterr().out
    table = [line for line in out.splitlines() if line not in decision.lines]
    assert table and max(len(line) for line in table) <= WIDE
    assert "+0.003 [-0.0" in out and "+0.040 [+0.03" in out  # a difference and a gain
