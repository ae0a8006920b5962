"""The Ray executor: the scores of the local one; a killed worker costs one retry."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'mops-nlp[ray]'")

from executing import RecordingWatcher, ledger_with, state_file, trial, wait_until

from mops.errors import UsageError
from mops.surveys.executors import LocalExecutor, RayExecutor, plan_jobs, ray_session
from mops.surveys.ledger import FINISHED
from running import run_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


def find_worker(trial_id: str) -> int:
    """The parent of the process that trains this trial; 0: none yet."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text("utf-8").split("\0")
            if "mops.surveys.executors" in words and trial_id in words:
                return int((process / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the worker in /proc")
def test_ray_gives_the_scores_of_local_and_survives_a_kill(ray: Any, tmp_path: Path) -> None:
    settings = {"training__max_steps": 120, "training__save_steps": 5}
    trials = [trial("shared", **settings), trial("frozen+late:SI"), trial("frozen+late:SI", 2)]
    ledger, watcher = ledger_with(tmp_path / "ray", *trials), RecordingWatcher()

    def kill() -> None:
        wait_until(lambda: state_file(ledger, trials[0]).is_file() and find_worker(trials[0].id))
        os.kill(find_worker(trials[0].id), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    RayExecutor(ledger, watcher).run(plan_jobs(trials))
    killer.join()
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


REFUSED = """
import os, sys, ray
os.environ["RAY_AUTH_TOKEN"] = "0" * 64
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="CRITICAL")
"""


def test_a_cluster_of_our_own_is_closed(ray: Any) -> None:
    """It listens on this machine alone, and a process without its token does not get in."""
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
    address = ray.get_runtime_context().gcs_address
    assert address.startswith("127.0.0.1:") and os.environ["RAY_AUTH_TOKEN"] != "0" * 64
    stranger = run_python("-c", REFUSED, address, timeout=120)
    assert stranger.returncode and "oken" in stranger.stderr
