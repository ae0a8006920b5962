"""The machine: which device, how many threads, how freed memory is used again.

Before the first step: data read and tokenised, encoder found, plan laid out.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from mops.config.recipe import Recipe
from mops.config.training import Training, check_solver_installed
from mops.data.batches import AugmentedRows, Batch, TaskData, take_rows
from mops.data.dataset import Dataset, encode_targets, read_dataset
from mops.data.examples import Row
from mops.data.schedule import Place, generator
from mops.data.splits import half
from mops.data.tokens import tokenise_cached
from mops.errors import RecipeError, UsageError
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.layout import Layout
from mops.record import MetaInfo, machine_info
from mops.training.distributed import asked_world, processes_here
from mops.training.tracking import refuse_missing_trackers


def choose_device(name: str) -> str:
    """`auto` takes an accelerator when there is one; a named device must be there."""
    found = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return next(device for device in ("cuda", "mps", "cpu") if found[device])
    if not found.get(name, is_usable(name)):
        there = ", ".join(device for device, is_there in found.items() if is_there)
        raise UsageError(
            f"device {name!r} is not available; this machine has {there} "
            "(a device is auto, cpu, cuda, cuda:1, mps or another name that torch knows)"
        )
    return name


def is_usable(name: str) -> bool:
    """Whether torch can put a tensor there, as cuda:1 or xpu."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        return False
    return True


def prepare_machine(training: Training) -> str:
    """Set the threads and choose the device; returns the device."""
    torch.set_num_threads(training.threads or own_threads())
    keep_memory()
    device = choose_device(training.device)
    return device if asked_world() == 1 else own_device(device)


def own_threads() -> int:
    """The processes of one training share the cores; torchrun's OMP_NUM_THREADS=1 means nothing."""
    here = processes_here()
    return own_cores() if here == 1 else max(1, cores() // here)


def own_device(device: str) -> str:
    """Of one of several processes."""
    if device not in ("cpu", "cuda"):
        raise UsageError(
            f"training on several processes needs the device cpu or cuda, not {device!r}; "
            "add --device cpu"
        )
    return device if device == "cpu" else f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # names of glibc's settings (malloc.h)
LARGEST = 2**31 - 1


def keep_memory() -> None:
    """Let freed tensors be used again at once, where the C library can (glibc).

    By itself it returns every large one to the system, which hands out new, empty pages for the
    next: 13,000 page faults in each training step of MiniLM, a twentieth of its time.
    """
    set_option = c_function("mallopt")
    if set_option is not None:
        set_option(MMAP_THRESHOLD, 1 << 30)
        set_option(TRIM_THRESHOLD, LARGEST)


def give_back_memory() -> None:
    """Return free memory to the system where its C library can (glibc).

    Packs differ in size from step to step, so freed tensors leave holes: over a thousand steps a
    process grew from 1.5 to 2.5 GiB without this.
    """
    trim = c_function("malloc_trim")
    if trim is not None:
        trim(0)


def c_function(name: str) -> Callable[..., int] | None:
    """Of the C library that this process uses; none where it has no such thing."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None


def peak_memory() -> int:
    """Of this process, so far, in the machine's own memory; 0 where the system does not tell.

    Linux tells it of this program alone (VmHWM); ru_maxrss there begins with the memory of the
    process that started it.
    """
    status = Path("/proc/self/status")
    lines = status.read_text("utf-8").splitlines() if status.is_file() else []
    if told := [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]:
        return told[0]
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def own_cores() -> int:
    """The cores that this process may use: never more threads than that.

    OMP_NUM_THREADS bounds them further, as in other programs: who starts several sets it.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(asked)) if asked.isdecimal() and int(asked) else cores()


def cores() -> int:
    """Of the machine, as far as this process may use them."""
    is_limited = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if is_limited else os.cpu_count() or 1


SELECTION_ROWS = 2000  # of a task, for evaluations during training; the whole set at the end


@dataclass(frozen=True)
class Prepared:
    """All that a run is made of."""

    recipe: Recipe  # complete
    dataset: Dataset
    source: EncoderSource
    layout: Layout
    device: str

    @cached_property
    def key(self) -> str:
        """Names the recipe, the data and the encoder: what an interrupted run must go on with."""
        recipe = self.recipe.without("report_to")
        parts = [recipe.to_data(), dict(self.dataset.digests), self.source.digest]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare(recipe: Recipe, tell: Callable[[str], None]) -> Prepared:
    device = prepare_machine(recipe.training)
    check_solver_installed(recipe.training.gradients)
    refuse_missing_trackers(recipe.training)
    tell("reading data")
    dataset = read_dataset(recipe)
    recipe = recipe.with_labels(dataset.tasks)
    source = find_encoder(recipe.encoder)
    return Prepared(recipe, dataset, source, recipe.layout(dataset.tasks, source.shape), device)


def meta_info(device: str, source: EncoderSource, dataset: Dataset) -> MetaInfo:
    """Where a run was made, and of what."""
    return MetaInfo(
        **machine_info(),
        device=device,
        threads=torch.get_num_threads(),
        encoder=source.name,
        encoder_sha256=source.digest,
        encoder_shape=asdict(source.shape),
        data_sha256=dict(dataset.digests),
        data_notes=tuple(dataset.notes()),
    )


def training_data(ready: Prepared) -> dict[str, TaskData]:
    return {
        name: task_data(ready, name, splits["train"].good)
        for name, splits in ready.dataset.splits.items()
    }


def batch_maker(
    ready: Prepared, data: Mapping[str, TaskData]
) -> Callable[[Mapping[str, Sequence[Place]]], Batch]:
    """What makes a batch of chosen training rows, changed where the recipe says so."""
    training, splits = ready.recipe.training, ready.dataset.splits
    if training.augment is None:
        return partial(take_rows, data)
    texts = {name: [row.texts for row in splits[name]["train"].good] for name in data}
    return AugmentedRows(
        data=data,
        texts=texts,
        tokenizer=ready.source.tokenizer,
        reading=ready.layout.reading,
        augment=training.augment,
        seed=training.seed,
    ).take


def selection_data(ready: Prepared) -> dict[str, TaskData]:
    return {name: task_data(ready, name, rows) for name, rows in selection_rows(ready).items()}


def selection_rows(ready: Prepared) -> dict[str, tuple[Row, ...]]:
    """The selection half of each validation split; of a large one a fixed sample."""
    found = {}
    for name, splits in ready.dataset.splits.items():
        rows = [row for row in splits["validation"].good if half(row) == "selection"]
        if not rows:
            raise RecipeError(
                f"task {name!r}: the validation rows are too few to be halved; add some"
            )
        draw = generator(ready.recipe.training.seed, "selection", name)
        chosen = np.sort(draw.permutation(len(rows))[:SELECTION_ROWS])
        found[name] = tuple(rows[i] for i in chosen)
    return found


def task_data(ready: Prepared, name: str, rows: tuple[Row, ...]) -> TaskData:
    task = ready.dataset.tasks[name]
    table = tokenise_cached(
        ready.source.tokenizer, [row.texts for row in rows], ready.layout.reading
    )
    return TaskData(task, table, encode_targets(task, rows))
