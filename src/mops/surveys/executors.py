"""Executors train the trials of a survey: in child processes on this machine, or as Ray tasks.

A Ray task runs the local executor on one job. If its worker dies, the job is submitted again and
goes on in its own folders. On a cluster the survey's folder must lie on a disk that all machines
see.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from mops.errors import UsageError
from mops.surveys.ledger import Job, Ledger, SurveyWatcher, Trial
from mops.surveys.worker import INTERRUPTED
from mops.training.batched.run import batching_obstacle
from mops.training.machine import own_cores

MOST_DEATHS = 5  # of a job's process before its trials count as failed
PAUSE = 0.5  # seconds between looks at other processes
LOG_TAIL = 300  # characters of a dead process's log that go into the reason
GRACE = 60.0  # seconds that stopped Ray tasks have to save their states
# A cluster of our own; nearly nothing travels through Ray's object store.
LOCAL_CLUSTER = {"address": "local", "include_dashboard": False, "object_store_memory": 80 * 2**20}
QUIET_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its new default, without the announcement
}


def plan_jobs(trials: Sequence[Trial], workers: int = 1) -> list[Job]:
    """In the given order; batches are split so that every worker gets a part."""
    groups: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        recipe, training = trial.recipe, trial.recipe.training
        key: Hashable = trial.id
        if not batching_obstacle(recipe):  # the same texts in the same way, the same encoder
            tasks = recipe.to_data()["tasks"]
            reading = [training.pair, training.pool, training.features, training.max_length]
            key = json.dumps([tasks, recipe.encoder, reading], sort_keys=True)
        groups.setdefault(key, []).append(trial)
    jobs = []
    for group in groups.values():
        parts = min(workers, len(group))
        jobs += [Job(tuple(group[n::parts])) for n in range(parts)]
    return jobs


@dataclass
class LocalExecutor:
    """Runs jobs until every trial is finished or failed."""

    ledger: Ledger
    watcher: SurveyWatcher
    workers: int = 1
    children: list[subprocess.Popen[str]] = field(default_factory=list)
    is_stopping: bool = False

    def run(self, jobs: Sequence[Job]) -> None:
        with sigterm_as_interrupt(), ThreadPoolExecutor(self.workers) as pool:
            futures = [pool.submit(self.finish, job) for job in jobs]
            try:
                while wait(futures, timeout=PAUSE).not_done:
                    pass
            except BaseException:
                self.is_stopping = True
                for child in tuple(self.children):  # each saves its state and ends
                    child.terminate()
                raise
        for future in futures:
            future.result()

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
            self.children.append(child)
            assert child.stdout is not None
            for line in child.stdout:
                self.show_progress(job, line)
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


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM stops a survey as Ctrl-C does; only the main thread can handle signals."""
    if current_thread() is not main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("stopped; the same command goes on where it was")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ------------------------------------------------------------------ Ray


@contextmanager
def ray_session(address: str | None = None, cpus: float = 1) -> Iterator[Any]:
    """Ray's module, connected to the cluster at `address` or to a small one of our own.

    A session that the caller has already opened is used and left open.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError("this needs Ray, which is not installed; pip install 'mops-nlp[ray]'")
    os.environ |= {key: os.environ.get(key, value) for key, value in QUIET_RAY.items()}
    ray: Any = importlib.import_module("ray")
    is_own = not ray.is_initialized()
    if is_own:
        connect(ray, address)
    try:
        largest = max((node["Resources"].get("CPU", 0) for node in ray.nodes()), default=0)
        if cpus > largest:  # Ray would wait forever for a larger machine
            raise UsageError(
                f"a trial asks for {cpus:g} cores; the largest machine has {largest:g}"
            )
        yield ray
    finally:
        if is_own:
            ray.shutdown()


def connect(ray: Any, address: str | None) -> None:
    place = {"address": address} if address else LOCAL_CLUSTER | {"num_cpus": own_cores()}
    try:
        ray.init(**place, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as cause:
        raise UsageError(
            f"no Ray cluster at {address!r}: {cause}; start one or leave --address out"
        ) from cause


def finish_job(folder: Path, job: Job) -> None:
    """Runs in a worker; when it is cancelled, the child process saves its state."""
    LocalExecutor(Ledger(folder), SurveyWatcher()).run([job])


@dataclass
class RayExecutor:
    """Runs jobs until every trial is finished or failed."""

    ledger: Ledger
    watcher: SurveyWatcher
    address: str | None = None
    cpus: float = 1  # of each job

    def run(self, jobs: Sequence[Job]) -> None:
        with ray_session(self.address, self.cpus) as ray:
            task = ray.remote(num_cpus=self.cpus, max_retries=0)(finish_job)
            folder = self.ledger.folder.resolve()
            deaths: Counter[str] = Counter()
            running = {task.remote(folder, job): job for job in jobs}
            try:
                while running:
                    done, _ = ray.wait(list(running), num_returns=len(running), timeout=PAUSE)
                    for ended in done:
                        job = running.pop(ended)
                        if self.has_died(ray, ended, job, deaths):
                            running[task.remote(folder, job)] = job
                    for job in running.values():
                        closed = sum(not self.ledger.is_open(trial_id) for trial_id in job.ids)
                        self.watcher.moved(job, closed / len(job.ids), "training")
            except BaseException:  # the tasks save their states
                for unfinished in running:
                    ray.cancel(unfinished)
                with suppress(ray.exceptions.RayError):
                    ray.wait(list(running), num_returns=len(running), timeout=GRACE)
                raise

    def has_died(self, ray: Any, task: Any, job: Job, deaths: Counter[str]) -> bool:
        """Whether an ended task has to run again; after several deaths its trials have failed."""
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            deaths[job.ids[0]] += 1
            if deaths[job.ids[0]] < MOST_DEATHS:
                self.watcher.note(f"{job.name}: its worker died and the job is started again")
                return True
            reason = " ".join(str(error).split())[:300]
            for trial_id in filter(self.ledger.is_open, job.ids):
                self.ledger.fail(trial_id, f"its Ray worker died {MOST_DEATHS} times. {reason}")
        self.watcher.ended(job)
        return False
