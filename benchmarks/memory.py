"""Peak memory of a training and of a prediction, each in a process of its own.

python -m benchmarks.memory --data DIR

Every process has loaded the same libraries; what they take is measured before anything is built.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.forward import our_forward, their_forward
from benchmarks.harness import ROOT, arguments, few, write_result
from benchmarks.reference import Reference, reference_step
from benchmarks.resident import MIB, peak, resident
from benchmarks.training_step import data_name, made_ready, our_step, their_step, typical_batch
from mops.data.batches import Batch
from mops.fit.prepare import Prepared

SIZES = (8, 32)  # rows per task
PAIR = "bi"
STEPS = 6
Run = Callable[[], object]


# ------------------------------------------------------------------ what is measured


def our_training(ready: Prepared, batch: Batch) -> Run:
    return our_step(ready, batch, dropout=0.1)


def three_trainings(ready: Prepared, batch: Batch) -> Run:
    """A model, an optimiser and a loss for each task, side by side."""
    steps = []
    for name, task in ready.layout.tasks.items():
        model = Reference(str(ready.source.folder), {name: task}, PAIR)
        optimiser = torch.optim.AdamW(model.parameters(), lr=ready.recipe.training.learning_rate)
        steps.append(partial(reference_step, model, optimiser, only(batch, name)))
    return lambda: [step() for step in steps]


def three_forwards(ready: Prepared, batch: Batch) -> Run:
    """A model for each task; each has the heads of all, a few numbers more."""
    forwards = [their_forward(ready, only(batch, name)) for name in ready.layout.tasks]
    return lambda: [forward() for forward in forwards]


def only(batch: Batch, task: str) -> Batch:
    segments = tuple(segment for segment in batch.segments if task in segment.tasks)
    return Batch(segments, {task: batch.targets[task]})


Makers = dict[str, Callable[[Prepared, Batch], Run]]
OURS: Makers = {"training": our_training, "prediction": our_forward}
# name -> plan that is laid out, and for each work what runs
KINDS: dict[str, tuple[str, Makers]] = {
    "transformers, one model": ("shared", {"training": their_step, "prediction": their_forward}),
    "transformers, three models": (
        "shared",
        {"training": three_trainings, "prediction": three_forwards},
    ),
    "mops shared": ("shared", OURS),
    "mops hybrid:3": ("hybrid:3", OURS),
    "mops separate": ("separate", OURS),
    "mops frozen+late:SIS": ("frozen+late:SIS", OURS),
}
WORKS = ("training", "prediction")


# ------------------------------------------------------------------ parent and child


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--alone", nargs=3, metavar=("KIND", "WORK", "SIZE"), help="the child's")
    asked = parser.parse_args()
    if asked.alone:
        kind, work, size = asked.alone
        print(json.dumps(measure_here(asked, kind, work, int(size))))
        return
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for size in few(SIZES, asked):
        for work in few(WORKS, asked):
            for kind in few(tuple(KINDS), asked):
                used = measure_apart(asked, kind, work, size)
                found.setdefault(work, {}).setdefault(str(size), {})[kind] = used
                print(f"{work}, {size} rows, {kind}: {used['peak_mib']:.0f} MiB", flush=True)
    facts = {"data": data_name(asked.data), "pair": PAIR, "steps": STEPS, "works": found}
    print(write_result("memory", facts, asked.out))


def measure_apart(asked: argparse.Namespace, kind: str, work: str, size: int) -> dict[str, float]:
    """The same in a new process."""
    words = [sys.executable, "-m", "benchmarks.memory", "--alone", kind, work, str(size)]
    words += ["--data", asked.data, "--encoder", asked.encoder]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    child = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=child, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind}, {work}: the process ended with {done.returncode}\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_here(asked: argparse.Namespace, kind: str, work: str, size: int) -> dict[str, float]:
    """A few steps or forward passes in this process."""
    torch.set_num_threads(1)
    before = resident()
    plan, makers = KINDS[kind]
    ready = made_ready(asked.data, asked.encoder, PAIR, size, plan)
    run = makers[work](ready, typical_batch(ready, size))
    for _ in range(STEPS):
        run()
    return {"libraries_mib": before / MIB, "peak_mib": peak() / MIB}


if __name__ == "__main__":
    main()
