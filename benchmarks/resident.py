"""How much memory this process holds, and held at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

MIB = 2**20


def resident() -> int:
    """Bytes of this process that are in memory now; where nobody tells, its peak so far."""
    return status("VmRSS") or used_at_most()


def peak() -> int:
    """Most bytes of this process in memory so far."""
    return status("VmHWM") or used_at_most()


def status(key: str) -> int:
    """Linux tells it of this program alone; ru_maxrss there begins with the parent's memory."""
    path = Path("/proc/self/status")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def used_at_most() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
