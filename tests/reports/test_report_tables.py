"""The tables of a report say what the summary says, in every form the same."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from mops.record import Record
from mops.reports.page import render_latex
from mops.reports.report import make_tables
from mops.reports.source import Source, read_source
from mops.surveys.results.tables import race_table
from mops.tables import Cell, Table, markdown_table, to_csv
from surveys import PLANS, make_survey, tear

TASKS = ("sentiment", "paraphrase", "similarity")
NUMBER = re.compile(r"[-+−]?\d+\.\d{3}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    warnings = {"hybrid:2": ("the loss grew",)}
    return make_survey(tmp_path_factory.mktemp("tables"), warnings=warnings)


@pytest.fixture(scope="module")
def source(folder: Path) -> Source:
    return read_source(folder)


@pytest.fixture(scope="module")
def tables(source: Source) -> dict[str, Table]:
    return {table.name: table for table in make_tables(source)}


def rows_by_name(table: Table) -> dict[str, dict[str, Cell]]:
    place = table.columns.index("candidate")
    return {str(row[place].key): dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_the_decision_comes_first_and_nothing_is_empty(source: Source) -> None:
    tables = make_tables(source)
    names = [table.name for table in tables]
    assert names == [
        "decision", "plans", "differences", "gains", "tasks", "mcnemar", "costs", "convergence",
        "front",
    ]  # fmt: skip
    for table in tables:
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows)


def test_the_table_of_tasks_is_made_of_records(source: Source, tables: dict[str, Table]) -> None:
    """Every number again from the records of the trials."""
    table, results = tables["tasks"], source.results
    rows = {
        (str(row[0].key), str(row[1].key)): dict(zip(table.columns, row, strict=True))
        for row in table.rows
    }
    assert set(rows) == {(one.name, task) for one in results.candidates for task in one.tasks}
    tasks = [str(row[1].key) for row in table.rows]  # each task's rows stand together
    assert tasks == sorted(tasks, key=list(results.tasks).index)
    assert table.columns.index("latency") < table.columns.index("accuracy")  # which others lack
    records: dict[str, list[Record]] = {}
    for trial in source.trials:
        records.setdefault(trial.candidate, []).append(trial.record)
    for (name, task), row in rows.items():
        own, one = records[name], results[name]
        scored = [record.scores.tasks[task][results.on] for record in own]
        for metric in ("accuracy", "precision", "recall", "f1", "matthews", "pearson", "spearman"):
            if metric in scored[0]:
                assert row[metric].key == pytest.approx(fmean(s[metric] for s in scored))
            else:
                assert row[metric].text == ""
        for column, other in (("change", "shared"), ("change from separate", "separate")):
            ratio = one.scores[task].mean / results[other].scores[task].mean
            wanted = "" if other == name else pytest.approx(100 * (ratio - 1))
            assert row[column].key == wanted
        shares = [record.train_info.gradient_shares[task] for record in own]
        assert row["gradient"].key == pytest.approx(fmean(shares))
        assert row["FLOPs / row"].key == own[0].costs.flops_per_example[task]
        assert row["latency"].key == one.costs.latency_by_task[task]


def test_changes_in_per_cent_are_those_of_the_overall_scores(
    source: Source, tables: dict[str, Table]
) -> None:
    scores = {one.name: one.overall.mean for one in source.results.candidates}
    for name, row in rows_by_name(tables["differences"]).items():
        assert row["change"].key == pytest.approx(100 * (scores[name] / scores["shared"] - 1))
    for name, row in rows_by_name(tables["costs"]).items():
        assert row["FLOPs / step"].key == source.results[name].costs.flops_per_step


def test_the_plans_have_the_numbers_of_the_summary(folder: Path, tables: dict[str, Table]) -> None:
    stored = json.loads((folder / "summary.json").read_text("utf-8"))
    found = rows_by_name(tables["plans"])
    assert list(found) == [one["name"] for one in stored["candidates"]]
    for one in stored["candidates"]:
        row = found[one["name"]]
        assert row["best?"].text == ("yes" if one["is_best"] else "")
        assert row["overall"].value == one["scores"]["overall"]["mean"]
        assert row["parameters"].value == one["costs"]["parameters"]
        assert row["training"].value == one["costs"]["train_seconds"]
        assert row["TM"].value == one["tm_relative"]
        for task in TASKS:
            more = dict(row[task].more)
            assert row[task].value == one["scores"][task]["mean"]
            assert more["stderr"] == one["scores"][task]["stderr"]
            if one["gains"]:
                assert more["gain"] == one["gains"][task]["mean"]
                assert more["gain_p"] == one["gains"][task]["p"]
        if one["against"]:
            assert row["difference"].value == one["against"]["overall"]["mean"]
    assert found["hybrid:2"]["warnings"] == Cell("2", 2, "the loss grew")


def numbers_in(text: str) -> list[float]:
    return [float(word.replace("−", "-")) for word in NUMBER.findall(text)]


def as_read(table: Table, form: str) -> list[dict[str, str]]:
    """The cells of a table out of a form that people read, a mapping for each row."""
    if form == "markdown":
        text = markdown_table(table).replace("\\", "")
        head, _, *lines = (line[2:-2].split(" | ") for line in text.splitlines())
        return [dict(zip(head, line, strict=True)) for line in lines]
    plain = render_latex(table).replace("$-$", "−").replace("$\\pm$", "±")
    rows: list[dict[str, str]] = [{} for _ in table.rows]
    for panel in re.findall(r"\\toprule\n(.*?)\n\\bottomrule", plain, flags=re.DOTALL):
        lines = [of.removesuffix(" \\tabularnewline").split(" & ") for of in panel.splitlines()]
        head, _, *cells = lines
        for row, line in zip(rows, cells, strict=True):
            row |= dict(zip(head, line, strict=True))
    return rows


@pytest.mark.parametrize("form", ["markdown", "latex"])
@pytest.mark.parametrize("name", ["plans", "differences", "gains"])
def test_all_forms_have_the_numbers_of_the_json(
    folder: Path, tables: dict[str, Table], name: str, form: str
) -> None:
    """JSON = CSV at full precision; Markdown and LaTeX are these numbers with three digits."""
    table = tables[name]
    stored = {
        one["name"]: one
        for one in json.loads((folder / "summary.json").read_text("utf-8"))["candidates"]
    }
    where: dict[str, Any] = {"plans": "scores", "differences": "against", "gains": "gains"}
    read = dict(zip(rows_by_name(table), as_read(table, form), strict=True))
    for row in csv.DictReader(io.StringIO(to_csv(table))):
        one = stored[row["candidate"]]
        for key in TASKS:
            told = one[where[name]].get(key)
            if told is None:
                continue
            assert float(row[key]) == told["mean"]
            assert float(row[f"{key}_stderr"]) == told["stderr"]
            shown = numbers_in(read[row["candidate"]][key])
            assert shown[0] == pytest.approx(told["mean"], abs=5.01e-4)
            if name == "gains":
                assert shown[1:] == pytest.approx([told["low"], told["high"]], abs=5.01e-4)


def test_columns_of_a_flat_file_are_plain_and_different() -> None:
    columns = ("rows / s", "Genauigkeit für ä", "p", "p", "−")
    table = Table(
        "t", "t", columns, ((Cell("a"), Cell("b"), Cell("", 0.1), Cell("", 2), Cell("")),)
    )
    header, row = csv.reader(io.StringIO(to_csv(table)))
    assert header == ["rows_per_s", "genauigkeit_fur_a", "p", "p_2", "column"]
    assert row == ["a", "b", "0.1", "2", ""]


def test_words_with_commas_and_lines_come_back_from_a_flat_file() -> None:
    words = 'a, "b"\nc'
    table = Table("t", "t", ("one", "two"), ((Cell(words), Cell("x", 1 / 3)),))
    _, row = csv.reader(io.StringIO(to_csv(table)))
    assert row[0] == words and float(row[1]) == 1 / 3


def test_numbers_have_a_true_minus_and_names_keep_theirs(tables: dict[str, Table]) -> None:
    texts = [cell.text for table in tables.values() for row in table.rows for cell in row[1:]]
    assert any("−0." in text for text in texts)
    assert not any(re.search(r"(^|[ \[(])-\d", text) for text in texts)
    small = Table("t", "t", ("a",), ((Cell("3.4e-05", 3.4e-5),),))
    assert "10^{-5}" in render_latex(small)


def test_the_rounds_of_a_race(tmp_path: Path, source: Source) -> None:
    """Who was trained when, and why; no rows without rounds."""
    assert not race_table(source.results).rows
    rounds = [
        {"candidates": PLANS, "seeds": [1], "until": 0.25, "why": "time is scarce"},
        {"candidates": PLANS[:2], "seeds": [1, 2], "why": "to the end; dropped: hybrid:2"},
    ]
    race = read_source(make_survey(tmp_path, seeds=1, rounds=rounds))
    assert [len(one.trials) for one in race.results.candidates] == [2, 2, 1, 1]
    (table,) = (table for table in make_tables(race) if table.name == "rounds")
    assert table.texts == [
        ["1", ", ".join(PLANS), "1", "25%", "time is scarce"],
        ["2", "shared, separate", "1, 2", "100%", "to the end; dropped: hybrid:2"],
    ]


def test_the_chances_of_the_candidates(source: Source, tables: dict[str, Table]) -> None:
    decision = source.decision
    assert decision is not None
    rows = rows_by_name(tables["decision"])
    assert (
        list(rows) == [one.name for one in decision.odds] and next(iter(rows)) == decision.candidate
    )
    for one in decision.odds:
        assert rows[one.name]["within 0.01"].value == one.within
        assert rows[one.name]["expected loss"].value == one.regret


def test_one_broken_record_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = make_survey(
        tmp_path, broken=[("separate", 2)], failed=[("hybrid:2", 1)], waiting=[("hybrid:2", 2)]
    )
    tables = {table.name: table for table in make_tables(read_source(folder))}
    assert list(rows_by_name(tables["plans"])) == ["shared", "separate", "frozen+shared"]
    outside = {row[0].text: (row[1].text, row[2].text) for row in tables["outside"].rows}
    assert set(outside) == {"separate, seed 2", "hybrid:2, seed 1", "hybrid:2, seed 2"}
    assert outside["separate, seed 2"][0] == "left out"
    assert "not a record of a run" in outside["separate, seed 2"][1]
    assert outside["hybrid:2, seed 1"] == (
        "failed", "the loss is not a number: lower the learning rate",
    )  # fmt: skip


def test_a_record_that_broke_after_it_was_judged(tmp_path: Path) -> None:
    """The stored summary is of other files, whatever their dates say: it is not believed."""
    folder = make_survey(tmp_path, ("shared", "separate"))
    path = tear(folder, "shared", 1)
    later = (folder / "summary.json").stat().st_mtime_ns
    os.utime(path, ns=(later, later))
    tables = {table.name: table for table in make_tables(read_source(folder))}
    found = [cell.text for cell in tables["outside"].rows[0][:2]]
    assert found == ["shared, seed 1", "left out"]


def test_a_single_run_has_its_table_too(folder: Path) -> None:
    run = next((folder / "trials").iterdir())
    (plans, *_) = make_tables(read_source(run))
    assert plans.name == "plans" and len(plans.rows) == 1
    assert "difference" not in plans.columns
