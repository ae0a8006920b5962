"""Commands of mops in processes of their own, on a tiny encoder and tiny data, and their results.

A process that has imported torch once forks for each command: an import takes longer than a run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SHIM = "FAULTS_SHIM"  # where the compiled shim.c is
KINDS = ("write", "sync", "rename", "clock")
PATIENCE = 300.0  # seconds for a command that takes a few; a machine may be busy
NEVER = 10**9  # counts calls without disturbing one
WORDS = {
    "max_steps": 8, "eval_steps": 3, "save_steps": 2, "per_task_batch_size": 4, "max_length": 32,
    "threads": 1, "bf16": "false",
}  # fmt: skip
UNCLEAR = re.compile(r"Traceback|unexpected \w+:|panicked|Fatal Python")


@dataclass(frozen=True)
class World:
    """Data, an encoder and a trained model that nothing changes."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "run" / "model"

    def make(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from running import write_long_encoder, write_toy_data

        write_toy_data(self.folder / "data")
        write_long_encoder(self.folder / "encoder")

    def source(self) -> list[str]:
        words = ["--data", str(self.folder / "data"), "--encoder", str(self.folder / "encoder")]
        return words + [f"--set=training.{key}={value}" for key, value in WORDS.items()]


@dataclass
class Process:
    """A running command; its output goes to a file."""

    number: int
    log: Path
    code: int | None = field(default=None)

    def poll(self) -> int | None:
        if self.code is None:
            ended, status = os.waitpid(self.number, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
        return self.code

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """The exit code; None when it hangs, and is killed."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        hangs = self.poll() is None
        self.signal(signal.SIGKILL, whole=True)  # and what a killed command has left behind
        while self.poll() is None:
            time.sleep(0.002)
        return None if hangs else self.code

    def signal(self, number: int, *, whole: bool = False) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.number, number) if whole else os.kill(self.number, number)

    def children(self) -> list[int]:
        try:
            listed = Path(f"/proc/{self.number}/task/{self.number}/children").read_text("utf-8")
        except OSError:
            return []
        return [int(word) for word in listed.split()]

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.is_file() else ""

    @property
    def is_unclear(self) -> bool:
        return bool(UNCLEAR.search(self.text))


def start(words: Sequence[str], place: Path, fault: str = "") -> Process:
    """Fork a command; `place` is the folder in which calls are counted and disturbed."""
    log = place.with_name(f"{place.name}.{time.monotonic_ns()}.log")
    if number := os.fork():
        return Process(number, log)
    code = 1
    try:
        os.setpgid(0, 0)
        output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        for standard in (1, 2):
            os.dup2(output, standard)
        os.environ |= {"MOPS_CACHE": str(place / "cache"), "FAULT": fault}
        sys.argv = ["mops", *words]
        shim = ctypes.CDLL(os.environ[SHIM])
        shim.fault_arm(fault.encode())
        from mops.cli.main import main

        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        counts = {kind: shim.fault_count(n) for n, kind in enumerate(KINDS)}
        log.with_suffix(".counts").write_text(json.dumps(counts), "utf-8")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def content(folder: Path, *patterns: str) -> dict[str, bytes]:
    files = (file for pattern in patterns for file in sorted(folder.glob(pattern)))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def run_result(folder: Path) -> dict[str, Any]:
    """What a run has computed: weights, predictions, scores."""
    scores = json.loads((folder / "record.json").read_text("utf-8"))["scores"]
    return {"scores": scores, **content(folder, "model/model.safetensors", "predictions/*.csv")}


def survey_result(folder: Path) -> dict[str, Any]:
    runs = sorted((folder / "trials").iterdir())
    results = {run.name: run_result(run) for run in runs}
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    rows = [(row["name"], row["scores"]) for row in summary["candidates"]]
    return {"trials": results, "candidates": rows}


@dataclass(frozen=True)
class Subject:
    """A command that is disturbed: its words for a folder, and its result there."""

    name: str
    words: Callable[[World, Path], list[str]]
    result: Callable[[Path], dict[str, Any]]


def train_words(world: World, place: Path, plan: str = "hybrid:1") -> list[str]:
    return ["train", *world.source(), "--plan", plan, "--out", str(place / "out")]


def survey_words(world: World, place: Path) -> list[str]:
    plans = ["--plan", "shared", "--plan", "frozen+late:SI", "--seeds", "1", "--keep", "all"]
    return ["survey", "trunks", *world.source(), *plans, "--out", str(place / "out"), "--json"]


def predict_words(world: World, place: Path) -> list[str]:
    file = world.folder / "data" / "ids-sst-dev.csv"
    out = str(place / "out" / "answers.csv")
    return ["predict", str(world.model), str(file), "--task", "sentiment", "--out", out]


def in_out(result: Callable[[Path], dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
    return lambda place: result(place / "out")
