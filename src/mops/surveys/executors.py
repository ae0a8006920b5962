"""Executors train the trials of a survey: in child processes on this machine, or as Ray tasks.

A child process is `python -m mops.surveys.executors FOLDER ID...` and trains the trials of one job.
It writes its progress to stdout, one JSON object per line, and ends when nobody reads it any more.
A Ray task runs the local executor on one job. If its worker dies, the job is submitted again and
goes on in its own folders. On a cluster the survey's folder must lie on a disk that all machines
see.
"""

import importlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, cast

from mops.data.dataset import dataset_key
from mops.errors import MopsError, RunError, UsageError
from mops.surveys.ledger import Job, Ledger, SurveyWatcher, Trial
from mops.training.batched import batching_obstacle, train_many
from mops.training.machine import keep_freed_memory, own_cores
from mops.training.run import Paused, Run, train_until
from mops.training.step import StepFacts
from mops.training.tracking import Label, Watcher

MOST_DEATHS = 5  # of a job's process before its trials count as failed
PAUSE = 0.5  # seconds between looks at other processes
LOG_TAIL, REASON = 300, 450  # characters of a dead process's log; of the reason of a failure
INTERVAL = 0.5  # seconds between a child's lines about steps
INTERRUPTED = 130  # exit code of a child: asked to stop, can go on later
GRACE = 60.0  # seconds that stopped Ray tasks have to save their states
# A cluster of our own; nearly nothing travels through Ray's object store.
LOCAL_CLUSTER = {"address": "local", "include_dashboard": False, "object_store_memory": 80 * 2**20}
QUIET_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS": "0",
    "RAY_DATA_LOG_LEVEL": "CRITICAL",  # what goes wrong is raised as well
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its new default, without the announcement
}


# Nobody else runs code in a cluster of our own. Ray reads both when it is imported; the second is
# its way to bind to 127.0.0.1 on every system.
CLOSED_RAY = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def plan_jobs(trials: Sequence[Trial], workers: int = 1) -> list[Job]:
    """In the given order; batches are split so that every worker gets a part."""
    groups: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        recipe, training = trial.recipe, trial.recipe.training
        key: Hashable = trial.id
        if not batching_obstacle(recipe):  # the same texts in the same way, the same encoder
            reading = (training.pair, training.pool, training.features, training.max_length)
            key = dataset_key(recipe), recipe.encoder, repr(reading)
        groups.setdefault(key, []).append(trial)
    jobs = []
    for group in groups.values():
        parts = min(workers, len(group))
        jobs += [Job(tuple(group[n::parts])) for n in range(parts)]
    return jobs


def run_jobs(
    jobs: Sequence[Job],
    ledger: Ledger,
    watcher: SurveyWatcher,
    submit: Callable[[Job], Future[Sequence[str]]],
) -> None:
    """Submit jobs, again if their processes die, until every trial is finished or failed.

    A job that ends returns what its watcher should note.
    """
    deaths: Counter[str] = Counter()
    running = {submit(job): job for job in jobs}
    while running:
        # Ray's way to cancel a task does not end a wait without a time limit.
        for future in wait(running, PAUSE, FIRST_COMPLETED).done:
            job = running.pop(future)
            if error := future.exception():
                deaths[job.ids[0]] += 1
                if deaths[job.ids[0]] < MOST_DEATHS:
                    cause = str(error).partition(".")[0]
                    watcher.note(f"{job.name}: its process died ({cause}) and is started again")
                else:
                    reason = f"its process died {MOST_DEATHS} times, the last time with {error}"
                    for trial_id in ledger.open_ids(job.ids):
                        ledger.fail(trial_id, reason[:REASON])
            for text in () if error else future.result():
                watcher.note(text)
            if ledger.open_ids(job.ids):  # it died, or another survey trains some of it
                running[submit(job)] = job
            else:
                watcher.ended(job)


@dataclass
class LocalExecutor:
    """Trains each job in a child process, several at a time."""

    ledger: Ledger
    watcher: SurveyWatcher
    workers: int = 1
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> None:
        with sigterm_as_interrupt(), ThreadPoolExecutor(self.workers) as pool:
            try:
                run_jobs(jobs, self.ledger, self.watcher, lambda job: pool.submit(self.train, job))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in tuple(self.children):  # each saves its state and ends
                    child.terminate()
                raise

    def train(self, job: Job) -> Sequence[str]:
        """Run one process to its end; its progress goes to the watcher."""
        self.watcher.started(job)
        command = [sys.executable, "-P", "-m", "mops.surveys.executors", str(self.ledger.folder)]
        log = self.ledger.folder / "logs" / f"{job.ids[0]}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            log.open("w", encoding="utf-8") as errors,
            subprocess.Popen(
                [*command, *self.ledger.open_ids(job.ids)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": str(max(1, own_cores() // self.workers))},
                start_new_session=True,  # Ctrl-C reaches it through this process alone
            ) as child,
        ):
            self.children.append(child)
            for line in child.stdout or ():
                self.show_progress(job, line)
        self.children.remove(child)
        if (code := child.returncode) not in (0, INTERRUPTED):
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            hint = "; perhaps the machine's memory is too small" if code == -signal.SIGKILL else ""
            raise RunError(f"{cause}{hint}. {log.read_text('utf-8')[-LOG_TAIL:].strip()}")
        return ()

    def show_progress(self, job: Job, line: str) -> None:
        with suppress(ValueError):
            facts = json.loads(line)
            done = len(job.ids) - len(self.ledger.open_ids(job.ids))
            part = facts.get("step", 0) / max(1, facts["total"])
            fraction = min(1.0, (done + part) / len(job.ids))
            self.watcher.moved(job, fraction, facts.get("phase", "training"))


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM stops a survey as Ctrl-C does; only the main thread can handle signals."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("stopped; the same command goes on where it was")

    is_main = current_thread() is main_thread()
    before = signal.signal(signal.SIGTERM, interrupt) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def ray_session(address: str | None = None, cpus: float = 1) -> Iterator[Any]:
    """Ray's module, connected to the cluster at `address` or to a small one of our own.

    A session that the caller has already opened is used and left open.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError("this needs Ray, which is not installed; pip install 'mops-nlp[ray]'")
    is_foreign = address or "ray" in sys.modules  # it has read its own settings
    own = {} if is_foreign else CLOSED_RAY | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= {key: os.environ.get(key, value) for key, value in (QUIET_RAY | own).items()}
    ray: Any = importlib.import_module("ray")
    is_own = not ray.is_initialized()
    place = {"address": address} if address else LOCAL_CLUSTER | {"num_cpus": own_cores()}
    try:
        if is_own:
            ray.init(**place, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as cause:
        raise UsageError(
            f"no Ray cluster at {address!r}: {cause}; start one or leave out `address`"
        ) from cause
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


class Notes(SurveyWatcher):
    """Keeps the notes, for a watcher in another process."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def finish_job(folder: Path, job: Job) -> Sequence[str]:
    """Runs in a worker; when it is cancelled, the child process saves its state."""
    notes = Notes()
    LocalExecutor(Ledger(folder), notes).run([job])
    return notes.texts


@dataclass
class RayExecutor:
    ledger: Ledger
    watcher: SurveyWatcher
    workers: int = 1
    address: str | None = None
    cpus: float = 1  # of each job

    def run(self, jobs: Sequence[Job]) -> None:
        with ray_session(self.address, self.cpus) as ray:
            task = ray.remote(num_cpus=self.cpus, max_retries=0)(finish_job)
            tasks: list[Any] = []

            def submit(job: Job) -> Future[Sequence[str]]:
                tasks.append(task.remote(self.ledger.folder.resolve(), job))
                return cast(Future[Sequence[str]], tasks[-1].future())

            try:
                run_jobs(jobs, self.ledger, self.watcher, submit)
            except BaseException:  # the tasks save their states
                for unfinished in tasks:
                    ray.cancel(unfinished)
                with suppress(ray.exceptions.RayError):
                    ray.wait(tasks, num_returns=len(tasks), timeout=GRACE)
                raise


class ProgressLines(Watcher):
    """A training watcher that writes lines."""

    total = 1
    last = 0.0

    def begin(self, total: int, done: int) -> None:
        self.total = total
        self.write(step=done)

    def step(self, step: int, facts: StepFacts) -> None:
        if time.monotonic() - self.last > INTERVAL:
            self.write(step=step)

    def phase(self, name: str) -> None:
        self.write(phase=name)

    def write(self, **facts: Any) -> None:
        self.last = time.monotonic()
        try:
            print(json.dumps({"total": self.total, **facts}), flush=True)
        except BrokenPipeError:  # the survey has ended; not an error of the trial
            raise KeyboardInterrupt from None


def train_trials(folder: Path, trial_ids: Sequence[str]) -> None:
    """Train the open trials that no other process trains; a failure does not stop the others."""
    ledger, watcher = Ledger(folder), ProgressLines()
    keep_freed_memory()
    with ledger.claim(trial_ids) as mine:
        left = ledger.open_ids(mine)
        if len(left) > 1:
            train_batch(ledger, left, watcher)
        for trial_id in filter(ledger.is_open, left):
            try:
                recipe, label = ledger.recipe(trial_id), trial_label(ledger, trial_id)
                until = ledger.pause(trial_id).until
                run = train_until(recipe, ledger.run_folder(trial_id), watcher, label, until)
                note_result(ledger, trial_id, run)
            except MopsError as error:
                ledger.fail(trial_id, str(error))
            except Exception as error:
                ledger.fail(trial_id, f"unexpected {type(error).__name__}: {error}")
                traceback.print_exception(error)


def train_batch(ledger: Ledger, trial_ids: Sequence[str], watcher: Watcher) -> None:
    """Train trials as one batch; if that breaks off as a whole, they stay open."""
    try:
        results = train_many(
            [ledger.recipe(trial_id) for trial_id in trial_ids],
            [ledger.run_folder(trial_id) for trial_id in trial_ids],
            watcher,
            labels=[trial_label(ledger, trial_id) for trial_id in trial_ids],
            until=ledger.pause(trial_ids[0]).until,
        )
    except Exception as error:
        traceback.print_exception(error)
        return
    for trial_id, result in zip(trial_ids, results, strict=True):
        note_result(ledger, trial_id, result)


def note_result(ledger: Ledger, trial_id: str, result: Run | Paused | RunError) -> None:
    """A finished run has written its own record."""
    if isinstance(result, RunError):
        ledger.fail(trial_id, str(result))
    elif isinstance(result, Paused):
        ledger.note_pause(trial_id, reached=ledger.pause(trial_id).until, **vars(result))


def trial_label(ledger: Ledger, trial_id: str) -> Label:
    """Trackers group the trials of a survey, named by candidate and seed."""
    name = ledger.names().get(trial_id, trial_id)
    return Label(name, ledger.folder, group=ledger.folder.resolve().name)


if __name__ == "__main__":
    survey_folder, *ids = sys.argv[1:]
    try:
        train_trials(Path(survey_folder), ids)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
