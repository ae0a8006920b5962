"""A survey that is killed again and again ends as one that was left in peace."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running import QUICK, SOURCE, world

KILLS = 5
PLANS = ("shared", "frozen+shared", "frozen+late:SI")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)}


def command(folder: Path) -> list[str]:
    here = world()
    found = [sys.executable, "-m", "mops", "survey", "trunks", "--data", str(here.data)]
    found += ["--encoder", str(here.encoder), "--seeds", "2", "--max-steps", "60"]
    found += [word for plan in PLANS for word in ("--plan", plan)]
    for key in ("training.max_length", "training.threads", "training.per_task_batch_size"):
        found += ["--set", f"{key}={QUICK[key]}"]
    return [*found, "--set", "training.save_steps=5", "--out", str(folder), "--json"]


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(word) for word in listed.read_text("utf-8").split()] if listed.is_file() else []


def kill_at_random(folder: Path) -> Iterator[str]:
    """In turn the whole survey and only the process that trains, at moments of its own."""
    draw = random.Random(7)
    for number in range(KILLS):
        survey = start(folder)
        time.sleep(draw.uniform(3, 9))
        of_survey = children_of(survey.pid)
        victims = of_survey if number % 2 and of_survey else [survey.pid]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        yield "child" if victims == of_survey else "survey"
        if victims == of_survey:
            time.sleep(2)
            survey.kill()
        survey.communicate()


def outcome(folder: Path, out: str) -> dict[str, Any]:
    """All but what was measured in seconds and bytes."""
    summary = json.loads(out)
    judged = ("name", "scores", "against", "gains", "mcnemar", "tie", "missing_seeds")
    summary["standings"] = [{key: one[key] for key in judged} for one in summary["standings"]]
    records = {file.parent.name: json.loads(file.read_text("utf-8"))["scores"]
               for file in sorted(folder.glob("trials/*/record.json"))}  # fmt: skip
    keys = ("standings", "failed", "doubtful", "waiting", "rows", "seeds")
    return {"records": records, **{key: summary[key] for key in keys}}


def test_kills_change_nothing(tmp_path: Path) -> None:
    calm, hunted = tmp_path / "calm", tmp_path / "hunted"
    undisturbed, _ = start(calm).communicate(timeout=600)
    killed = list(kill_at_random(hunted))
    assert len(killed) == KILLS and "survey" in killed
    out, err = (last := start(hunted)).communicate(timeout=600)
    assert last.returncode == 0, err
    first, second = outcome(calm, undisturbed), outcome(hunted, out)
    assert len(first["records"]) == 2 * len(PLANS)
    assert first == second
    assert not list(hunted.glob("failed/*"))
