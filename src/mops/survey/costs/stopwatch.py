"""The time that something takes, without what its process waited for others."""

from __future__ import annotations

import time


class Stopwatch:
    """Runs from its making.

    The seconds of the clock; on the processor, those that its threads worked, if they are fewer:
    then something else had the cores. With one thread this is the time on a machine that does
    nothing else.
    """

    def __init__(self, device: str) -> None:
        self.is_processor = device == "cpu"
        self.clock, self.work = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        clock, work = time.perf_counter() - self.clock, time.process_time() - self.work
        return min(clock, work) if self.is_processor else clock
