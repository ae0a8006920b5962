"""Files of this format stay readable: a bundle, a run and a packed survey are kept here.

`tests/fixtures` was made with a tiny random encoder on toy data. If a format has to change, its
number rises and these files are made again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import mops
from mops.errors import MopsError
from mops.evaluate.evaluate import read_predictions
from mops.surveys.pack import read_pack
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import read_results
from mops.surveys.run import open_survey

FIXTURES = Path(__file__).parent / "fixtures"
FILES = {"sentiment": "ids-sst", "paraphrase": "quora", "similarity": "sts"}


def test_a_stored_bundle_gives_the_stored_predictions() -> None:
    model = mops.load(FIXTURES / "run" / "model")
    assert set(model.tasks) == set(FILES)
    for name, stem in FILES.items():
        task = model.bundle.layout.tasks[name]
        lines = (FIXTURES / "data" / f"{stem}-dev.csv").read_text().splitlines()[1:]
        texts = [tuple(line.split("\t")[2 : 2 + len(task.text)]) for line in lines]
        stored = read_predictions(FIXTURES / "run/predictions" / f"{name}-validation.csv", task)
        again = model.predict_tasks({name: texts})[name].values
        assert np.allclose(again, stored.values, atol=1e-4), name


def test_a_stored_record_is_read() -> None:
    record = mops.read_record(FIXTURES / "run" / "record.json")
    assert record.run_info.plan == "hybrid:1" and record.train_info.steps == 8
    assert set(record.scores.tasks["similarity"]) == {"report", "validation", "train"}
    assert record.costs.parameters == sum(record.costs.parameters_by_owner.values())


def test_a_stored_survey_is_read_and_judged_the_same(tmp_path: Path) -> None:
    read_pack(FIXTURES / "survey.mops", tmp_path)
    stored = read_results(tmp_path)
    names = [candidate.name for candidate in stored.candidates]
    assert set(names) == {"shared", "separate", "frozen+late:SI"}
    again = judge_survey(open_survey(tmp_path), tmp_path)  # its data are not here
    assert not again.missing and [c.name for c in again.candidates] == names
    for one in stored.candidates:
        for key, score in one.scores.items():
            assert score.mean == pytest.approx(again[one.name].scores[key].mean, abs=1e-12)
            assert score.stderr == pytest.approx(again[one.name].scores[key].stderr, rel=1e-6)
    assert recommend(again).candidate == recommend(stored).candidate in names


def test_a_packed_survey_goes_on_where_its_data_are(tmp_path: Path) -> None:
    read_pack(FIXTURES / "survey.mops", tmp_path)
    survey = open_survey(tmp_path)
    with pytest.raises(MopsError, match=r"cannot be read.*as `data`"):
        survey.trials()[0].id  # noqa: B018
    moved = survey.with_data(FIXTURES / "data")
    assert moved.recipe["tasks"]["similarity"]["train"] == str(FIXTURES / "data/sts-train.csv")
    assert moved.trials()[0].recipe.tasks["similarity"].train == str(
        FIXTURES / "data/sts-train.csv"
    )


@pytest.mark.parametrize(
    ("file", "key"),
    [("run/record.json", "format"), ("run/model/config.json", "mops_bundle")],
)
def test_another_format_is_refused_in_one_line(tmp_path: Path, file: str, key: str) -> None:
    shutil.copytree(FIXTURES / "run", tmp_path / "run")
    path = tmp_path / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 99}))
    with pytest.raises(MopsError, match=r"99|not a bundle of this version") as caught:
        mops.read_record(path) if path.name == "record.json" else mops.load(path.parent)
    assert "\n" not in str(caught.value)
