"""What was stored is only believed if it is what was recorded, whatever the dates of files say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mops.errors import MopsError, UsageError
from mops.files import file_digest
from mops.surveys.results import judge
from mops.surveys.results.judge import judge_survey, read_judged
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import LEFT_OUT, Results
from running import world
from surveying import MadeSurvey, Skill, made_survey, write_trial


@pytest.fixture
def survey() -> MadeSurvey:
    return made_survey("shared", "separate", seeds=(1, 2))


@pytest.fixture
def folder(tmp_path: Path, survey: MadeSurvey, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Judged and stored; its records have the digests of their predictions."""
    for trial in survey.trials():
        run = write_trial(tmp_path, trial, Skill(0.8, draw=trial.seed))
        path = run / "record.json"
        files = {file.name: file_digest(file) for file in run.glob("predictions/*.csv")}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"predictions_sha256": files}))
    (tmp_path / "survey.yaml").write_text("name: made")
    monkeypatch.setattr(judge, "read_survey", lambda _: survey)
    judge_survey(survey, tmp_path).write()
    return tmp_path


def left_out(results: Results) -> dict[str, str]:
    return {trial.name: trial.reason for trial in results.in_state(LEFT_OUT)}


def test_an_untouched_survey_is_not_judged_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in folder.rglob("*"):  # as a copy has them
        os.utime(path, (2_000_000_000, 2_000_000_000))
    monkeypatch.setattr(judge, "judge_survey", None)
    results = read_judged(folder)
    assert results.key and not left_out(results) and len(results.candidates) == 2


def test_predictions_that_were_changed_do_not_count(folder: Path, survey: MadeSurvey) -> None:
    """Their scores are the recorded ones: two rows have changed places."""
    path = folder / "trials" / survey.trial("separate", 2).id / "predictions/sentiment-report.csv"
    header, first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([header, second, first, *rest]) + "\n")
    summary = folder / "summary.json"
    os.utime(path, (1000, 1000))  # older than what was judged
    assert "separate, seed 2" in (found := left_out(read_judged(folder)))
    assert "not the predictions that were recorded" in found["separate, seed 2"]
    decision = recommend(read_judged(folder))
    assert decision.trial != survey.trial("separate", 2).id and summary.is_file()


def test_folders_of_trials_that_were_swapped_do_not_count(folder: Path, survey: MadeSurvey) -> None:
    one, other = (folder / "trials" / survey.trial("shared", seed).id for seed in (1, 2))
    one.rename(folder / "aside")
    other.rename(one)
    (folder / "aside").rename(other)
    found = left_out(read_judged(folder))
    assert set(found) == {"shared, seed 1", "shared, seed 2"}
    assert (
        "its record is of another training (training.seed: 1 there, 2 here)"
        in found["shared, seed 1"]
    )


def test_a_summary_without_a_key_is_judged_again(folder: Path) -> None:
    path = folder / "summary.json"
    stored = json.loads(path.read_text())
    del stored["key"]
    path.write_text(json.dumps(stored | {"candidates": [], "groups": []}))
    assert len(read_judged(folder).candidates) == 2


def test_scores_that_were_edited_in_a_summary_do_not_count(folder: Path) -> None:
    path = folder / "summary.json"
    stored = json.loads(path.read_text())
    for candidate in stored["candidates"]:
        candidate["scores"]["overall"]["mean"] = 0.99
    path.write_text(json.dumps(stored))
    assert all(one.overall.mean < 0.95 for one in read_judged(folder).candidates)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("costs.json", {"shared": {"train_seconds": "long"}}, "train_seconds must be a number"),
        ("costs.json", {"shared": {"warnings": 3}}, "warnings must be a list"),
        ("costs.json", {"shared": 3}, "shared must be a mapping"),
        ("costs.json", {"shared": {"parameters": 10**400}}, "401 digits"),
        ("names.json", {"abc": [1]}, "abc must be a text"),
    ],
)
def test_values_of_another_type_are_one_line(
    folder: Path, name: str, content: Any, words: str
) -> None:
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(MopsError, match=rf"{name}.*{words}") as caught:
        read_judged(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pause", [{"until": "x"}, {"reached": []}, {"seconds": None}])
def test_a_pause_of_another_type_is_one_line(folder: Path, survey: MadeSurvey, pause: Any) -> None:
    trial = survey.trial("separate", 2).id
    (folder / "paused").mkdir()
    (folder / f"paused/{trial}.json").write_text(json.dumps(pause))
    (folder / f"trials/{trial}/record.json").unlink()
    with pytest.raises(MopsError, match="delete it and run the survey again"):
        read_judged(folder)


def test_names_that_were_swapped_are_the_reason_why_nothing_is_finished(
    folder: Path, survey: MadeSurvey
) -> None:
    names = {trial.name: trial.id for trial in survey.trials()}
    others = dict(zip(names, reversed(names.values()), strict=True))
    (folder / "names.json").write_text(json.dumps({one: name for name, one in others.items()}))
    with pytest.raises(UsageError, match=r"no trial is finished.*record is of another"):
        recommend(read_judged(folder))


def test_a_record_has_the_digests_of_its_predictions() -> None:
    record = json.loads((world().run / "record.json").read_text())
    files = {file.name: file_digest(file) for file in world().run.glob("predictions/*.csv")}
    assert record["predictions_sha256"] == files and len(files) == 9
