"""A summary as files: complete, flat, and to be read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from mops.errors import UsageError
from mops.surveys.results.files import to_csv, to_markdown
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.results import read_results
from surveying import MadeSurvey, by_name, write_summary


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


def test_the_flat_file_has_the_columns_of_the_late_paper(folder: Path, survey: MadeSurvey) -> None:
    """Regime, learning rate, weights, score, epoch, task scores, time, size, TM."""
    summary = judge_survey(survey, folder)
    rows = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert [row["candidate"] for row in rows] == ["shared", "separate", "twin", "poor"]
    (poor,) = (row for row in rows if row["candidate"] == "poor")
    found = by_name(summary)["poor"]
    assert float(poor["overall"]) == found.overall.mean
    assert float(poor["difference_overall_high"]) == found.against["overall"].high
    assert float(poor["gain_similarity"]) == found.gains["similarity"].mean
    assert float(poor["best_step"]) == 50 and float(poor["best_epoch"]) == 1
    assert float(poor["train_seconds"]) == 10 and float(poor["weight_bytes"]) == 80_000_000
    assert float(poor["tm_relative"]) == found.tm_relative
    assert json.loads(poor["loss_weights"]) == {"sentiment": 1.0, "similarity": 1.0}
    assert {"plan", "learning_rate", "head_learning_rate", "sentiment", "similarity"} <= set(poor)
    assert len(poor["trials"].split()) == 3


def test_the_page_to_read(folder: Path, survey: MadeSurvey) -> None:
    text = to_markdown(judge_survey(survey, folder))
    for words in ("Use ", "## Scores", "## Gains", "## Costs", "selection half", "200"):
        assert words in text
    blocks = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert [cell for cell in blocks if cell.isdigit()] == ["1", "2"]  # a tie is one block
