"""The machine: which device, how many threads, how freed memory is used again."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from mops.errors import UsageError
from mops.fit.distributed import asked_world, processes_here
from mops.settings import Training


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
        raise UsageError(f"device {name!r} is not there; this machine has {there}")
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
