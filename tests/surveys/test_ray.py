"""Jobs as Ray tasks: the scores of the local engine; a killed worker costs one retry."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'mops-nlp[ray]'")

from survey.test_local import Heard, ledger_of, scores, trial

from mops.errors import UsageError
from mops.surveys.ledger import FINISHED, Ledger
from mops.surveys.local import Local, plan_jobs
from mops.surveys.ray_engine import Ray, ray_running

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")


def worker_of(folder: Path) -> int:
    """The process that started the child that trains something of this survey; 0: none yet."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_text("utf-8").split("\0")
            if "mops.surveys.child" in words and str(folder) in words:
                return int((place / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
    return 0


def kill_worker(ledger: Ledger, trial_id: str) -> None:
    """SIGKILL for the Ray worker as soon as its trial has a state to go on from."""
    state = ledger.run_folder(trial_id) / "state" / "state.safetensors"
    for _ in range(1200):
        if state.is_file() and (worker := worker_of(ledger.folder)):
            os.kill(worker, signal.SIGKILL)
            return
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the worker in /proc")
def test_ray_gives_the_scores_of_local_and_survives_a_kill(tmp_path: Path) -> None:
    settings = {"training__max_steps": 120, "training__save_steps": 5}
    trials = [trial("shared", **settings), trial("frozen+late:SI"), trial("frozen+late:SI", 2)]
    ledger, heard = ledger_of(tmp_path / "ray", *trials), Heard()
    killer = threading.Thread(target=kill_worker, args=(ledger, trials[0].id))
    killer.start()
    Ray(ledger, heard).run(plan_jobs(trials))
    killer.join()
    assert heard.notes == ["shared, seed 1: its worker died and the job is started again"]
    assert sorted(heard.ends) == ["2 trials on one frozen encoder", "shared, seed 1"]
    assert heard.shares and max(heard.shares) <= 1.0
    assert [ledger.state(one.id) for one in trials] == [FINISHED] * 3
    local = ledger_of(tmp_path / "local", *trials)
    Local(local, Heard()).run(plan_jobs(trials))
    assert [scores(ledger, one) for one in trials] == [scores(local, one) for one in trials]


def test_a_trial_that_no_machine_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="asks for 1000 cores"), ray_running(cpus=1000):
        pass
