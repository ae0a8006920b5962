"""A survey that is killed at several states ends as one that was left in peace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executing import wait_until

from running import QUICK, SOURCE, world

pytestmark = pytest.mark.slow
PLANS = ("shared", "frozen+shared", "frozen+late:SI")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)}
# A state of the folder; whether only the process that trains is killed there.
STATES: tuple[tuple[Callable[[Path], object], bool], ...] = (
    (lambda folder: (folder / "survey.yaml").is_file(), False),
    (lambda folder: list(folder.glob("trials/*/state/state.safetensors")), True),
    (lambda folder: list(folder.glob("trials/*/record.json")), False),
    (lambda folder: (folder / ".costs").is_dir(), False),
)


def start(folder: Path) -> subprocess.Popen[str]:
    here = world()
    command = [sys.executable, "-m", "mops", "survey", "trunks", "--data", str(here.data)]
    command += ["--encoder", str(here.encoder), "--seeds", "2", "--max-steps", "60"]
    command += [word for plan in PLANS for word in ("--plan", plan)]
    for key in ("training.max_length", "training.threads", "training.per_task_batch_size"):
        command += ["--set", f"{key}={QUICK[key]}"]
    command += ["--set", "training.save_steps=5", "--out", str(folder), "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(word) for word in listed.read_text("utf-8").split()] if listed.is_file() else []


def kill_at(folder: Path, is_reached: Callable[[Path], object], only_child: bool) -> None:
    """SIGKILL for the child, then for the survey, or for the survey alone, at a state."""
    survey = start(folder)
    wait_until(lambda: is_reached(folder) or survey.poll() is not None, 900)
    assert survey.poll() is None, "the survey ended before it reached the state"
    for child in children(survey.pid) if only_child else ():
        os.kill(child, signal.SIGKILL)
    survey.kill()
    survey.communicate()


def outcome(folder: Path, out: str) -> dict[str, Any]:
    """All results but those measured in seconds and bytes."""
    summary = json.loads(out)
    judged = ("name", "scores", "against", "gains", "mcnemar", "is_best", "missing_seeds")
    summary["candidates"] = [{key: one[key] for key in judged} for one in summary["candidates"]]
    records = {file.parent.name: json.loads(file.read_text("utf-8"))["scores"]
               for file in sorted(folder.glob("trials/*/record.json"))}  # fmt: skip
    keys = ("candidates", "missing", "rows", "seeds")
    return {"records": records, **{key: summary[key] for key in keys}}


def test_kills_change_nothing(tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    undisturbed, _ = start(calm).communicate(timeout=1200)
    for is_reached, only_child in STATES:
        kill_at(killed, is_reached, only_child)
    out, err = (last := start(killed)).communicate(timeout=1200)
    assert last.returncode == 0, err
    expected = outcome(calm, undisturbed)
    assert len(expected["records"]) == 2 * len(PLANS)
    assert outcome(killed, out) == expected
    assert not list(killed.glob("failed/*"))
