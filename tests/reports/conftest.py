"""One made survey that the tests of reports share; tests that change files make their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mops.reports.source import Source, read_source
from surveys import make_survey

STRANGE = "<b>&\"$x_1$' {0}"  # the name of a plan
ODD = {"name": STRANGE, "copies": [{"part": "norms", "per": ["layer", "task"]}]}
PLANS = ("shared", "separate", "hybrid:0", "hybrid:2", "frozen+shared", ODD)


@pytest.fixture(scope="session")
def survey_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports") / "made"
    return make_survey(folder, PLANS, warnings={"hybrid:2": ("the loss grew",)})


@pytest.fixture(scope="session")
def source(survey_folder: Path) -> Source:
    return read_source(survey_folder)


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Twenty-five candidates."""
    rates = {"training.learning_rate": [1e-5, 3e-5, 1e-4, 3e-4, 1e-3]}
    plans = ("shared", "separate", "hybrid:2", "frozen+shared", "late:SIS")
    return read_source(make_survey(tmp_path_factory.mktemp("many"), plans, axes=rates, seeds=1))
