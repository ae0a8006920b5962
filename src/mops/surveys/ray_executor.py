"""Trains the trials of a survey as Ray tasks, on this machine or on a cluster.

A task runs the local executor on one job. If its worker dies, the job is submitted again and goes
on in its own folders. On a cluster the survey's folder must lie on a disk that all machines see.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mops.errors import UsageError
from mops.surveys.ledger import Ledger
from mops.surveys.local import MOST_DEATHS, PAUSE, Job, LocalExecutor, SurveyWatcher
from mops.training.machine import own_cores

GRACE = 60.0  # seconds that stopped trials have to save their states
# A cluster of our own; nearly nothing travels through Ray's object store.
LOCAL_CLUSTER = {"address": "local", "include_dashboard": False, "object_store_memory": 80 * 2**20}
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its new default, without the announcement
}


@contextmanager
def ray_session(address: str | None = None, cpus: float = 1) -> Iterator[Any]:
    """Ray's module, connected to the cluster at `address` or to a small one of our own.

    A session that the caller has already opened is used and left open.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError("this needs Ray, which is not installed; pip install 'mops-nlp[ray]'")
    os.environ |= {key: os.environ.get(key, value) for key, value in QUIET.items()}
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


class SilentWatcher:
    """The watcher in a Ray worker; the driver looks at the ledger instead."""

    def started(self, job: Job) -> None: ...
    def moved(self, job: Job, fraction: float, activity: str) -> None: ...
    def ended(self, job: Job) -> None: ...
    def note(self, text: str) -> None: ...
    def phase(self, name: str) -> None: ...


def finish_job(folder: Path, job: Job) -> None:
    """Runs in a worker; when it is cancelled, the child process saves its state."""
    LocalExecutor(Ledger(folder), SilentWatcher()).run([job])


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
                        self.show_progress(job)
            except BaseException:
                stop(ray, list(running))
                raise

    def show_progress(self, job: Job) -> None:
        """Finished trials of a job, as the ledger knows them."""
        done = sum(not self.ledger.is_open(trial_id) for trial_id in job.ids)
        self.watcher.moved(job, done / len(job.ids), "training")

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


def stop(ray: Any, tasks: Sequence[Any]) -> None:
    """Ask all tasks to save their states, and wait for that."""
    for task in tasks:
        ray.cancel(task)
    with suppress(ray.exceptions.RayError):
        ray.wait(list(tasks), num_returns=len(tasks), timeout=GRACE)
