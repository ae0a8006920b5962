"""What a report reads: a survey, a run, and folders where something is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mops.errors import RunError, UsageError
from mops.reports.figures.curves import draw_curves
from mops.reports.source import read_source
from mops.surveys.results.judge import judge_run
from running import run_python, world


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(world().run, tmp_path / "run")


def test_a_run_is_a_survey_of_one(run: Path) -> None:
    source = read_source(run)
    (one,) = source.results.candidates
    (trial,) = source.trials
    assert source.survey is None and one.is_best and one.against == {} and one.gains == {}
    assert one.trials[0].id == "run" and trial.folder == run
    for task, name in source.results.tasks.items():
        recorded = trial.record.scores.tasks[task]["report"][name]
        assert one.scores[task].mean == pytest.approx(recorded)
    assert source.decision is not None and source.decision.candidate == one.name
    assert [line["step"] for line in trial.curve if "selection" in line] == [4, 8]


def test_a_torn_curve_ends_where_it_is_torn(run: Path) -> None:
    lines = (run / "curve.jsonl").read_text("utf-8").splitlines(keepends=True)
    (run / "curve.jsonl").write_text("".join(lines[:2]) + lines[2][:10], "utf-8")
    assert len(read_source(run).trials[0].curve) == 2


@pytest.mark.parametrize(
    "line",
    [
        "[1, 2]",
        "null",
        '{"step": "a", "epoch": 1, "seconds": 1}',
        '{"step": NaN, "epoch": 1, "seconds": 1}',
        '{"step": 1, "epoch": 1, "seconds": Infinity}',
        '{"step": 1, "epoch": 1, "seconds": 1, "losses": [1]}',
        '{"step": 1, "epoch": 1, "seconds": 1, "losses": {"sentiment": "x"}}',
        '{"step": 2, "epoch": 1, "seconds": 1, "selection": {"sentiment": []}}',
        '{"step": 2, "epoch": 1, "seconds": 1, "overall": "x"}',
        '{"epoch": 1, "seconds": 1}',
    ],
)
def test_a_curve_ends_with_a_line_of_another_kind(run: Path, line: str) -> None:
    first = (run / "curve.jsonl").read_text("utf-8").splitlines()[0]
    (run / "curve.jsonl").write_text(f"{first}\n{line}\n", "utf-8")
    source = read_source(run)
    assert source.trials[0].curve == (json.loads(first),)
    assert not list(draw_curves(source))


def test_a_curve_of_a_task_that_is_not_there_has_no_line(run: Path) -> None:
    path = run / "curve.jsonl"
    path.write_text(path.read_text("utf-8").replace('"sentiment": {', '"other": {'), "utf-8")
    source = read_source(run)
    assert source.trials[0].curve and list(draw_curves(source))


def edit_record(run: Path, part: str, **facts: Any) -> None:
    path = run / "record.json"
    record = json.loads(path.read_text("utf-8"))
    record[part] |= facts
    path.write_text(json.dumps(record | {"predictions_sha256": {}}), "utf-8")


def test_a_shape_that_no_encoder_has_gives_no_layout(run: Path) -> None:
    shape = dict(read_source(run).trials[0].record.meta_info.encoder_shape)
    for facts in ({"depth": 10**6}, {**shape, "depth": 10**6}, {**shape, "width": "x"}):
        edit_record(run, "meta_info", encoder_shape=facts)
        assert read_source(run).layouts == {}


def test_a_number_of_hundreds_of_digits_is_refused(run: Path) -> None:
    edit_record(run, "costs", parameters=10**400)
    with pytest.raises(UsageError, match=r"record\.json.*401 digits"):
        read_source(run)


@pytest.mark.parametrize("column", ["confidence", "loss"])
def test_a_word_in_a_column_of_numbers_is_refused(run: Path, column: str) -> None:
    edit_record(run, "costs")
    path = run / "predictions" / "sentiment-report.csv"
    header, first, *rest = path.read_text("utf-8").splitlines()
    cells = first.split(",")
    cells[header.split(",").index(column)] = "abc"
    path.write_text("\n".join([header, ",".join(cells), *rest]) + "\n", "utf-8")
    with pytest.raises(RunError, match="cannot be read as predictions"):
        read_source(run)


def test_predictions_that_are_not_those_of_the_record_are_refused(run: Path) -> None:
    path = run / "predictions" / "similarity-report.csv"
    header, first, *rest = path.read_text("utf-8").splitlines()
    cells = first.split(",")
    cells[1] = "5.0" if float(cells[1]) < 2.5 else "0.0"
    path.write_text("\n".join([header, ",".join(cells), *rest]) + "\n", "utf-8")
    with pytest.raises(RunError, match="not the predictions that were recorded"):
        read_source(run)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither a survey .* nor a finished run"):
        read_source(tmp_path)


def test_rows_that_judge_are_needed(run: Path) -> None:
    text = (run / "record.json").read_text("utf-8")
    assert '"report": {' in text
    (run / "record.json").write_text(text.replace('"report": {', '"former": {'), "utf-8")
    with pytest.raises(UsageError, match="no labelled row judges this run"):
        judge_run(run)


def test_the_command_loads_neither_torch_nor_the_extra() -> None:
    code = (
        "import sys, mops.cli.report, mops.reports.source;"
        "print([name for name in ('torch', 'matplotlib', 'jinja2') if name in sys.modules])"
    )
    done = run_python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr
