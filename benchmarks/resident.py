"""The resident memory of this process, now and at its peak."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

MIB = 2**20


def resident() -> int:
    """Bytes in memory now; where the system does not say, the peak so far."""
    return status("VmRSS") or used_at_most()


def peak() -> int:
    """Most bytes in memory so far."""
    return status("VmHWM") or used_at_most()


def status(key: str, process: int | str = "self") -> int:
    """A value of /proc/PID/status; ru_maxrss on Linux starts at the parent's memory."""
    path = Path(f"/proc/{process}/status")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def private_bytes(process: int) -> int:
    """Proportional memory of a process, but no code and data of libraries as they are on disk."""
    total, name = 0, ""
    for line in Path(f"/proc/{process}/smaps").read_text("utf-8").splitlines():
        words = line.split()
        if not words[0].endswith(":"):  # a mapping begins; its file, if it has one, comes last
            name = words[5] if len(words) > 5 else ""
        elif words[0] == "Pss:" and (not name.startswith("/") or name.endswith(".safetensors")):
            total += int(words[1]) * 1024
    return total


def used_at_most() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
