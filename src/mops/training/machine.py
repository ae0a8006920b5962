"""The machine: device, threads, freed memory, requests to stop, and a thread that makes batches."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TypeVar

import torch

from mops.config.training import Training
from mops.errors import RunError, UsageError
from mops.training.distributed import world_size

try:
    import fcntl
except ImportError:  # not on Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Refuse a folder in which another process works; the system releases it with the process.

    A file system without such locks, and a folder that cannot be made, are let pass. A folder that
    was made for nothing is removed.
    """
    held, is_new = -1, not folder.exists()
    try:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            held = os.open(folder, os.O_RDONLY) if fcntl else -1
        if held >= 0:
            with suppress(OSError):
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise RunError(
                        f"another process is training in {folder}; wait until it has ended, or "
                        "name another folder as `out`"
                    ) from None
        yield
    finally:
        if held >= 0:
            os.close(held)
        if is_new:
            with suppress(OSError):  # it has files
                folder.rmdir()


def choose_device(name: str) -> str:
    """`auto` takes an accelerator when there is one; a named device must be there."""
    devices = {"cuda": torch.cuda, "mps": torch.backends.mps, "cpu": torch.cpu}
    available = [device for device, module in devices.items() if module.is_available()]
    if name == "auto":
        return available[0]
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as cause:
        raise UsageError(
            f"device {name!r} is not available; this machine has {', '.join(available)} "
            "(a device is auto, cpu, cuda, cuda:1, mps or another name that torch knows)"
        ) from cause
    return name


@cache
def has_bfloat16(device: str) -> bool:
    """Whether matrix products in bfloat16 are safe on the device, and faster than in float32.

    Some virtual machines report AMX, and a process that uses it dies of an illegal instruction;
    some processors are slower in bfloat16. So another process tries a product first.
    """
    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # Older versions of torch cannot tell.
    known: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return device == "cpu" and bool(known.get("avx512_bf16")) and speed_up(PRODUCTS) > 1.2


# The quickest of five products in float32 and in bfloat16, of the sizes of a feed-forward block
PRODUCTS = """
import time, torch
torch.set_num_threads(1)
def measure(dtype):
    x, w = torch.ones(1024, 384, dtype=dtype), torch.ones(1536, 384, dtype=dtype)
    seconds = []
    for _ in range(6):
        start = time.thread_time()
        torch.nn.functional.linear(x, w)
        seconds.append(time.thread_time() - start)
    return min(seconds[1:])
print(measure(torch.float32) / measure(torch.bfloat16))
"""


def speed_up(program: str) -> float:
    """The number that a program prints; 0 when it dies."""
    command = [sys.executable, "-c", program]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(child.stdout) if child.returncode == 0 else 0.0


def prepare_machine(training: Training) -> str:
    """Set the number of torch's threads and choose the device, which is returned.

    The processes of a training share the cores; torchrun sets OMP_NUM_THREADS=1 for any.
    """
    is_alone = world_size() == 1
    here = 1 if is_alone else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = own_cores() if here == 1 else max(1, cores() // here)
    torch.set_num_threads(training.threads or threads)
    device = choose_device(training.device)
    if is_alone or device == "cpu":
        return device
    if device != "cuda":
        raise UsageError(
            f"training on several processes needs the device cpu or cuda, not {device!r}; "
            "set the device cpu"
        )
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


@contextmanager
def restored_threads() -> Iterator[None]:
    """Give the caller torch's number of threads back: a training changes it."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def own_cores() -> int:
    """The cores that this process may use, at most OMP_NUM_THREADS where that is set."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(limit)) if limit.isdecimal() and int(limit) else cores()


def cores() -> int:
    """The cores of the machine that this process may use."""
    is_limited = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if is_limited else os.cpu_count() or 1


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # glibc's names of its settings (malloc.h)


def keep_freed_memory() -> None:
    """Let glibc reuse freed tensors at once. It cannot be undone, so only commands call this.

    By default glibc returns every large block to the system, which hands out new, empty pages for
    the next: 13,000 page faults in each training step of MiniLM, a twentieth of its time.
    """
    call_c("mallopt", MMAP_THRESHOLD, 1 << 30)
    call_c("mallopt", TRIM_THRESHOLD, 2**31 - 1)


def give_back_memory() -> None:
    """Return free memory to the system, where the C library can (glibc).

    Packs differ in size from step to step, so freed tensors leave holes: without this a process
    grew from 1.5 to 2.5 GiB over a thousand steps.
    """
    call_c("malloc_trim", 0)


def call_c(name: str, *values: int) -> None:
    """Call a function of this process's C library, if it has it."""
    function = getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
    if function is not None:
        function(*values)


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


def prefetch(make: Callable[[int], T], numbers: Iterable[int]) -> Generator[T, None, None]:
    """Make an item for each number; while one is used, a thread makes the next.

    Little of the work holds Python's lock while torch computes, so the two threads hardly wait for
    each other.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        started = (pool.submit(make, number) for number in numbers)
        ahead = next(started, None)
        while ahead:
            ready, ahead = ahead, next(started, None)
            yield ready.result()


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM, so that no step is cut in the middle; then restore handlers."""
    requests: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        if requests:  # the second one stops at once
            raise KeyboardInterrupt
        requests.append(number)

    try:
        before = {s: signal.signal(s, remember) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: the caller handles signals
        before = {}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
