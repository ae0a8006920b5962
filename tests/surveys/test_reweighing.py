"""Tasks that count differently: judged on the same rows and seeds as the plain mean."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mops.errors import UsageError
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import read_reweighted, recommend
from mops.surveys.results.results import Results, read_results
from running import run_cli_with
from surveying import MadeSurvey, Skill, by_name, made_survey, write_summary, write_survey

WEIGHTS = {"sentiment": 3.0}  # and similarity 1


@pytest.fixture
def survey() -> MadeSurvey:
    return made_survey("shared", "near", "poor", single="near")


@pytest.fixture
def folder(tmp_path: Path, survey: MadeSurvey) -> Path:
    """One that is a little worse on nearly the same rows, and one that is much worse."""
    skills = {"shared": Skill(0.7), "near": Skill(0.64), "poor": Skill(0.4)}
    write_survey(tmp_path, survey, skills)
    write_summary(tmp_path, judge_survey(survey, tmp_path))
    return tmp_path


def test_a_weighted_score_is_the_weighted_mean_of_the_tasks(folder: Path) -> None:
    for name, one in by_name(read_reweighted(folder, WEIGHTS)).items():
        expected = (3 * one.scores["sentiment"].mean + one.scores["similarity"].mean) / 4
        assert one.overall.mean == pytest.approx(expected), name
        moved = (3 * one.scores["sentiment"].mean + (one.scores["similarity"].mean + 1) / 2) / 4
        assert one.scores["overall_normalised"].mean == pytest.approx(moved)


def test_one_task_alone_is_judged_as_that_task_is(folder: Path) -> None:
    """Errors, differences and all."""
    for one in by_name(read_reweighted(folder, {"sentiment": 1.0, "similarity": 0.0})).values():
        task, overall = (vars(one.scores[key]) for key in ("sentiment", "overall"))
        assert overall == pytest.approx(task)
        if one.against:
            assert vars(one.against["overall"]) == pytest.approx(vars(one.against["sentiment"]))


def test_equal_weights_change_nothing(folder: Path) -> None:
    plain, weighed = (
        read_results(folder),
        read_reweighted(folder, {"sentiment": 2, "similarity": 2}),
    )
    for one, other in zip(plain.candidates, weighed.candidates, strict=True):
        assert (one.name, one.tie, one.apart) == (other.name, other.tie, other.apart)
        assert vars(other.overall) == pytest.approx(vars(one.overall))
    assert recommend(weighed).candidate == recommend(plain).candidate


def test_the_same_rows_separate_what_other_rows_would_not(folder: Path) -> None:
    """Answers to the same rows: most of the error of a score is no error of a difference."""
    scores = recommend(read_reweighted(folder, WEIGHTS)).scores
    assert {name: of.tie for name, of in scores.items()} == {"shared": 1, "near": 2, "poor": 3}
    shared, near = scores["shared"], scores["near"]
    assert shared.mean - near.mean < 2 * (shared.stderr + near.stderr)


def lose_a_trial(folder: Path, summary: Results) -> None:
    shutil.rmtree(folder / "trials" / summary.candidates[0].trials[0].id)


def change_predictions(folder: Path, summary: Results) -> None:
    """Of a whole trial: its record fits them, the summary does not."""
    first, other = (folder / "trials" / summary.candidates[n].trials[0].id for n in (0, 2))
    shutil.rmtree(first)
    shutil.copytree(other, first)


@pytest.mark.parametrize("damage", [lose_a_trial, change_predictions])
def test_weights_need_the_predictions_that_were_judged(folder: Path, damage: Any) -> None:
    damage(folder, read_results(folder))
    with pytest.raises(UsageError, match=r"again, and some cannot be used: .*trials"):
        read_reweighted(folder, WEIGHTS)


def test_weights_of_unknown_tasks_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="'mood'; the tasks are sentiment, similarity"):
        read_reweighted(folder, {"mood": 1.0})
    with pytest.raises(UsageError, match="every task 0"):
        read_reweighted(folder, {"sentiment": 0, "similarity": 0})


def test_the_command_judges_by_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    run = run_cli_with(monkeypatch, capsys)
    code, out, _ = run("recommend", str(folder), "--weights", "sentiment=3")
    assert code == 0 and "significantly better" in out
