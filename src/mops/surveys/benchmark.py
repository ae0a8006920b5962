"""The cost pass: all candidates of a survey, measured in turns on the same machine. No torch.

Each candidate is measured in a process of its own. A few of these and the baseline's are alive at
a time, and one of them works at a time. The speed of a machine changes from minute to minute, so a
candidate's time is the median over rounds of its ratio to the baseline in the same round, times
the baseline's median over all rounds. Known costs are in costs.json and are not measured again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

from filelock import FileLock
from scipy.stats import iqr

from mops.errors import RunError
from mops.files import write_text
from mops.record import package_version, processor_name
from mops.surveys.ledger import Candidate, SurveyWatcher, content_id

FORMAT = 2  # of the entries in costs.json; others are measured again
ROUNDS = 7
# Where other programs slow the pass down by more than SLACK, it ends early, after FEWEST_ROUNDS.
FEWEST_ROUNDS, SLACK = 3, 1.3
BATCH = 32  # rows of a batch of requests
GROUP = 3  # candidates whose processes are alive beside the baseline's
SPARE = 1.5  # start another process while this many times the largest one's memory is free
PATIENCE = 5.0  # seconds that a process has to end by itself
# measurement -> the baseline's measurement to divide by: the baseline may have nothing to encode
REFERENCE = {"step": "step", "encode": "step", "latency": "latency", "batch": "batch"}
CostEntries = dict[str, dict[str, Any]]  # candidate -> its entry in costs.json, or its mark
Rounds = Sequence[Mapping[str, float]]  # each with its group, its number and the measurements


def measure_costs(
    candidates: Sequence[Candidate], folder: Path, baseline: str, watcher: SurveyWatcher
) -> CostEntries:
    """The costs of each candidate, as in `folder/costs.json`; measures those that are unknown.

    A candidate that cannot be measured has `warnings` and lacks its times.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    path = folder / "costs.json"
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "locks" / "costs"):  # two passes at once would measure each other
        marks = {name: mark_validity(each, by_name[baseline]) for name, each in by_name.items()}
        known = read_costs(path, marks, watcher)
        missing = [candidate for name, candidate in by_name.items() if name not in known]
        if missing:
            CostPass(path, folder / ".costs", by_name[baseline], watcher, marks, known).run(missing)
    return settle(known, baseline)


def mark_validity(candidate: Candidate, baseline: Candidate) -> dict[str, Any]:
    """What a measurement depends on: this content, this baseline, this machine."""
    machine = {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": candidate.recipe.training.threads,
        "system": platform.platform(),
        "torch": package_version("torch"),
    }
    contents = {"content": content_id(candidate.recipe), "beside": content_id(baseline.recipe)}
    return {"format": FORMAT, **contents, "machine": machine}


def read_costs(path: Path, marks: CostEntries, watcher: SurveyWatcher) -> CostEntries:
    """Entries that are still valid; a broken file is measured again, with a note."""
    try:
        entries = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        known = {name: entries[name] for name in marks if name in entries}
        return {n: e for n, e in known.items() if e["mark"] == marks[n] and not e["warnings"]}
    except (ValueError, TypeError, KeyError) as error:
        watcher.note(f"{path} cannot be read ({error}); all candidates are measured again")
        return {}


# ------------------------------------------------------------------ from rounds to times


def settle(entries: Mapping[str, Mapping[str, Any]], baseline: str) -> CostEntries:
    """The entries with their times, from the rounds of all of them."""
    rounds: Rounds = entries.get(baseline, {}).get("rounds", ())
    reference = {(facts["group"], facts["round"]): facts for facts in rounds}
    steps = [facts["step"] for facts in rounds]
    # The interquartile range: a single disturbed round does not count.
    noise = float(iqr(steps)) / median(steps) if steps else None
    settled = {name: dict(entry) for name, entry in entries.items()}
    for name, entry in settled.items():
        if entry["rounds"]:
            entry.update(times(entry, {} if name == baseline else reference), noise=noise)
    return settled


def times(
    entry: Mapping[str, Any], reference: Mapping[tuple[float, float], Mapping[str, float]]
) -> dict[str, float]:
    """Each round counts as if the baseline had taken its median time in it."""
    rounds: Rounds = entry["rounds"]

    def scaled(what: str) -> list[float]:
        usual = median([facts[REFERENCE[what]] for facts in reference.values()] or [1.0])
        beside = [reference.get((facts["group"], facts["round"])) for facts in rounds]
        return [
            usual * facts[what] / base[REFERENCE[what]] if base else facts[what]
            for facts, base in zip(rounds, beside, strict=True)
        ]

    step, encode = median(scaled("step")), median(scaled("encode"))
    return {
        "step_seconds": step,
        "step_seconds_spread": float(iqr(scaled("step"))),
        "encode_seconds": encode,
        "train_seconds": entry["planned_steps"] * step + encode,
        "latency_seconds": median(scaled("latency")),
        "throughput": BATCH / median(scaled("batch")),
        # After as many rounds as the others: the baseline takes part in several groups.
        "peak_memory_bytes": [f["peak"] for f in rounds if f["group"] == rounds[0]["group"]][-1],
        "waited": sum(f["waited"] for f in rounds) / sum(f["clock"] for f in rounds),
    }


# ------------------------------------------------------------------ processes


class BenchmarkWorker:
    """A process that measures one candidate; it waits until it is asked."""

    def __init__(self, candidate: Candidate, scratch: Path) -> None:
        self.candidate, self.scratch = candidate, scratch
        with (scratch / "errors.txt").open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mops.surveys.benchmark_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    def prepare(self) -> dict[str, Any]:
        """Costs that are known without measuring, after everything has run once."""
        job = {"recipe": self.candidate.recipe.to_data(), "scratch": str(self.scratch)}
        return self.ask(json.dumps(job))

    def measure(self) -> dict[str, float]:
        """One round."""
        return self.ask("round")

    def ask(self, request: str) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            if line := self.process.stdout.readline():
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise RunError(answer["error"])
                return answer
        self.stop()
        if self.process.returncode < 0:
            signal = -self.process.returncode
            raise RunError(f"ended by signal {signal} (9: perhaps out of memory)")
        lines = (self.scratch / "errors.txt").read_text("utf-8").split("\n")
        raise RunError(next(filter(str.strip, reversed(lines)), "ended without a message"))

    def stop(self) -> None:
        """It ends when its stdin is closed."""
        assert self.process.stdin and self.process.stdout
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def free_memory() -> float:
    """Bytes that new processes may take; infinite where the system does not say."""
    path = Path("/proc/meminfo")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    available = (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return next(available, float("inf"))


# ------------------------------------------------------------------ the pass


@dataclass
class CostPass:
    """Measures the missing candidates, one group after the other."""

    path: Path
    scratch: Path
    baseline: Candidate
    watcher: SurveyWatcher
    marks: CostEntries
    entries: CostEntries

    def run(self, missing: Sequence[Candidate]) -> None:
        waiting = [candidate for candidate in missing if candidate.name != self.baseline.name]
        total, known = len(waiting), self.entries.get(self.baseline.name, {}).get("rounds", [])
        with ExitStack() as alive:
            shutil.rmtree(self.scratch, ignore_errors=True)  # of a killed pass
            alive.callback(shutil.rmtree, self.scratch, ignore_errors=True)
            baseline = self.start(self.baseline, alive)
            for number in count(max((facts["group"] + 1 for facts in known), default=0)):
                done = f"{total - len(waiting)} of {total} candidates done"
                self.watcher.phase(f"measuring costs beside {self.baseline.name}: {done}")
                with ExitStack() as group_alive:
                    group = self.start_group(waiting, group_alive)
                    self.measure(number, [*baseline, *group])
                baseline = [] if self.entries[self.baseline.name]["warnings"] else baseline
                costs = settle(self.entries, self.baseline.name)
                write_text(self.path, json.dumps(costs, indent=2) + "\n")
                if not waiting:
                    return

    def start_group(self, waiting: list[Candidate], alive: ExitStack) -> list[BenchmarkWorker]:
        """As many as may be alive at once and as the memory holds."""
        group: list[BenchmarkWorker] = []
        while waiting and len(group) < GROUP:
            largest = max(e.get("peak_memory_bytes", 0) for e in self.entries.values())
            if group and free_memory() <= SPARE * largest:
                break
            group += self.start(waiting.pop(0), alive)
        return group

    def start(self, candidate: Candidate, alive: ExitStack) -> list[BenchmarkWorker]:
        """A process that is ready to measure; none if it failed."""
        self.scratch.mkdir(exist_ok=True)
        worker = BenchmarkWorker(candidate, Path(mkdtemp(dir=self.scratch)))
        alive.callback(worker.stop)
        # The baseline may have rounds: it is measured again beside later candidates.
        entry = {"rounds": [], **self.entries.get(candidate.name, {})}
        entry |= {"mark": self.marks[candidate.name], "warnings": []}
        self.entries[candidate.name] = entry
        try:
            self.entries[candidate.name] = worker.prepare() | entry
        except RunError as problem:
            entry["warnings"].append(f"its cost was not measured: {problem}")
            return []
        return [worker]

    def measure(self, number: int, workers: list[BenchmarkWorker]) -> None:
        """All rounds of a group; the first worker is the baseline's, if that is alive."""
        measured: list[dict[str, float]] = []
        for turn in range(ROUNDS):
            first = turn % max(1, len(workers))
            for worker in [*workers[first:], *workers[:first]]:
                entry = self.entries[worker.candidate.name]
                try:
                    measured.append({"group": number, "round": turn, **worker.measure()})
                    entry["rounds"].append(measured[-1])
                except RunError as problem:
                    entry["warnings"].append(f"its cost was not measured: {problem}")
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
