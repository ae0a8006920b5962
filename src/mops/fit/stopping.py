"""Ctrl-C and SIGTERM wait for the end of a step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM, so that a step is never cut in the middle."""
    asked: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        if asked:  # asked twice: at once
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = {s: signal.signal(s, remember) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: the caller handles signals
        before = {}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
