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
from running import run_python

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


CLOSED = """
import os, subprocess, sys
from mops.surveys.executors import ray_session

stranger = '''
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="CRITICAL")
'''
with ray_session() as ray:
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
    address = ray.get_runtime_context().gcs_address
    words = [sys.executable, "-c", stranger, address]
    for token, is_in in ((os.environ["RAY_AUTH_TOKEN"], True), ("0" * 64, False)):
        environment = os.environ | {"RAY_AUTH_TOKEN": token}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
        assert (done.returncode == 0) == is_in, done.stderr
        assert is_in or "oken" in done.stderr, done.stderr
"""


def test_a_cluster_of_our_own_is_closed() -> None:
    """It listens on this machine alone, and a process without its token does not get in."""
    done = run_python("-c", CLOSED)
    assert done.returncode == 0, done.stderr
