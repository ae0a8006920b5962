"""Trains the trials of a survey in child processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Protocol

from mops.config.recipe import Recipe
from mops.surveys.ledger import Ledger, Trial
from mops.surveys.worker import INTERRUPTED
from mops.training.batched.run import batching_obstacle
from mops.training.machine import own_cores

MOST_DEATHS = 5  # of a job's process before its trials count as failed
PAUSE = 0.5  # seconds between looks at other processes
LOG_TAIL = 300  # characters of a dead process's log that go into the reason


@dataclass(frozen=True)
class Job:
    """One trial, or several that are trained as one batch."""

    trials: tuple[Trial, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(trial.id for trial in self.trials)

    @property
    def name(self) -> str:
        if len(self.trials) == 1:
            return self.trials[0].name
        return f"{len(self.trials)} trials on one frozen encoder"


def plan_jobs(trials: Sequence[Trial], workers: int = 1) -> list[Job]:
    """In the given order; batches are split so that every worker gets a part."""
    groups: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        key = trial.id if batching_obstacle(trial.recipe) else batch_key(trial.recipe)
        groups.setdefault(key, []).append(trial)
    jobs = []
    for group in groups.values():
        parts = min(workers, len(group))
        jobs += [Job(tuple(group[n::parts])) for n in range(parts)]
    return jobs


def batch_key(recipe: Recipe) -> Hashable:
    """Equal for recipes that read the same texts in the same way through the same encoder."""
    data, training = recipe.to_data(), recipe.training
    reading = [training.pair, training.pool, list(training.features), training.max_length]
    return json.dumps([data["tasks"], data["encoder"], reading], sort_keys=True)


class SurveyWatcher(Protocol):
    """Shows the progress of a survey."""

    def started(self, job: Job) -> None: ...
    def moved(self, job: Job, fraction: float, activity: str) -> None: ...
    def ended(self, job: Job) -> None: ...
    def note(self, text: str) -> None: ...
    def phase(self, name: str) -> None: ...


@dataclass
class LocalExecutor:
    """Runs jobs until every trial is finished or failed."""

    ledger: Ledger
    watcher: SurveyWatcher
    workers: int = 1
    children: list[subprocess.Popen[str]] = field(default_factory=list)
    is_stopping: bool = False
    lock: Lock = field(default_factory=Lock)

    def run(self, jobs: Sequence[Job]) -> None:
        with self.sigterm_as_interrupt(), ThreadPoolExecutor(self.workers) as pool:
            futures = [pool.submit(self.finish, job) for job in jobs]
            try:
                while wait(futures, timeout=PAUSE).not_done:
                    pass
            except BaseException:
                self.stop()
                raise
        for future in futures:
            future.result()
        if self.is_stopping:
            raise_interrupt()

    def finish(self, job: Job) -> None:
        """Start the process of a job, again if it dies, until all of its trials are done."""
        deaths = 0
        self.watcher.started(job)
        while (left := self.open_ids(job)) and not self.is_stopping:
            code = self.start(job, left)
            if code == 0 and self.open_ids(job):  # another process trains some of it
                time.sleep(PAUSE)
            if code not in (0, INTERRUPTED) and not self.is_stopping:
                deaths += 1
                self.note_death(job, code, deaths)
        self.watcher.ended(job)

    def open_ids(self, job: Job) -> list[str]:
        return [trial_id for trial_id in job.ids if self.ledger.is_open(trial_id)]

    def start(self, job: Job, trial_ids: Sequence[str]) -> int:
        """Run one process to its end; its progress goes to the watcher."""
        command = [sys.executable, "-P", "-m", "mops.surveys.worker", str(self.ledger.folder)]
        log = self.log_file(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            log.open("w", encoding="utf-8") as errors,
            subprocess.Popen(
                [*command, *trial_ids],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": str(max(1, own_cores() // self.workers))},
                start_new_session=True,  # Ctrl-C reaches it through this process alone
            ) as child,
        ):
            with self.lock:
                self.children.append(child)
            assert child.stdout is not None
            for line in child.stdout:
                self.show_progress(job, line)
        with self.lock:
            self.children.remove(child)
        return child.returncode

    def show_progress(self, job: Job, line: str) -> None:
        with suppress(ValueError):
            facts = json.loads(line)
            done = len(job.ids) - len(self.open_ids(job))
            part = facts.get("step", 0) / max(1, facts["total"])
            fraction = min(1.0, (done + part) / len(job.ids))
            self.watcher.moved(job, fraction, facts.get("phase", "training"))

    def note_death(self, job: Job, code: int, deaths: int) -> None:
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        if deaths < MOST_DEATHS:
            self.watcher.note(f"{job.name}: its process died ({cause}) and is started again")
            return
        hint = "; perhaps the machine's memory is too small" if code == -signal.SIGKILL else ""
        log = self.log_file(job).read_text("utf-8")[-LOG_TAIL:].strip()
        reason = f"its process died {deaths} times, the last time with {cause}{hint}. {log}"
        for trial_id in self.open_ids(job):
            self.ledger.fail(trial_id, reason)

    def log_file(self, job: Job) -> Path:
        return self.ledger.folder / "logs" / f"{job.ids[0]}.txt"

    def stop(self) -> None:
        """Ask every child to save its state and end."""
        self.is_stopping = True
        with self.lock:
            for child in self.children:
                child.terminate()

    @contextmanager
    def sigterm_as_interrupt(self) -> Iterator[None]:
        """SIGTERM stops a survey as Ctrl-C does; only the main thread can handle signals."""
        if current_thread() is not main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, raise_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt("stopped; the same command goes on where it was")
