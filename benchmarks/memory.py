"""Peak memory of training and of prediction, each in its own process.

python -m benchmarks.memory

Every process loads the same libraries; their memory is measured before anything is built.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

import torch

from benchmarks.harness import arguments, limit, write_result
from benchmarks.resident import MIB, peak, resident
from benchmarks.training_step import (
    Case,
    data_name,
    our_forward,
    our_step,
    prepare_case,
    their_forward,
    their_step,
    typical_batch,
)
from mops.data.batches import Batch
from mops.tasks import Task

SIZES = (8, 32)  # rows per task
PAIR = "bi"
STEPS = 6
PLANS = ("shared", "hybrid:3", "separate", "frozen+late:SIS")
WORKS = ("training", "prediction")
Run = Callable[[], object]
Builder = Callable[[], Run]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {work: {} for work in WORKS}
    for size in limit(SIZES, options):
        kinds = builders(Case(options.data, options.encoder, PAIR, size))
        for work in limit(WORKS, options):
            found[work][str(size)] = {}
            for kind, build in limit(list(kinds[work].items()), options):
                used = measure_apart(build)
                found[work][str(size)][kind] = used
                print(f"{work}, {size} rows, {kind}: {used['peak_mib']:.0f} MiB", flush=True)
    facts = {"data": data_name(options.data), "pair": PAIR, "steps": STEPS, "works": found}
    print(write_result("memory", facts, options.out))


def builders(case: Case) -> dict[str, dict[str, Builder]]:
    """Work -> alternative -> its builder, which runs in the process that is measured."""
    ready = prepare_case(case)
    batch = typical_batch(ready, case.size)
    theirs = str(ready.source.folder), dict(ready.layout.tasks), case.pair, batch
    training: dict[str, Builder] = {
        "transformers, one model": partial(their_step, *theirs),
        "transformers, three models": partial(one_per_task, their_step, *theirs),
    }
    prediction: dict[str, Builder] = {
        "transformers, one model": partial(their_forward, *theirs),
        "transformers, three models": partial(one_per_task, their_forward, *theirs),
    }
    for plan in PLANS:
        here = replace(case, plan=plan)
        training[f"mops {plan}"] = partial(our_step, here, batch, dropout=0.1)
        prediction[f"mops {plan}"] = partial(our_forward, here, batch)
    return {"training": training, "prediction": prediction}


def one_per_task(
    build: Callable[[str, dict[str, Task], str, Batch], Run],
    folder: str,
    tasks: dict[str, Task],
    pair: str,
    batch: Batch,
) -> Run:
    """One model for each task, all in memory at once."""
    runs = [
        build(folder, {name: task}, pair, select_task(batch, name)) for name, task in tasks.items()
    ]
    return lambda: [run() for run in runs]


def select_task(batch: Batch, task: str) -> Batch:
    segments = tuple(segment for segment in batch.segments if task in segment.tasks)
    return Batch(segments, {task: batch.targets[task]})


def measure_apart(build: Builder) -> dict[str, float]:
    """`measure_here` in a new process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=send_memory, args=(build, theirs), daemon=True).start()
    theirs.close()  # so that a child that dies is noticed
    return dict(ours.recv())


def send_memory(build: Builder, pipe: Connection) -> None:
    pipe.send(measure_here(build))


def measure_here(build: Builder) -> dict[str, float]:
    """A few steps or forward passes in this process."""
    torch.set_num_threads(1)
    before = resident()
    run = build()
    for _ in range(STEPS):
        run()
    return {"libraries_mib": before / MIB, "peak_mib": peak() / MIB}


if __name__ == "__main__":
    main()
