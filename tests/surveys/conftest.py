"""A made survey that several tests judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from surveying import MadeSurvey, Skill, made_survey, write_survey


@pytest.fixture
def survey() -> MadeSurvey:
    return made_survey("shared", "separate", "twin", "poor", single="separate")


@pytest.fixture
def folder(tmp_path: Path, survey: MadeSurvey) -> Path:
    """Three that are equally good, one of them larger, and one that is poor."""
    costs = {"parameters": 40_000_000, "weight_bytes": 160_000_000, "train_seconds": 20.0}
    skills = {"shared": Skill(0.7), "separate": Skill(0.7, costs=costs), "twin": Skill(0.7)}
    return write_survey(tmp_path, survey, skills | {"poor": Skill(0.45)})
