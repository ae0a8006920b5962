"""The Ray executor: the scores of the local one; a killed worker costs one retry."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'mops-nlp[ray]'")

from executing import RecordingWatcher, ledger_with, trial

from mops.errors import UsageError
from mops.surveys import executors
from mops.surveys.executors import LocalExecutor, RayExecutor, plan_jobs, ray_session
from mops.surveys.ledger import FINISHED, Job, Ledger, SurveyWatcher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


def test_ray_gives_the_scores_of_local_and_survives_a_kill(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of a job kills itself when it hears of the training: nobody has to look."""
    settings = {"training__max_steps": 120, "training__save_steps": 5}
    trials = [trial("shared", **settings), trial("frozen+late:SI"), trial("frozen+late:SI", 2)]
    ledger, watcher = ledger_with(tmp_path / "ray", *trials), RecordingWatcher()

    victim, mark = trials[0].id, tmp_path / "killed"

    def kill_once(folder: Path, job: Job) -> Sequence[str]:
        class Deadly(SurveyWatcher):
            def moved(self, *_: object) -> None:
                if victim in job.ids and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        LocalExecutor(Ledger(folder), Deadly()).run([job])
        return ()

    monkeypatch.setattr(executors, "finish_job", kill_once)
    RayExecutor(ledger, watcher).run(plan_jobs(trials))
    (note,) = watcher.notes
    assert re.fullmatch(r"shared, seed 1: its process died \(.*\) and is started again", note)
    assert sorted(watcher.ends) == ["2 trials on one frozen encoder", "shared, seed 1"]
    assert [ledger.state(one.id) for one in trials] == [FINISHED] * 3
    local = ledger_with(tmp_path / "local", *trials)
    LocalExecutor(local, RecordingWatcher()).run(plan_jobs(trials))
    for one in trials:
        assert ledger.record(one.id).scores == local.record(one.id).scores


def test_a_trial_that_no_machine_can_hold_is_refused(ray: Any) -> None:
    with pytest.raises(UsageError, match="asks for 1000 cores"), ray_session(cpus=1000):
        pass
