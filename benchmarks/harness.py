"""How a benchmark measures: alternatives take turns, round after round.

The speed of a machine changes from minute to minute, so a single time means little. Every round
runs each alternative once, on one thread, in processor time, and measures the peak rate of a large
matrix product. The report has medians over the rounds: the time, its ratio to the reference in the
same round, and the fraction of the peak.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from mops.files import write_text
from mops.record import machine_info
from mops.training.machine import own_cores

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
ROUNDS = 7
PEAK_SHAPES = ((4096, 384, 1536), (2048, 2048, 2048))  # rows, inner, columns


@dataclass
class Timing:
    """One alternative: its seconds in each round, and the FLOPs of its linear layers."""

    seconds: list[float] = field(default_factory=list)
    flops: float = 0.0


@dataclass
class Comparison:
    """Alternatives that do the same work; the first one is the reference."""

    timings: dict[str, Timing]
    peak: list[float]  # FLOPs per second in each round

    @property
    def reference(self) -> str:
        return next(iter(self.timings))

    def speedup(self, name: str) -> float:
        """How many times faster than the reference."""
        pairs = zip(self.timings[self.reference].seconds, self.timings[name].seconds, strict=True)
        return median(theirs / ours for theirs, ours in pairs)

    def share_of_peak(self, name: str) -> float | None:
        """The FLOP rate of the linear layers as a fraction of the peak."""
        timing = self.timings[name]
        if not timing.flops:
            return None
        pairs = zip(timing.seconds, self.peak, strict=True)
        return median(timing.flops / seconds / peak for seconds, peak in pairs)

    def to_data(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "rounds": len(self.peak),
            "peak_gflops": median(self.peak) / 1e9,
            "alternatives": {
                name: {
                    "seconds": median(timing.seconds),
                    "speedup": self.speedup(name),
                    "share_of_peak": self.share_of_peak(name),
                }
                for name, timing in self.timings.items()
            },
        }


def compare(
    alternatives: Mapping[str, Callable[[], object]],
    *,
    flops: Mapping[str, float] | None = None,
    rounds: int = ROUNDS,
    warmup: int = 1,
    clock: Callable[[Callable[[], object]], float] | None = None,
) -> Comparison:
    """Run every alternative once per round; `flops` are those of its linear layers."""
    clock = clock or processor_time
    torch.set_num_threads(1)
    found = Comparison({n: Timing(flops=(flops or {}).get(n, 0.0)) for n in alternatives}, [])
    for number in range(warmup + rounds):
        seconds = {name: clock(run) for name, run in alternatives.items()}
        peak = matrix_peak()
        if number >= warmup:
            found.peak.append(peak)
            for name, value in seconds.items():
                found.timings[name].seconds.append(value)
    return found


def compare_apart(
    builders: Mapping[str, Callable[[], Callable[[], object]]],
    *,
    flops: Mapping[str, float] | None = None,
    rounds: int = ROUNDS,
) -> Comparison:
    """Like `compare`, with each alternative in its own process, as a user would run it.

    They still take turns; a waiting process costs nothing. Process-wide settings, such as those of
    malloc, then affect only the alternative that makes them.
    """
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for name, build in builders.items():
        pipes[name], theirs = context.Pipe()
        context.Process(target=serve_rounds, args=(build, theirs), daemon=True).start()
        theirs.close()  # so that a child that dies is noticed
    found = compare(
        {name: partial(request_round, pipe) for name, pipe in pipes.items()},
        flops=flops, rounds=rounds, clock=lambda run: float(str(run())),
    )  # fmt: skip
    for pipe in pipes.values():
        pipe.close()
    return found


def serve_rounds(build: Callable[[], Callable[[], object]], pipe: Connection) -> None:
    """In the child: build once, then run on request and send the processor time."""
    torch.set_num_threads(1)
    run = build()
    with suppress(EOFError):
        while True:
            pipe.recv()
            pipe.send(processor_time(run))


def request_round(pipe: Connection) -> float:
    pipe.send("run")
    seconds: float = pipe.recv()
    return seconds


def processor_time(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def matrix_peak() -> float:
    """FLOPs per second of the faster of two large float32 products."""
    return max(2 * m * k * n / min(product_times(m, k, n)) for m, k, n in PEAK_SHAPES)


def product_times(rows: int, inner: int, columns: int, repeats: int = 3) -> list[float]:
    left, right = torch.ones(rows, inner), torch.ones(columns, inner)
    return [processor_time(lambda: torch.nn.functional.linear(left, right)) for _ in range(repeats)]


def arguments(description: str) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", default="sample", help="folder of data; default: the sample")
    parser.add_argument("--encoder", default="minilm", help="name or folder")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds that are counted")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    parser.add_argument("--quick", action="store_true", help="the first case alone")
    return parser


def limit(items: Sequence[T], options: argparse.Namespace) -> Sequence[T]:
    """All items, or only the first with --quick."""
    return items[:1] if options.quick else items


def write_result(name: str, data: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """One JSON file per benchmark, with the machine it ran on."""
    made = datetime.now(UTC).date().isoformat()
    facts = {"name": name, "made": made, "command": command(name), "machine": machine()}
    path = folder / f"{name}.json"
    write_text(path, json.dumps({**facts, **data}, indent=2) + "\n")
    return path


def command(name: str) -> str:
    """The command as it was typed, without folders and without --out."""
    words = iter(sys.argv[1:])
    kept = [Path(word).name for word in words if word != "--out" or not next(words, None)]
    return shlex.join(["python", "-m", f"benchmarks.{name}", *kept])


def machine() -> dict[str, Any]:
    facts = {key: value for key, value in machine_info().items() if key != "command"}  # has paths
    facts["packages"]["transformers"] = (
        version("transformers") if find_spec("transformers") else "not installed"
    )
    load = round(os.getloadavg()[1], 1)  # over five minutes: about 1 if nothing else ran
    return {**facts, "cores": own_cores(), "torch_threads": 1, "load": load}


def print_comparison(title: str, data: Mapping[str, Any]) -> None:
    print(f"\n{title} (peak {data['peak_gflops']:.0f} GFLOP/s, {data['rounds']} rounds)")
    for name, facts in data["alternatives"].items():
        share = facts["share_of_peak"]
        of_peak = "" if share is None else f"  {share:6.1%} of peak"
        print(f"  {name:28} {facts['seconds']:9.4f} s  {facts['speedup']:6.2f} x{of_peak}")
