"""Tasks that count differently: compared from summary.json, without predictions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mops.errors import UsageError
from mops.surveys.results.judge import compare_group, judge_survey
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import Results, read_results
from surveying import (
    MadeSurvey,
    Skill,
    by_name,
    made_standing,
    made_summary,
    made_survey,
    write_summary,
    write_survey,
)

WEIGHTS = {"sentiment": 3.0}  # and similarity 1


@pytest.fixture
def survey() -> MadeSurvey:
    return made_survey("shared", "near", "poor", single="near")


@pytest.fixture
def folder(tmp_path: Path, survey: MadeSurvey) -> Path:
    """One that is a little worse on nearly the same rows, and one that is much worse.

    The trainings are deleted.
    """
    skills = {"shared": Skill(0.7), "near": Skill(0.64), "poor": Skill(0.4)}
    write_survey(tmp_path, survey, skills)
    write_summary(tmp_path, judge_survey(survey, tmp_path))
    shutil.rmtree(tmp_path / "trials")
    return tmp_path


def reweighted(folder: Path, weights: dict[str, float]) -> Results:
    results = read_results(folder)
    return compare_group(results, results.groups[0], weights)


def test_a_weighted_score_is_the_weighted_mean_of_the_tasks(folder: Path) -> None:
    for name, one in by_name(reweighted(folder, WEIGHTS)).items():
        expected = (3 * one.scores["sentiment"].mean + one.scores["similarity"].mean) / 4
        assert one.overall.mean == pytest.approx(expected), name
        moved = (3 * one.scores["sentiment"].mean + (one.scores["similarity"].mean + 1) / 2) / 4
        assert one.scores["overall_normalised"].mean == pytest.approx(moved)


def test_the_noise_of_rows_is_that_of_the_tasks(folder: Path) -> None:
    """Rows of tasks are drawn independently: variances add up, by the squares of the weights."""
    results = read_results(folder)
    group = results.groups[0]
    joint = results.joint(weights=WEIGHTS)["overall"]
    shared_CC = sum(
        share**2 * np.array(group.rows[task].shared)
        for task, share in (("sentiment", 0.75), ("similarity", 0.25))
    )
    left_CC = joint.covariance_CC - shared_CC
    block = left_CC[0, 1]  # of seeds, which move all candidates alike
    assert block >= 0 and left_CC == pytest.approx(np.diag(joint.run_C / 3) + block)


def test_one_task_alone_is_compared_as_that_task_is(folder: Path) -> None:
    """Errors, differences and all."""
    alone = {"sentiment": 1.0, "similarity": 0.0}
    results = reweighted(folder, alone)
    assert (
        results.joint(weights=alone)["overall"].best_set()
        == results.joint()["sentiment"].best_set()
    )
    for one in results.candidates:
        task, overall = (vars(one.scores[key]) for key in ("sentiment", "overall"))
        assert overall == pytest.approx(task)
        if one.against:
            assert vars(one.against["overall"]) == pytest.approx(vars(one.against["sentiment"]))


def test_equal_weights_change_nothing(folder: Path) -> None:
    plain, weighed = read_results(folder), reweighted(folder, {"sentiment": 2, "similarity": 2})
    for one, other in zip(plain.candidates, weighed.candidates, strict=True):
        assert (one.name, one.is_best) == (other.name, other.is_best)
        assert vars(other.overall) == pytest.approx(vars(one.overall))
    assert recommend(plain, weights={"sentiment": 2, "similarity": 2}) == recommend(plain)


def test_the_same_rows_separate_what_other_rows_would_not(folder: Path) -> None:
    """Answers to the same rows: most of the error of a score is no error of a difference."""
    decision = recommend(read_results(folder), weights=WEIGHTS)
    assert decision.candidate == "shared" and decision.best_set == ("shared",)
    found = by_name(reweighted(folder, WEIGHTS))
    shared, near = found["shared"].overall, found["near"].overall
    assert shared.mean - near.mean < 2 * (shared.stderr + near.stderr)


def test_weights_can_change_the_choice() -> None:
    """One candidate is better in one task, the other in the other one."""
    results = made_summary(
        made_standing("shared", 0.7, stderr=0.001, scores={"a": 0.75, "b": 0.65}),
        made_standing("other", 0.7, stderr=0.001, scores={"a": 0.65, "b": 0.75}),
    )
    for weights, chosen in (({"b": 0.0}, "shared"), ({"a": 0.0}, "other")):
        decision = recommend(results, weights=weights)
        assert decision.candidate == chosen and decision.best_set == (chosen,)
        assert decision.front[0].score == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        ({"mood": 1.0}, "'mood'; the tasks are sentiment, similarity"),
        ({"sentiment": 0, "similarity": 0}, "every task 0"),
    ],
)
def test_weights_that_are_refused(folder: Path, weights: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        recommend(read_results(folder), weights=weights)
