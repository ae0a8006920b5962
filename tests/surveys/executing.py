"""What the tests of executors share: trials of the toy world, and a watcher that remembers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mops.surveys.executors import train_trials
from mops.surveys.ledger import Candidate, Job, Ledger, SurveyWatcher, Trial
from running import world


class RecordingWatcher(SurveyWatcher):
    """A survey watcher that remembers."""

    def __init__(self) -> None:
        self.fractions: list[float] = []
        self.ends: list[str] = []
        self.notes: list[str] = []
        self.phases: list[str] = []

    def moved(self, job: Job, fraction: float, activity: str) -> None:
        self.fractions.append(fraction)

    def ended(self, job: Job) -> None:
        self.ends.append(job.name)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def phase(self, name: str) -> None:
        self.phases.append(name)


def candidate(plan: str, **settings: Any) -> Candidate:
    return Candidate(plan, {"plan": plan}, world().recipe(plan, **settings))


def trial(plan: str = "shared", seed: int = 1, **settings: Any) -> Trial:
    return candidate(plan, **settings).trial(seed)


def ledger_with(folder: Path, *trials: Trial) -> Ledger:
    ledger = Ledger(folder)
    ledger.register(trials)
    return ledger


def state_file(ledger: Ledger, one: Trial) -> Path:
    """Exists as soon as a run can be resumed."""
    return ledger.run_folder(one.id) / "state" / "state.safetensors"


def wait_until(condition: Callable[[], object], seconds: float = 600) -> None:
    stop = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < stop, "the awaited state did not come"
        time.sleep(0.01)


class KilledError(Exception):
    """Stands for a kill."""


class InProcess:
    """An executor without processes; it may break off after some jobs."""

    jobs = 10**6
    workers = 1

    def __init__(self, ledger: Ledger, watcher: RecordingWatcher) -> None:
        self.ledger, self.watcher = ledger, watcher

    def run(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if not InProcess.jobs:
                raise KilledError
            InProcess.jobs -= 1
            train_trials(self.ledger.folder, job.ids)
