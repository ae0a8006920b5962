"""A greedy search over letters: what it tries, when it stops, and which rows judge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executing import InProcess, RecordingWatcher

from mops.data.dataset import read_dataset
from mops.errors import PlanError, RunError
from mops.evaluate.evaluate import read_predictions
from mops.evaluate.metrics import score
from mops.surveys import greedy
from mops.surveys.design import Survey
from mops.surveys.greedy import first_regimes, regime_survey, search_regimes, split_rows
from mops.surveys.ledger import Ledger
from mops.surveys.results import judge
from mops.surveys.results.judge import judge_survey
from mops.surveys.run import open_survey, train_round
from mops.surveys.tune import budget_in_steps
from running import world
from surveying import ROWS, TASKS, Skill, plain_recipe, write_trial

HALF = np.arange(ROWS) % 2 == 0
SELECTING, JUDGING = (dict.fromkeys(TASKS, half) for half in (HALF, ~HALF))


class Made:
    """Stands for training: every plan answers with the skill that it has here."""

    def __init__(self, folder: Path, skills: Mapping[str, float]) -> None:
        self.folder, self.skills, self.trained = folder, skills, list[str]()

    def __call__(self, survey: Survey) -> None:
        ledger = Ledger(self.folder)
        for trial in survey.trials():
            if not ledger.is_finished(trial.id):
                name = trial.candidate.name
                draw = 1 + len(set(self.trained))
                skill = Skill(self.skills.get(name, 0.6), draw=draw)
                write_trial(self.folder, trial, skill)
                self.trained.append(name)


def search(plan: str, folder: Path, skills: Mapping[str, float], monkeypatch: Any) -> Any:
    monkeypatch.setattr(greedy, "split_rows", lambda _: (SELECTING, JUDGING))
    monkeypatch.setattr(judge, "settings_of", lambda _: {})  # made records are of other tasks
    made = Made(folder, skills)
    return search_regimes(world().recipe(plan), folder, made, 3), made


def test_the_letter_that_gains_most_is_changed_until_none_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skills = {"late:ISS": 0.7, "late:SSI": 0.65, "late:ISI": 0.8}
    result, made = search("late:SSS", tmp_path, skills, monkeypatch)
    steps = [(move.plan, move.best, move.is_taken) for move in result.moves]
    assert steps[:2] == [("late:SSS", "late:ISS", True), ("late:ISS", "late:ISI", True)]
    assert (steps[2][0], steps[2][2]) == ("late:ISI", False) and len(steps) == 3
    assert result.winner == "late:ISI"
    assert made.trained.count("late:SSS") == 3 + 3  # and the default again, with fresh seeds
    assert len(set(made.trained)) == 1 + 3 + 2 + 1  # each round but the first has known neighbours
    assert {trial.name for trial in result.tried} == set(made.trained)
    assert not set(result.seeds) & {3, 4, 5}  # of the recipe and the next ones
    assert result.difference.mean == pytest.approx(0.2, abs=0.05) and result.warning == ""


def test_noise_is_no_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, made = search("late:SSS", tmp_path, {}, monkeypatch)
    (move,) = result.moves
    assert not move.is_taken and result.winner == "late:SSS" and result.difference is None
    assert "keep the default" in result.warning
    assert len(made.trained) == 4 * 3  # nothing is compared with itself


def test_a_search_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skills = {"late:IS": 0.7, "late:II": 0.8}
    first, _ = search("late:SS", tmp_path, skills, monkeypatch)
    names = {trial.name for trial in open_survey(tmp_path).trials()}
    again, nothing = search("late:SS", tmp_path, skills, monkeypatch)
    assert again == first and not nothing.trained
    assert {"late:SS", "late:IS", "late:SI", "late:II"} == {name.split(",")[0] for name in names}


def test_selecting_rows_do_not_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half alone scores every trial."""
    search("late:SS", tmp_path, {"late:IS": 0.7}, monkeypatch)
    survey = open_survey(tmp_path)
    whole = judge_survey(survey, tmp_path)
    for rows in (SELECTING, JUDGING):
        results = judge_survey(survey, tmp_path, rows)
        assert results.rows == dict.fromkeys(TASKS, ROWS // 2)
        for one in results.candidates:
            for trial, other in zip(one.trials, whole[one.name].trials, strict=True):
                assert trial.id == other.id and trial.scores != other.scores
                mean = np.mean([trial.scores[task] for task in TASKS])
                assert trial.scores["overall"] == pytest.approx(mean)
    halves = [judge_survey(survey, tmp_path, rows)["late:IS"] for rows in (SELECTING, JUDGING)]
    parts = [np.mean([t.scores["sentiment"] for t in half.trials]) for half in halves]
    both = np.mean([t.scores["sentiment"] for t in whole["late:IS"].trials])
    assert np.mean(parts) == pytest.approx(both)


def test_some_rows_have_the_score_of_these_rows(tmp_path: Path, monkeypatch: Any) -> None:
    search("late:SS", tmp_path, {}, monkeypatch)
    survey = open_survey(tmp_path)
    (first, *_) = judge_survey(survey, tmp_path, SELECTING)["late:SS"].trials
    task = plain_recipe().task_values()["similarity"]
    file = tmp_path / "trials" / first.id / "predictions" / "similarity-report.csv"
    rows = read_predictions(file, task)
    expected = score(task, rows.targets[HALF], rows.values[HALF])["pearson"]
    assert first.scores["similarity"] == pytest.approx(expected)


def test_the_halves_share_no_sentence() -> None:
    recipe = world().recipe()
    halves = split_rows(recipe)
    for task, splits in read_dataset(recipe).splits.items():
        rows = splits["validation"].rows
        first, second = (
            {text for n in np.flatnonzero(half[task]) for text in rows[n].texts} for half in halves
        )
        assert first and second and not first & second
        assert (halves[0][task] ^ halves[1][task]).all()


def test_without_a_trial_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "split_rows", lambda _: (SELECTING, JUDGING))
    monkeypatch.setattr(judge, "settings_of", lambda _: {})  # made records are of other tasks

    def fail(survey: Survey) -> None:
        ledger = Ledger(tmp_path)
        for trial in survey.trials():
            ledger.fail(trial.id, "gone")

    with pytest.raises(RunError, match=r"late:SS or all plans near it have no finished.*gone"):
        search_regimes(world().recipe("late:SS"), tmp_path, fail, 2)


@pytest.mark.parametrize("plan", ["shared", "hybrid:1", "late:N", {"name": "rows"}])
def test_a_plan_without_letters_is_refused(plan: Any) -> None:
    with pytest.raises(PlanError, match="letters"):
        first_regimes(world().recipe(plan))


@pytest.mark.slow
def test_a_search_that_trains(tmp_path: Path) -> None:
    """Frozen late layers, trained as one batch; the second search trains nothing."""
    recipe = budget_in_steps(world().recipe("frozen+late:SS", training__max_steps=4))
    executor = InProcess(Ledger(tmp_path), RecordingWatcher())

    def train(survey: Survey) -> None:
        train_round(survey.trials(), executor)

    assert len(regime_survey(recipe, first_regimes(recipe), 2).trials()) == 3 * 2
    first = search_regimes(recipe, tmp_path, train, 2)
    assert first.moves and {trial.state for trial in first.tried} == {"finished"}
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/record.json")}
    assert search_regimes(recipe, tmp_path, train, 2) == first
    assert written == {p: p.stat().st_mtime_ns for p in tmp_path.glob("trials/*/record.json")}
