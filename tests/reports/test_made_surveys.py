"""The surveys that reports are tested with are surveys: read, judged and scored as real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from mops.reports.source import read_source
from surveys import make_survey


@pytest.mark.parametrize("on", ["report", "test"])
def test_every_trial_is_accepted(tmp_path: Path, on: str) -> None:
    made = read_source(make_survey(tmp_path, ("shared", "separate"), on=on))
    assert [one.name for one in made.results.candidates] == ["shared", "separate"]
    assert len(made.trials) == 4 and not made.results.missing
    assert (
        not made.results.in_state("left out")
        and not made.results.in_state("waiting")
        and not made.results.in_state("failed")
    )
    assert made.results.single == "separate" and made.results.on == on
    assert all(
        trial.curve and trial.predictions("sentiment", on).is_file() for trial in made.trials
    )


def test_what_is_said_to_be_missing_is_missing(tmp_path: Path) -> None:
    folder = make_survey(
        tmp_path,
        broken=[("shared", 2)],
        failed=[("separate", 1)],
        waiting=[("hybrid:2", 2)],
    )
    summary = read_source(folder).results
    assert [one.name for one in summary.in_state("left out")] == ["shared, seed 2"]
    assert [one.name for one in summary.in_state("failed")] == ["separate, seed 1"]
    assert [one.name for one in summary.in_state("waiting")] == ["hybrid:2, seed 2"]
