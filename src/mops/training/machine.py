"""The machine: which device, how many threads, how freed memory is used again."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mops.config.training import Training
from mops.errors import UsageError
from mops.training.distributed import local_world_size, world_size


def choose_device(name: str) -> str:
    """`auto` takes an accelerator when there is one; a named device must be there."""
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return next(device for device in ("cuda", "mps", "cpu") if available[device])
    if not available.get(name, is_usable(name)):
        there = ", ".join(device for device, is_there in available.items() if is_there)
        raise UsageError(
            f"device {name!r} is not available; this machine has {there} "
            "(a device is auto, cpu, cuda, cuda:1, mps or another name that torch knows)"
        )
    return name


def is_usable(name: str) -> bool:
    """Whether torch can put a tensor there, as on cuda:1 or xpu."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        return False
    return True


def prepare_machine(training: Training) -> str:
    """Set the number of torch's threads and choose the device, which is returned."""
    torch.set_num_threads(training.threads or own_threads())
    device = choose_device(training.device)
    return device if world_size() == 1 else own_device(device)


@contextmanager
def restored_threads() -> Iterator[None]:
    """Give the caller torch's number of threads back: a training changes it."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def own_threads() -> int:
    """The processes of a training share the cores; torchrun sets OMP_NUM_THREADS=1 for any."""
    here = local_world_size()
    return own_cores() if here == 1 else max(1, cores() // here)


def own_device(device: str) -> str:
    """The device of one of several processes."""
    if device not in ("cpu", "cuda"):
        raise UsageError(
            f"training on several processes needs the device cpu or cuda, not {device!r}; "
            "add --device cpu"
        )
    return device if device == "cpu" else f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def own_cores() -> int:
    """The cores that this process may use, at most OMP_NUM_THREADS where that is set."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(limit)) if limit.isdecimal() and int(limit) else cores()


def cores() -> int:
    """The cores of the machine that this process may use."""
    is_limited = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if is_limited else os.cpu_count() or 1


# ------------------------------------------------------------------ memory

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # glibc's names of its settings (malloc.h)
LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Let glibc reuse freed tensors at once. It cannot be undone, so only commands call this.

    By default glibc returns every large block to the system, which hands out new, empty pages for
    the next: 13,000 page faults in each training step of MiniLM, a twentieth of its time.
    """
    set_option = c_function("mallopt")
    if set_option is not None:
        set_option(MMAP_THRESHOLD, 1 << 30)
        set_option(TRIM_THRESHOLD, LARGEST)


def give_back_memory() -> None:
    """Return free memory to the system, where the C library can (glibc).

    Packs differ in size from step to step, so freed tensors leave holes: without this a process
    grew from 1.5 to 2.5 GiB over a thousand steps.
    """
    trim = c_function("malloc_trim")
    if trim is not None:
        trim(0)


def c_function(name: str) -> Callable[..., int] | None:
    """A function of this process's C library, if it has it."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None


def peak_memory() -> int:
    """The peak memory of this process in bytes; 0 where the system does not know it.

    Linux counts this program alone in VmHWM; its ru_maxrss starts with the parent's memory.
    """
    status = Path("/proc/self/status")
    lines = status.read_text("utf-8").splitlines() if status.is_file() else []
    if peaks := [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]:
        return peaks[0]
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
