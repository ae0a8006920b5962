"""Peak memory of training and of prediction, each in its own process.

python -m benchmarks.memory

Every process loads the same libraries; their memory is measured before anything is built. For
prediction both sides load a folder with its tokenizer: a bundle here, a model of `transformers`
there. Both folders are copied in the same way first, because how much of a mapped file is in memory
depends on how the file was written.
"""

from __future__ import annotations

import math
import multiprocessing
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # noqa: F401  a library, whose memory is not counted
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from benchmarks.harness import arguments, limit, write_result
from benchmarks.resident import MIB, peak, resident
from benchmarks.training_step import (
    Case,
    data_name,
    our_step,
    prepare_case,
    their_forward,
    their_step,
    typical_batch,
)
from mops.data.batches import Batch
from mops.export.onnx import export_int8
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.pretrained import load_pretrained
from mops.predict.bundle import load_bundle, save_bundle
from mops.predict.inference import pool_segments
from mops.predict.onnx import load_exported
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
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
        found = measure(options, Path(scratch))
    facts = {"data": data_name(options.data), "pair": PAIR, "steps": STEPS, "works": found}
    print(write_result("memory", facts, options.out))


def measure(options: Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """Work -> rows per task -> alternative -> its memory."""
    found: dict[str, dict[str, Any]] = {work: {} for work in WORKS}
    for size in limit(SIZES, options):
        kinds = builders(Case(options.data, options.encoder, PAIR, size), folder)
        for work in limit(WORKS, options):
            found[work][str(size)] = {}
            for kind, build in limit(list(kinds[work].items()), options):
                used = measure_apart(build)
                found[work][str(size)][kind] = used
                print(f"{work}, {size} rows, {kind}: {used['peak_mib']:.0f} MiB", flush=True)
    return found


def builders(case: Case, folder: Path) -> dict[str, dict[str, Builder]]:
    """Work -> alternative -> its builder, which runs in the process that is measured.

    The bundles are written into the folder.
    """
    ready = prepare_case(case)
    batch = typical_batch(ready, case.size)
    copied = shutil.copytree(ready.source.folder, folder / f"transformers-{case.size}")
    theirs = str(copied), dict(ready.layout.tasks), case.pair, batch
    training: dict[str, Builder] = {
        "transformers, one model": partial(their_step, *theirs),
        "transformers, three models": partial(one_per_task, their_step, *theirs),
    }
    prediction: dict[str, Builder] = {
        "transformers, one model": partial(their_answers, *theirs),
        "transformers, three models": partial(one_per_task, their_answers, *theirs),
    }
    for plan in PLANS:
        here = replace(case, plan=plan)
        training[f"mops {plan}"] = partial(our_step, here, batch, dropout=0.1)
        bundle = write_bundle(here, folder / f"{plan}-{case.size}".replace(":", "-"))
        prediction[f"mops {plan}"] = partial(our_answers, bundle, batch)
        if plan == PLANS[0]:
            small = bundle.with_name("int8")
            export_int8(load_bundle(bundle), small, {}, math.inf)
            prediction[f"mops {plan}, int8"] = partial(exported_answers, small, batch)
    return {"training": training, "prediction": prediction}


def write_bundle(case: Case, folder: Path) -> Path:
    """A bundle with pretrained weights and untrained heads."""
    ready = prepare_case(case)
    network = Network(ready.layout)
    load_pretrained(network, ready.source)
    made = folder / "made"
    save_bundle(made, network, ready.source.tokenizer, ready.recipe.tasks, {})
    return shutil.copytree(made, folder / "model")


def their_answers(folder: str, *work: Any) -> Run:
    """Their outputs, with the tokenizer that every process needs."""
    tokenizer, run = AutoTokenizer.from_pretrained(folder), their_forward(folder, *work)
    return lambda: (tokenizer, run())


def our_answers(bundle: Path, batch: Batch) -> Run:
    """The outputs of all tasks, in packs as `mops predict` and a server compute them."""
    network = load_bundle(bundle).network
    pack = partial(pack_segments, layout=network.layout)
    by_task = segments_by_task(batch)

    def forward() -> object:
        with torch.inference_mode():
            tasks = network.layout.tasks
            vectors_SD, places, _ = pool_segments(network, batch.segments, tasks, pack)
            return {
                task: network.task_outputs(task, vectors_SD[places[task][own]])
                for task, own in by_task.items()
            }

    return forward


def exported_answers(folder: Path, batch: Batch) -> Run:
    """The same from an exported model in 8 bits."""
    answer, numbers = load_exported(folder).network.answer, segments_by_task(batch)
    return partial(answer, batch.segments, numbers)


def segments_by_task(batch: Batch) -> dict[str, NDArray[np.int64]]:
    """Task -> the numbers of its segments."""
    return {
        task: np.array([n for n, segment in enumerate(batch.segments) if task in segment.tasks])
        for task in batch.targets
    }


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
