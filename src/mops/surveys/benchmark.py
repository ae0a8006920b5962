"""The cost pass: all candidates of a survey, measured in turns on the same machine. No torch.

Each candidate is measured in a process of its own. A few of these and the baseline's are alive at
a time, and one of them works at a time. The speed of a machine changes from minute to minute, so a
candidate's time is the median over rounds of its ratio to the baseline in the same round, times
the baseline's median over all rounds. Known costs are in costs.json and are not measured again.
"""

import os
import platform
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from threading import Thread
from types import ModuleType
from typing import Any

from filelock import FileLock
from scipy.stats import iqr

from mops.errors import MopsError, RunError
from mops.record import processor_name
from mops.surveys.ledger import Candidate, SurveyWatcher, content_id, read_json, write_json

FORMAT = 3  # of the entries in costs.json; others are measured again
ROUNDS = 7
# Where other programs slow the pass down by more than SLACK, it ends early, after FEWEST_ROUNDS.
FEWEST_ROUNDS, SLACK = 3, 1.3
BATCH = 32  # rows of a batch of requests
GROUP = 2  # candidates whose processes are alive beside the baseline's: all need their memory
SPAWN = get_context("spawn")
CostEntries = dict[str, dict[str, Any]]  # candidate -> its entry in costs.json
Rounds = Sequence[Mapping[str, float]]  # each with its group, its number and the measurements


def measure_costs(
    candidates: Sequence[Candidate], folder: Path, baseline: str, watcher: SurveyWatcher
) -> CostEntries:
    """The costs of each candidate, as in `folder/costs.json`; measures those that are unknown.

    A candidate that cannot be measured has `warnings` and lacks its times.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    base = by_name[baseline]
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "locks" / "costs"):  # two passes at once would measure each other
        entries: CostEntries = read_json(folder / "costs.json", CostEntries)
        known = {
            name: entries[name]
            for name, candidate in by_name.items()
            if name in entries
            and entries[name].get("mark") == mark_validity(candidate, base)
            and not entries[name].get("warnings")
        }
        if missing := [candidate for name, candidate in by_name.items() if name not in known]:
            CostPass(folder, base, watcher, known).run(missing)
    return settle(known, baseline)


def mark_validity(candidate: Candidate, baseline: Candidate) -> dict[str, Any]:
    """What a measurement depends on: this content, this baseline, this machine."""
    machine = {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": candidate.recipe.training.threads,
        "system": platform.platform(),
        "torch": version("torch"),
    }
    contents = {"content": content_id(candidate.recipe), "beside": content_id(baseline.recipe)}
    return {"format": FORMAT, **contents, "machine": machine}


def settle(entries: CostEntries, baseline: str) -> CostEntries:
    """The entries with their times, from the rounds of all of them."""
    beside: Rounds = entries.get(baseline, {}).get("rounds", ())
    steps = [facts["step"] for facts in beside]
    # The interquartile range: a single disturbed round does not count.
    noise = float(iqr(steps)) / median(steps) if steps else None
    settled = {name: dict(entry) for name, entry in entries.items()}
    for name, entry in settled.items():
        if entry["rounds"]:
            entry.update(times(entry, () if name == baseline else beside), noise=noise)
    return settled


def times(entry: Mapping[str, Any], beside: Rounds) -> dict[str, Any]:
    """Each round counts as if the baseline had taken its median time in it."""
    rounds: Rounds = entry["rounds"]
    reference = {(facts["group"], facts["round"]): facts for facts in beside}

    def usual_time(what: str) -> float:
        # The baseline may have nothing to encode.
        by = "step" if what == "encode" else what.partition("/")[0]
        usual = median([facts[by] for facts in beside] or [1.0])
        bases = (reference.get((facts["group"], facts["round"]), {by: usual}) for facts in rounds)
        return median(usual * f[what] / base[by] for f, base in zip(rounds, bases, strict=True))

    step, encode = usual_time("step"), usual_time("encode")
    training = entry["planned_steps"] * step + encode
    watts = [facts["watts"] for facts in rounds if "watts" in facts]
    energy = {"train_joules": median(watts) * training} if len(watts) == len(rounds) else {}
    return energy | {
        "step_seconds": step,
        "encode_seconds": encode,
        "train_seconds": training,
        "latency_seconds": usual_time("latency"),
        "latency_by_task": {
            what.partition("/")[2]: usual_time(what) for what in rounds[0] if "latency/" in what
        },
        "throughput": BATCH / usual_time("batch"),
        # After as many rounds as the others: the baseline takes part in several groups.
        "peak_memory_bytes": [f["peak"] for f in rounds if f["group"] == rounds[0]["group"]][-1],
        "waited": sum(f["waited"] for f in rounds) / sum(f["clock"] for f in rounds),
    }


class BenchmarkWorker:
    """A process that measures one candidate; it waits until it is asked."""

    def __init__(self, candidate: Candidate, scratch: Path) -> None:
        self.candidate = candidate
        self.pipe, theirs = SPAWN.Pipe()
        with theirs:
            given = (theirs, candidate, scratch)
            self.process = SPAWN.Process(target=answer_requests, args=given, daemon=True)
            with apart_from_caller():
                self.process.start()

    def measure(self) -> dict[str, Any]:
        """At first the costs that are known without measuring, then one round at each call."""
        try:
            self.pipe.send("")
            answer: dict[str, Any] | str = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            cause = f"signal {-code} (9: perhaps out of memory)" if code < 0 else f"error {code}"
            raise RunError(f"ended by {cause}") from None
        if isinstance(answer, str):
            raise RunError(answer)
        return answer

    def stop(self) -> None:
        """It has nothing to save."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def apart_from_caller() -> Iterator[None]:
    """A process that is spawned would run the calling program from its first line, and find modules
    in the working directory."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    safe_path = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if safe_path is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe_path


def answer_requests(pipe: Connection, candidate: Candidate, scratch: Path) -> None:
    """Runs in the process of a candidate: a dictionary for each request, or what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    Thread(target=end_with_parent, daemon=True).start()
    with (scratch / "log.txt").open("w") as log:  # libraries may print
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        from mops.surveys.benchmark_worker import CandidateBenchmark
        from mops.training.machine import keep_freed_memory

        keep_freed_memory()
        pipe.recv()
        benchmark = CandidateBenchmark(candidate.recipe, scratch)
        pipe.send(benchmark.warm())
        while True:
            pipe.recv()
            pipe.send(benchmark.round())
    except Exception as problem:  # anything: the parent has to know why
        kind = "" if isinstance(problem, MopsError) else f"{type(problem).__name__}: "
        pipe.send(f"{kind}{problem}")


def end_with_parent() -> None:
    """A process never outlives its parent, however that ends."""
    if parent := parent_process():
        parent.join()
        os._exit(1)


@dataclass
class CostPass:
    """Measures the missing candidates, one group after the other."""

    folder: Path  # of the survey
    baseline: Candidate
    watcher: SurveyWatcher
    entries: CostEntries

    def run(self, missing: Sequence[Candidate]) -> None:
        base, scratch = self.baseline.name, self.folder / ".costs"
        others = [candidate for candidate in missing if candidate.name != base]
        with ExitStack() as alive:
            shutil.rmtree(scratch, ignore_errors=True)  # of a killed pass
            alive.callback(shutil.rmtree, scratch, ignore_errors=True)
            scratch.mkdir(exist_ok=True)
            baseline = self.start(self.baseline, alive)
            for done in range(0, max(1, len(others)), GROUP):
                progress = f"{done} of {len(others)} candidates done"
                self.watcher.phase(f"measuring costs beside {base}: {progress}")
                with ExitStack() as group_alive:
                    group = list(baseline)
                    for candidate in others[done : done + GROUP]:
                        group += self.start(candidate, group_alive)
                    self.measure(group)
                baseline = [] if self.entries[base]["warnings"] else baseline
                write_json(self.folder / "costs.json", settle(self.entries, base))

    def start(self, candidate: Candidate, alive: ExitStack) -> list[BenchmarkWorker]:
        """A process that is ready to measure; none if it failed."""
        worker = BenchmarkWorker(candidate, Path(mkdtemp(dir=self.folder / ".costs")))
        alive.callback(worker.stop)
        # The baseline may have rounds: it is measured again beside later candidates.
        entry = {"rounds": [], **self.entries.get(candidate.name, {})}
        entry |= {"mark": mark_validity(candidate, self.baseline), "warnings": []}
        self.entries[candidate.name] = entry
        known = self.ask(worker)
        self.entries[candidate.name] = known | entry
        return [worker] if known else []

    def ask(self, worker: BenchmarkWorker) -> dict[str, Any]:
        """The answer of a worker; empty, with a warning in its entry, if it failed."""
        try:
            return worker.measure()
        except RunError as problem:
            warnings = self.entries[worker.candidate.name]["warnings"]
            warnings.append(f"its cost was not measured: {problem}")
            return {}

    def measure(self, workers: list[BenchmarkWorker]) -> None:
        """All rounds of a group; the first worker is the baseline's, if that is alive."""
        groups = {f["group"] for entry in self.entries.values() for f in entry["rounds"]}
        number = 1 + max(groups, default=-1)
        measured: list[dict[str, float]] = []
        for turn in range(ROUNDS):
            first = turn % max(1, len(workers))
            for worker in [*workers[first:], *workers[:first]]:
                entry = self.entries[worker.candidate.name]
                if facts := self.ask(worker):
                    measured.append({"group": number, "round": turn, **facts})
                    entry["rounds"].append(measured[-1])
                else:
                    entry["rounds"] = [f for f in entry["rounds"] if f["group"] != number]
                    workers.remove(worker)
            if FEWEST_ROUNDS <= turn + 1 < ROUNDS and is_slowed_down(measured, turn + 1):
                self.watcher.note(
                    "other programs use this machine; the cost pass goes on after "
                    f"{turn + 1} of {ROUNDS} rounds, and its times are noisy"
                )
                break
        if workers and workers[0].candidate.name != self.baseline.name:
            alone = "its times stand alone: the baseline was not measured"
            for worker in workers:
                self.entries[worker.candidate.name]["warnings"].append(alone)


def is_slowed_down(measured: Rounds, rounds: int) -> bool:
    """Whether the rounds so far took longer than all of them would on an idle machine."""
    clock = sum(facts["clock"] for facts in measured)
    worked = clock - sum(facts["waited"] for facts in measured)
    return clock > SLACK * worked * ROUNDS / rounds
