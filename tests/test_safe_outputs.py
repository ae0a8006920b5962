"""Cells and labels in files that spreadsheets and Markdown readers open."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mops.data.dataset import Row
from mops.evaluate.evaluate import read_columns, write_predictions
from mops.predict.bundle import load_bundle
from mops.predict.card import format_card
from mops.predict.inference import decide
from mops.serve.bulk import CSV, RAW_CSV
from mops.tables import (
    Cell,
    Table,
    code_span,
    escape_markdown,
    to_csv,
    visible,
    with_formula,
    without_formula,
)
from mops.tasks import Task

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-a", "@SUM(A1)", "\t=1", "＝1"]
NUMBERS = ["-1", "+2.5", "-1e-3", "0", "-inf"]


@pytest.mark.parametrize("cell", FORMULAS)
def test_a_formula_gets_a_quote(cell: str) -> None:
    assert without_formula(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", [*NUMBERS, "", "a=b", "it's", "'quoted'"])
def test_other_cells_stay(cell: str) -> None:
    assert without_formula(cell) == cell == with_formula(cell)


@given(st.text(alphabet="'=+-@a1.\t"))
def test_every_cell_is_read_as_it_was(cell: str) -> None:
    assert with_formula(without_formula(cell)) == cell


def named_task(*labels: str) -> Task:
    return Task(name="t", type="classification", text=("x",), label="y", labels=labels)


def answers_of(task: Task) -> Any:
    import numpy as np

    return decide(task, np.eye(2, dtype=np.float32))


def test_predictions_are_written_safely_and_read_back(tmp_path: Path) -> None:
    task = named_task("=1+1", "'-x")
    rows = [Row("=id", ("a",), "=1+1", "f:1"), Row("-7", ("b",), "'-x", "f:2")]
    path = tmp_path / "t-test.csv"
    write_predictions(path, rows, answers_of(task))
    cells = list(csv.reader(io.StringIO(path.read_text("utf-8"))))
    assert [row[:3] for row in cells[1:]] == [["'=id", "'=1+1", "'=1+1"], ["-7", "''-x", "''-x"]]
    read = read_columns(path)
    assert read["id"].tolist() == ["=id", "-7"] and read["label"].tolist() == ["=1+1", "'-x"]


def test_predicted_files_are_safe_unless_raw_is_asked_for() -> None:
    answers = {"t": answers_of(named_task("=1+1", "b"))}
    assert CSV.lines(["=id", "2"], answers) == "'=id,'=1+1\n2,b\n"
    assert RAW_CSV.lines(["=id", "2"], answers) == "=id,=1+1\n2,b\n"


def test_tables_of_a_report_are_safe() -> None:
    table = Table("n", "t", ("a", "b"), ((Cell("=1+1"), Cell("-2.0", -2.0)),))
    assert to_csv(table) == "a,b\n'=1+1,-2.0\n"


def test_markdown_escapes_hidden_characters_and_code() -> None:
    assert escape_markdown("a\u202eb|`<x>") == r"a\\u202eb\|\`&lt;x&gt;"
    assert visible("soft\xadhyphen, tag \U000e0041") == r"soft\u00adhyphen, tag \udb40\udc41"
    assert code_span("a`b\nc\x1b") == r"`a'b c\u001b`"


def test_the_card_escapes_what_a_bundle_says(tmp_path: Path) -> None:
    fixture = Path(__file__).parent / "fixtures/run/model"
    folder = Path(shutil.copytree(fixture, tmp_path / "model"))
    for file, old, new in (
        ("tasks.yaml", "['0', '1', '2', '3', '4']", '["<b>", "|", "[x](y)", "3", "4"]'),
        ("plan.yaml", "name: hybrid:1", 'name: "a`<script>`"'),
    ):
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
    bundle = load_bundle(folder)
    card = format_card(bundle.layout, {**bundle.config, "encoder_licence": "x\n---\n<b>"})
    assert "a'<script>'" in card and "a`<script>`" not in card
    assert "licence: x --- &lt;b&gt;" in card
    assert "&lt;b&gt;, \\|, \\[x\\](y), 3, 4" in card and "<b>" not in card
