"""Between two steps: the next batch is made in a thread, and requests to stop are noticed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Makes items by number; while one is used, a thread makes the next.

    An item must depend on its number alone. Little of the work holds Python's lock while torch
    computes, so the two threads hardly wait for each other.
    """

    def __init__(self, make: Callable[[int], T], stop: int) -> None:
        self.make, self.stop = make, stop  # `stop`: one past the last number
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self.waiting: dict[int, Future[T]] = {}

    def take(self, number: int) -> T:
        future = self.waiting.pop(number, None)
        item = self.make(number) if future is None else future.result()
        self.waiting.clear()
        if number + 1 < self.stop:
            self.waiting[number + 1] = self.pool.submit(self.make, number + 1)
        return item

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


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
