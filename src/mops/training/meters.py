"""What work costs: processor time, energy, and the latency of requests to a trained network."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from mops.data.dataset import Dataset
from mops.predict.bundle import Predictor

REQUESTS = 3  # that are timed, after one that is not
# A counter of microjoules for each processor, on Linux; older kernels let everybody read it.
COUNTERS = Path("/sys/class/powercap")
Value = TypeVar("Value")
Request = dict[str, list[tuple[str, ...]]]  # task -> texts of its rows


def start_stopwatch(device: str) -> Callable[[], float]:
    """A function that returns the seconds since now.

    On the processor the CPU time, if it is shorter than the clock's: then other programs had the
    cores. With one thread this is the time on an idle machine.
    """
    clock, work = time.perf_counter(), time.process_time()

    def seconds() -> float:
        elapsed = time.perf_counter() - clock
        return min(elapsed, time.process_time() - work) if device == "cpu" else elapsed

    return seconds


def read_energy() -> dict[Path, int]:
    """The counters (RAPL) of all processors, in microjoules; empty where none can be read."""
    counters = {}
    for folder in COUNTERS.glob("intel-rapl:*"):  # of AMD's processors too
        if folder.name.count(":") == 1:  # the others are parts of these
            with suppress(OSError, ValueError):
                counters[folder] = int((folder / "energy_uj").read_text())
    return counters


def start_energy() -> Callable[[], float]:
    """A function that returns the joules of all processors since now; NaN where it is unknown.

    It counts what other programs do too. Call it at least once in the minutes that a counter
    takes to wrap around.
    """
    before = read_energy()

    def joules() -> float:
        after, spent = read_energy(), 0
        for folder, count in before.items():
            wraps_at = int((folder / "max_energy_range_uj").read_text())
            spent += (after.get(folder, count) - count) % wraps_at
        return spent / 1e6 if before and before.keys() == after.keys() else math.nan

    return joules


def quantiles(values: Sequence[Value], count: int) -> list[Value]:
    """`count` of the sorted values, at the middles of equal parts."""
    return [values[(2 * n + 1) * len(values) // (2 * count)] for n in range(count)]


def make_request(dataset: Dataset, rows: int) -> Request:
    """Validation rows for all tasks, evenly spread over all lengths; pairs if any task has pairs.

    Single-text tasks take the first text of a pair. One row has the median length.
    """
    tasks = dataset.tasks
    source = max(tasks, key=lambda name: tasks[name].is_pair)  # the first pair task, if any
    texts = [row.texts for row in dataset.splits[source]["validation"].good]
    chosen = quantiles(sorted(texts, key=lambda row: len("".join(row))), rows)
    return {name: [row[: len(task.text)] for row in chosen] for name, task in tasks.items()}


def time_request(predictor: Predictor, request: Request, device: str) -> float:
    seconds = start_stopwatch(device)
    predictor.predict_tasks(request)
    return seconds()


def measure_latency(predictor: Predictor, row: Request, device: str) -> dict[str, Any]:
    """Seconds of one row to all tasks in one request, and to each task alone."""

    def usual(request: Request) -> float:
        times = [time_request(predictor, request, device) for _ in range(1 + REQUESTS)]
        return median(times[1:])

    by_task = {task: usual({task: texts}) for task, texts in row.items()}
    return {"latency_seconds": usual(row), "latency_by_task": by_task}
