"""A survey that was begun with other code, data or another encoder never mixes both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from executing import InProcess, RecordingWatcher

from mops.errors import RecipeError
from mops.surveys import ledger
from mops.surveys.design import Survey, to_survey
from mops.surveys.ledger import Ledger, content_id
from mops.surveys.results.judge import judge_survey
from mops.surveys.run import begin, run_survey
from running import World, world


def two_plans(data: Path) -> Survey:
    made = World(data, world().encoder, world().run)
    design = {"name": "two", "axes": {"plan": ["frozen+shared", "frozen+late:S"]}, "seeds": 1}
    return to_survey(design, made.recipe())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return shutil.copytree(world().data, tmp_path / "data")


def run(data: Path, folder: Path, retrain: bool = False) -> set[str]:
    """The ids of the trials that count."""
    results = run_survey(
        two_plans(data), folder, RecordingWatcher(), executor=InProcess, retrain=retrain
    )
    return {trial.id for one in results.candidates for trial in one.trials}


def test_other_code_is_another_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    one = world().recipe()
    before = content_id(one)
    monkeypatch.setattr(ledger, "code_digest", lambda: "changed")
    assert content_id(one) != before


def test_a_survey_of_other_code_is_refused_or_trained_anew(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mops.surveys.run.measure_costs", lambda *_: {})
    folder = tmp_path / "survey"
    before = run(data, folder)
    assert run(data, folder) == before and len(before) == 2
    monkeypatch.setattr(ledger, "code_digest", lambda: "4711cafe" * 8)
    with pytest.raises(
        RecipeError, match=r"2 trainings.*other code.*there, .*4711cafe here.*`retrain`"
    ):
        run(data, folder)
    read = judge_survey(two_plans(data), folder)  # it is still read as it is
    assert {trial.id for one in read.candidates for trial in one.trials} == before
    anew = run(data, folder, retrain=True)
    assert len(anew) == 2 and not anew & before
    assert set(Ledger(folder).names()) == anew
    assert run(data, folder) == anew


def test_a_survey_of_other_data_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mops.surveys.run.measure_costs", lambda *_: {})
    run(data, tmp_path / "survey")
    elsewhere = shutil.copytree(data, tmp_path / "elsewhere")  # digests are cached by path
    begin(two_plans(elsewhere), tmp_path / "survey")  # only the place has changed
    other = shutil.copytree(data, tmp_path / "other")
    path = other / "sts-train.csv"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(RecipeError, match=r"other data.*the code, .*, is the same"):
        begin(two_plans(other), tmp_path / "survey")


def test_a_record_without_a_digest_of_the_code_is_of_another_version(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mops.surveys.run.measure_costs", lambda *_: {})
    run(data, tmp_path / "survey")
    for path in tmp_path.glob("survey/trials/*/record.json"):
        record = json.loads(path.read_text())
        del record["meta_info"]["code_sha256"]
        path.write_text(json.dumps(record))
    monkeypatch.setattr(ledger, "code_digest", lambda: "4711cafe" * 8)
    with pytest.raises(RecipeError, match="of unknown code there"):
        begin(two_plans(data), tmp_path / "survey")
