"""The Ray engine: jobs as Ray tasks, on this machine or on a cluster.

A task does what the local engine does with one job: it starts the child process that trains it. So
a worker that is killed costs one retry: the trial goes on in its own folder. On a cluster the
folder of the survey must lie on a disk that all machines see.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mops.errors import UsageError
from mops.surveys.ledger import Ledger
from mops.surveys.local import DEATHS, Job, Local, SurveyWatcher
from mops.surveys.run import Engine
from mops.training.prepare import own_cores

PAUSE = 0.5  # seconds between looks at what the workers tell
GRACE = 60.0  # seconds that a stopped trial has to save its state
# A cluster of our own; nearly nothing travels through Ray's memory for objects.
OWN = {"address": "local", "include_dashboard": False, "object_store_memory": 80 * 2**20}
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its new default, without the announcement
}


Line = tuple[int, str, tuple[Any, ...]]  # number of the job, what happened, facts


@contextmanager
def ray_running(address: str | None = None, cpus: float = 1) -> Iterator[Any]:
    """Ray's module, connected: to the cluster at `address`, or to a small one of our own."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("this needs Ray, which is not installed; pip install 'mops-nlp[ray]'")
    os.environ |= {key: os.environ.get(key, value) for key, value in QUIET.items()}
    ray: Any = importlib.import_module("ray")
    place = {"address": address} if address else OWN | {"num_cpus": own_cores()}
    try:
        ray.init(**place, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as cause:
        raise UsageError(
            f"no Ray cluster at {address!r}: {cause}; start one or leave --address out"
        ) from cause
    try:
        check_cpus(ray, cpus)
        yield ray
    finally:
        ray.shutdown()


def check_cpus(ray: Any, cpus: float) -> None:
    """Ray would wait for ever for a machine that is large enough."""
    most = max((node["Resources"].get("CPU", 0) for node in ray.nodes()), default=0)
    if cpus > most:
        raise UsageError(f"a trial asks for {cpus:g} cores; the largest machine has {most:g}")


class News:
    """An actor: what the workers tell, until the survey asks."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def tell(self, number: int, event: str, *facts: Any) -> None:
        self.lines.append((number, event, facts))

    def take(self) -> list[Line]:
        lines, self.lines = self.lines, []
        return lines


@dataclass(frozen=True)
class Relay:
    """A watcher in a worker: what it hears goes to the actor."""

    news: Any
    number: int  # of the job

    def started(self, job: Job) -> None:
        self.news.tell.remote(self.number, "started")

    def moved(self, job: Job, share: float, what: str) -> None:
        self.news.tell.remote(self.number, "moved", share, what)

    def ended(self, job: Job) -> None:
        self.news.tell.remote(self.number, "ended")

    def note(self, text: str) -> None:
        self.news.tell.remote(self.number, "note", text)


HEARD: dict[str, Callable[..., None]] = {
    "started": lambda watcher, job: watcher.started(job),
    "moved": lambda watcher, job, share, what: watcher.moved(job, share, what),
    "ended": lambda watcher, job: watcher.ended(job),
    "note": lambda watcher, job, text: watcher.note(text),
    "again": lambda watcher, job: watcher.note(
        f"{job.name}: its worker died and the job is started again"
    ),
}


def finish_job(folder: Path, job: Job, watcher: SurveyWatcher) -> None:
    """In a worker, whose OMP_NUM_THREADS Ray has set to the cores of the task.

    When it is cancelled, the local engine asks the child to save its state, and waits for it.
    """
    Local(Ledger(folder), watcher).run([job])


@dataclass
class Ray:
    """Runs jobs until every trial is finished or failed."""

    ledger: Ledger
    watcher: SurveyWatcher
    address: str | None = None
    cpus: float = 1  # of each job

    def run(self, jobs: Sequence[Job]) -> None:
        with ray_running(self.address, self.cpus) as ray:
            news = ray.remote(num_cpus=0)(News).remote()
            task = ray.remote(num_cpus=self.cpus, max_retries=DEATHS - 1)(finish_job)
            folder = self.ledger.folder.resolve()
            tasks = {task.remote(folder, job, Relay(news, n)): job for n, job in enumerate(jobs)}
            try:
                self.follow(ray, jobs, tasks, news)
            except BaseException:
                stop(ray, list(tasks))
                raise

    def follow(self, ray: Any, jobs: Sequence[Job], tasks: dict[Any, Job], news: Any) -> None:
        left, begun = list(tasks), set[int]()
        while left:
            done, left = ray.wait(left, num_returns=len(left), timeout=PAUSE)
            for number, event, facts in ray.get(news.take.remote()):
                is_again = event == "started" and number in begun
                HEARD["again" if is_again else event](self.watcher, jobs[number], *facts)
                begun.add(number)
            for each in done:
                self.close(ray, each, tasks[each])

    def close(self, ray: Any, task: Any, job: Job) -> None:
        """What a task could not finish has failed."""
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[:300]
            for trial_id in filter(self.ledger.is_open, job.ids):
                self.ledger.fail(trial_id, f"its Ray worker died {DEATHS} times. {reason}")


def run_ray(workers: int, address: str | None = None) -> Engine:
    """Each job gets this machine's cores divided by `workers`, on whatever machine it runs."""

    def run(ledger: Ledger, jobs: Sequence[Job], watcher: SurveyWatcher) -> None:
        Ray(ledger, watcher, address, max(1, own_cores() // workers)).run(jobs)

    return run


def stop(ray: Any, tasks: Sequence[Any]) -> None:
    """Ask all to save their states, and wait for that."""
    for task in tasks:
        ray.cancel(task)
    with suppress(ray.exceptions.RayError):
        ray.wait(list(tasks), num_returns=len(tasks), timeout=GRACE)
