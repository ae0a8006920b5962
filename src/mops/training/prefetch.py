"""The next batch is made while the step before it runs.

Ctrl-C and SIGTERM wait for the end of a step.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Makes things by number; while one is used, a thread makes the next.

    What is made must follow from its number alone. Little of it holds Python's lock while torch
    computes, so that the two hardly wait for each other.
    """

    def __init__(self, make: Callable[[int], T], stop: int) -> None:
        self.make, self.stop = make, stop  # `stop`: one past the last number
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self.waiting: dict[int, Future[T]] = {}

    def take(self, number: int) -> T:
        made = self.waiting.pop(number, None)
        found = self.make(number) if made is None else made.result()
        self.waiting.clear()
        if number + 1 < self.stop:
            self.waiting[number + 1] = self.pool.submit(self.make, number + 1)
        return found

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


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
