"""Jobs: which trials one process trains. Small networks on one frozen encoder go together.

The local engine: jobs in child processes, one at a time or a few, on this machine.
"""

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
from typing import Any, Protocol

from mops.config.recipe import Recipe
from mops.config.training import SUM
from mops.plans.rows import TRUNK_FROZEN
from mops.surveys.child import STOPPED
from mops.surveys.ledger import Ledger, Trial
from mops.training.prepare import own_cores


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
    """In the given order; batches are cut so that every worker has one."""
    groups: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        key = family(trial.recipe) if is_small(trial.recipe) else trial.id
        groups.setdefault(key, []).append(trial)
    jobs = []
    for group in groups.values():
        parts = min(workers, len(group))
        jobs += [Job(tuple(group[n::parts])) for n in range(parts)]
    return jobs


def is_small(recipe: Recipe) -> bool:
    """Whether it trains only late layers and heads; the process that trains it looks closer."""
    plan, training = recipe.sharing_plan(), recipe.training
    is_plain = not (plan.additions or plan.feeds or plan.pull or training.stages)
    is_summed = training.gradients == SUM and isinstance(training.loss_weights, dict)
    is_frozen = plan.rates[: len(TRUNK_FROZEN)] == TRUNK_FROZEN
    return is_frozen and is_plain and is_summed and training.augment is None


def family(recipe: Recipe) -> Hashable:
    """Recipes of one family read the same texts in the same way through the same encoder."""
    data, training = recipe.to_data(), recipe.training
    reading = [training.pair, training.pool, list(training.features), training.max_length]
    return json.dumps([data["tasks"], data["encoder"], reading], sort_keys=True)


DEATHS = 5  # of a job's process before its trial is called failed
PAUSE = 0.5  # seconds between looks at what other processes do
LOG_TAIL = 300  # characters of a dead child's last words


class SurveyWatcher(Protocol):
    """Someone who wants to know how a survey goes."""

    def started(self, job: Job) -> None: ...
    def moved(self, job: Job, share: float, what: str) -> None: ...
    def ended(self, job: Job) -> None: ...
    def note(self, text: str) -> None: ...
    def phase(self, name: str) -> None: ...


@dataclass
class Local:
    """Runs jobs until every trial is finished or failed."""

    ledger: Ledger
    watcher: SurveyWatcher
    workers: int = 1
    children: list[subprocess.Popen[str]] = field(default_factory=list)
    is_stopping: bool = False
    guard: Lock = field(default_factory=Lock)

    def run(self, jobs: Sequence[Job]) -> None:
        with self.stopping_children(), ThreadPoolExecutor(self.workers) as pool:
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
            raise KeyboardInterrupt("stopped; the same command goes on where it was")

    # -------------------------------------------------------------- one job

    def finish(self, job: Job) -> None:
        """Start its process, and again when it dies, until nothing of it is left to do."""
        deaths = 0
        self.watcher.started(job)
        while (left := self.open_ids(job)) and not self.is_stopping:
            code = self.start(job, left)
            if code == 0 and self.open_ids(job):  # another process trains some of it
                time.sleep(PAUSE)
            if code not in (0, STOPPED) and not self.is_stopping:
                deaths += 1
                self.note_death(job, code, deaths)
        self.watcher.ended(job)

    def open_ids(self, job: Job) -> list[str]:
        return [trial_id for trial_id in job.ids if self.ledger.is_open(trial_id)]

    def start(self, job: Job, trial_ids: Sequence[str]) -> int:
        """One process from its start to its end; what it tells goes to the watcher."""
        words = [sys.executable, "-P", "-m", "mops.surveys.child", str(self.ledger.folder)]
        log = self.log_file(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            log.open("w", encoding="utf-8") as errors,
            subprocess.Popen(
                [*words, *trial_ids],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": str(max(1, own_cores() // self.workers))},
                start_new_session=True,  # Ctrl-C reaches it through this process alone
            ) as child,
        ):
            with self.guard:
                self.children.append(child)
            assert child.stdout is not None
            for line in child.stdout:
                self.hear(job, line)
        with self.guard:
            self.children.remove(child)
        return child.returncode

    def hear(self, job: Job, line: str) -> None:
        with suppress(ValueError):
            told: dict[str, Any] = json.loads(line)
            done = len(job.ids) - len(self.open_ids(job))
            part = told.get("step", 0) / max(1, told["total"])
            share = min(1.0, (done + part) / len(job.ids))
            self.watcher.moved(job, share, told.get("phase", "training"))

    def note_death(self, job: Job, code: int, deaths: int) -> None:
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = self.log_file(job).read_text("utf-8")[-LOG_TAIL:].strip()
        if deaths < DEATHS:
            self.watcher.note(f"{job.name}: its process died ({why}) and is started again")
            return
        reason = f"its process died {deaths} times, the last time of {why}"
        hint = "; perhaps the machine's memory is too small" if code == -signal.SIGKILL else ""
        for trial_id in self.open_ids(job):
            self.ledger.fail(trial_id, f"{reason}{hint}. {said}")

    def log_file(self, job: Job) -> Path:
        return self.ledger.folder / "logs" / f"{job.ids[0]}.txt"

    # -------------------------------------------------------------- stop

    def stop(self) -> None:
        """Ask every child to save its state and end."""
        self.is_stopping = True
        with self.guard:
            for child in self.children:
                child.terminate()

    @contextmanager
    def stopping_children(self) -> Iterator[None]:
        """SIGTERM stops a survey as Ctrl-C does, unless it runs in a thread of something else."""
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
