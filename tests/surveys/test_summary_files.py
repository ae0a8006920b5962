"""A summary as files: complete, flat, and to be read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from mops.errors import UsageError
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.results import read_results
from mops.surveys.results.tables import to_csv, to_markdown
from surveying import MadeSurvey, write_summary


def test_summary_reads_back_as_it_was(folder: Path, survey: MadeSurvey) -> None:
    summary = judge_survey(survey, folder)
    write_summary(folder, summary)
    assert read_results(folder) == summary
    assert json.loads((folder / "summary.json").read_text("utf-8"))["baseline"] == "shared"


def test_what_is_no_summary(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"summary\.json is not the results"):
        read_results(tmp_path)
    for data, problem in (({}, "its format is None, expected 1"), ({"format": 1}, "baseline")):
        (tmp_path / "summary.json").write_text(json.dumps({"name": "x", **data}), "utf-8")
        with pytest.raises(UsageError, match=problem):
            read_results(tmp_path)


def test_the_flat_file_has_the_paths_of_the_json_as_columns(
    folder: Path, survey: MadeSurvey
) -> None:
    results = judge_survey(survey, folder)
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(to_csv(results)))}
    assert list(rows) == ["shared", "separate", "twin", "poor"]
    poor, row = results["poor"], rows["poor"]
    assert float(row["scores.overall.mean"]) == poor.overall.mean
    assert float(row["against.overall.high"]) == poor.against["overall"].high
    assert float(row["gains.similarity.mean"]) == poor.gains["similarity"].mean
    assert row["trials.best_step"] == "50 50 50" and row["trials.warnings"] == "0"
    assert row["trials.passes.sentiment"] == "8.0 8.0 8.0"
    assert float(row["costs.train_seconds"]) == 10
    assert float(row["costs.weight_bytes"]) == 80_000_000
    assert float(row["tm_relative"]) == poor.tm_relative
    assert row["settings.plan"] == "poor" and float(row["loss_weights.sentiment"]) == 1.0


def test_the_page_to_read(folder: Path, survey: MadeSurvey) -> None:
    text = to_markdown(judge_survey(survey, folder))
    for words in ("Use ", "## Scores", "## Gains", "## Costs", "selection half", "200"):
        assert words in text
    blocks = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert [cell for cell in blocks if cell.isdigit()] == ["1", "2"]  # a tie is one block
