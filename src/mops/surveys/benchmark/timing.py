"""From rounds to numbers: every candidate beside the baseline that met the same machine. No torch.

A machine's speed changes from minute to minute. In each round every candidate of a group and the
baseline take their turns, so their ratio is that of the same minute; a candidate's time is the
median of these ratios times the median of all of the baseline's rounds.

The cost pass: all candidates of a survey on the same machine, in turns. No torch.

Each candidate is measured in a process of its own; of a group all are alive, and one at a time
works. The baseline is in every group. What is known is in costs.json and is not measured again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from filelock import FileLock

from mops.errors import RunError, UsageError, nearest
from mops.files import write_text
from mops.record import package_version, processor_name
from mops.surveys.benchmark.pool import Child, free_memory
from mops.surveys.ledger import Candidate, content_id

ROUNDS = 7
BATCH = 32  # rows of a batch of requests
Rounds = Mapping[str, Sequence[float]]  # what -> seconds in each round
# what is measured -> what of the baseline's it stands beside: it may have nothing to encode
BESIDE = {"step": "step", "encode": "step", "latency": "latency", "batch": "batch"}


def settle(entries: Mapping[str, Mapping[str, Any]], baseline: str) -> dict[str, dict[str, Any]]:
    """The entries with their times, from the rounds of all of them."""
    level: Rounds = entries.get(baseline, {}).get("rounds", {})
    noise = spread(level["step"]) / middle(level["step"]) if level else None
    return {
        name: {**entry, **times(entry, level), "noise": noise} if "rounds" in entry else {**entry}
        for name, entry in entries.items()
    }


def times(entry: Mapping[str, Any], level: Rounds) -> dict[str, float]:
    found = {what: seconds_of(what, entry, level) for what in BESIDE}
    step, encode = middle(found["step"]), middle(found["encode"])
    return {
        "step_seconds": step,
        "step_seconds_spread": spread(found["step"]),
        "encode_seconds": encode,
        "train_seconds": entry["planned_steps"] * step + encode,
        "latency_seconds": middle(found["latency"]),
        "throughput": BATCH / middle(found["batch"]),
    }


def seconds_of(what: str, entry: Mapping[str, Any], level: Rounds) -> list[float]:
    """Each round as if the baseline had taken its usual time in it; as measured without one."""
    own, beside = entry["rounds"][what], entry.get("baseline_rounds")
    if not beside or not level:
        return list(own)
    usual = middle(level[BESIDE[what]])
    return [usual * a / b for a, b in zip(own, beside[BESIDE[what]], strict=True)]


def middle(values: Sequence[float]) -> float:
    return float(np.median(values))


def spread(values: Sequence[float]) -> float:
    """Between the quartiles: a round that something disturbed does not count."""
    low, high = np.percentile(values, [25, 75])
    return float(high - low)


TOGETHER = 3  # candidates that are alive beside the baseline
SPARE = 1.5  # another child is started while this many times the largest one is free
Costs = dict[str, dict[str, Any]]


class Told(Protocol):
    """Someone who wants to know how the pass is going."""

    def phase(self, name: str) -> None: ...


def measure_costs(
    candidates: Sequence[Candidate], folder: Path, baseline: str, watcher: Told
) -> Costs:
    """The cost facts of each candidate, as in `folder/costs.json`; measures what is not there.

    A candidate that cannot be measured has `warnings` and lacks what is unknown.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    if baseline not in by_name:
        raise UsageError(
            f"the baseline {baseline!r} is no candidate; there are {', '.join(by_name)}."
            f"{nearest(baseline, by_name)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder):
        marks = {name: mark_of(one, by_name[baseline]) for name, one in by_name.items()}
        known = read_costs(folder / "costs.json", marks)
        missing = [one for name, one in by_name.items() if name not in known]
        if missing:
            with scratch_in(folder) as scratch:
                path = folder / "costs.json"
                Pass(path, by_name[baseline], watcher, scratch, marks, known).run(missing)
    return settle(known, baseline)


def mark_of(candidate: Candidate, baseline: Candidate) -> dict[str, Any]:
    """What a measurement holds for: this content, beside this baseline, on this machine."""
    return {
        "content": content_id(candidate.recipe),
        "beside": content_id(baseline.recipe),
        "machine": {
            "processor": processor_name(),
            "cores": os.cpu_count(),
            "threads": candidate.recipe.training.threads,
            "system": platform.platform(),
            "torch": package_version("torch"),
        },
    }


def read_costs(path: Path, marks: Mapping[str, Mapping[str, Any]]) -> Costs:
    """What was measured of these candidates as they are now."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return {
            name: found[name]
            for name, mark in marks.items()
            if name in found and found[name]["mark"] == mark and is_measured(found[name])
        }
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def is_measured(entry: Mapping[str, Any]) -> bool:
    """Beside the baseline, unless it is the baseline itself."""
    mark = entry["mark"]
    return "rounds" in entry and ("baseline_rounds" in entry or mark["content"] == mark["beside"])


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Two passes at once would measure each other; the second one waits."""
    lock = folder / "locks" / "costs"
    lock.parent.mkdir(exist_ok=True)
    with FileLock(lock):
        yield


@contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """A place for the children; what a killed pass left there goes first."""
    place = folder / ".costs"
    shutil.rmtree(place, ignore_errors=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@dataclass
class Pass:
    """The groups of one pass, one after the other."""

    path: Path
    baseline: Candidate
    watcher: Told
    scratch: Path
    marks: Mapping[str, Mapping[str, Any]]
    entries: Costs
    started: int = 0

    def run(self, missing: Sequence[Candidate]) -> None:
        """Measure these, and the baseline beside them once more."""
        left = [one for one in missing if one.name != self.baseline.name]
        with ExitStack() as alive:
            base = self.start(self.baseline, alive)
            while True:
                with ExitStack() as of_group:
                    group = self.start_some(left, of_group)
                    base = self.take_turns(base, group)
                self.write()
                if not left:
                    return

    def write(self) -> None:
        costs = settle(self.entries, self.baseline.name)
        write_text(self.path, json.dumps(costs, indent=2) + "\n")

    # -------------------------------------------------------------- children

    def start_some(self, left: list[Candidate], alive: ExitStack) -> list[Child]:
        """The next group: as many as may be alive at once, and as the memory holds."""
        found: list[Child] = []
        while left and len(found) < TOGETHER and (not found or self.has_room()):
            child = self.start(left.pop(0), alive)
            found += [child] if child else []
        return found

    def has_room(self) -> bool:
        peaks = [entry.get("peak_memory_bytes", 0) for entry in self.entries.values()]
        return free_memory() > SPARE * max(peaks, default=0)

    def start(self, candidate: Candidate, alive: ExitStack) -> Child | None:
        """A child that is ready for its turns; none if it failed before."""
        name = candidate.name
        self.watcher.phase(f"measuring costs: preparing {name}")
        self.started += 1
        child = Child(candidate, self.scratch / str(self.started))
        alive.callback(child.stop)
        known = self.entries.get(name, {})  # of the baseline, which is beside later ones again
        known = self.entries[name] = {**known, "mark": self.marks[name], "warnings": []}
        try:
            self.entries[name] = child.begin() | known
            self.entries[name] = child.ask("warm") | self.entries[name]
        except RunError as problem:
            self.fail(child, problem)
            return None
        return child

    def fail(self, child: Child, problem: RunError) -> None:
        self.entries[child.name]["warnings"].append(f"its cost was not measured: {problem}")

    # -------------------------------------------------------------- turns

    def take_turns(self, base: Child | None, group: Sequence[Child]) -> Child | None:
        """Round by round, who begins changes; the baseline's child, if it is still there."""
        alive = [*([base] if base else []), *group]
        seconds: dict[Child, list[dict[str, float]]] = {child: [] for child in alive}
        for number in range(ROUNDS):
            names = ", ".join(child.name for child in alive)
            self.watcher.phase(f"measuring costs: round {number + 1} of {ROUNDS} of {names}")
            for child in rotated(alive, number):
                try:
                    seconds[child].append(child.ask(str(number)))
                except RunError as problem:
                    self.fail(child, problem)
                    alive.remove(child)
        rounds = {child: joined(seconds[child]) for child in alive}
        for child in alive:
            self.note(child, rounds[child], rounds.get(base) if base else None)
        return base if base in alive else None

    def note(
        self, child: Child, rounds: dict[str, list[float]], beside: dict[str, list[float]] | None
    ) -> None:
        entry = self.entries[child.name]
        peaks, before = rounds.pop("peak"), entry.get("rounds", {})
        if not before:  # after as many steps as the others
            entry["peak_memory_bytes"] = peaks[-1]
        if child.name == self.baseline.name:  # over all groups
            entry["rounds"] = {what: before.get(what, []) + of for what, of in rounds.items()}
            return
        entry["rounds"] = rounds
        if beside is None:
            entry["warnings"].append("its times stand alone: the baseline was not measured")
        else:
            entry["baseline_rounds"] = beside


def rotated(children: Sequence[Child], number: int) -> list[Child]:
    first = number % max(1, len(children))
    return [*children[first:], *children[:first]]


def joined(rounds: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {what: [of[what] for of in rounds] for what in rounds[0]}
