"""Transfer between tasks: a task beside another one against the same task alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from executing import InProcess, RecordingWatcher

from mops.surveys.experiments import named_survey
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.transfer import measure_transfer, transfer_table
from mops.surveys.run import run_survey
from running import world

NAMES = ["sentiment", "paraphrase", "similarity"]


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)


def test_differences_from_the_task_alone(tmp_path: Path) -> None:
    survey = named_survey("transfer", world().recipe()).changed(steps=3, seeds=2)
    run_survey(survey, tmp_path, RecordingWatcher(), executor=InProcess)
    results, transfer = judge_survey(survey, tmp_path), measure_transfer(survey, tmp_path)
    assert list(transfer) == NAMES
    for task, beside in transfer.items():
        alone = results[f"shared, train_tasks={task}"].scores[task].mean
        assert set(beside) == set(NAMES) - {task}
        for other, difference in beside.items():
            pair = "+".join(name for name in NAMES if name in (task, other))
            score = results[f"shared, train_tasks={pair}"].scores[task].mean
            assert np.isclose(difference.mean, score - alone)
            assert difference.low <= difference.mean <= difference.high
    table = transfer_table(survey, tmp_path)
    assert table.columns == ("task", *NAMES)
    assert [row[n + 1].text for n, row in enumerate(table.rows)] == [""] * 3


def test_a_survey_without_single_tasks_has_none(tmp_path: Path) -> None:
    survey = named_survey("trunks", world().recipe()).changed(steps=1, seeds=1)
    assert measure_transfer(survey, tmp_path) == {}
    assert transfer_table(survey, tmp_path).rows == ()
