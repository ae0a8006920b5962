"""What Ray adds to `mops predict`: its start, and the transport of rows and answers.

python -m benchmarks.ray_overhead

The model answers every row at once, so that reading, transport and writing remain. Processor time
of all processes, because a busy machine stretches the time on the clock; the cost per row is the
difference between two lengths of a file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import numpy as np

from benchmarks.harness import arguments, write_result
from benchmarks.three_models import ENTRIES
from mops.data.splits import Row
from mops.data.tables import open_table
from mops.predict.bundle import Predictor, take_windows
from mops.predict.inference import Predictions, decide
from mops.serve.bulk import CSV, Answers, Input, answer_here, answer_on_ray
from mops.surveys.executors import ray_session

ROWS = (20_000, 220_000)
TASK = ENTRIES["sentiment"].task("sentiment")
INTERVAL = 0.2  # seconds between two looks at the processes
Engine = Callable[..., Iterator[tuple[int, Answers]]]


class Instant:
    """A predictor without a model: it gives every row the same answer."""

    def predict_windows(self, groups: object, windows: Sequence[Sequence[Row]]) -> dict[str, Any]:
        return {TASK.name: decide(TASK, np.zeros((len(windows[0]), TASK.outputs), np.float32))}

    def stream(
        self, rows: Mapping[Any, Iterator[Row]]
    ) -> Iterator[tuple[list[list[Row]], dict[str, Predictions]]]:
        for windows in take_windows(rows.values()):
            yield windows, self.predict_windows(None, windows)


def main() -> None:
    parser = arguments(__doc__ or "")
    options = parser.parse_args()
    counts = (100, 1100) if options.quick else ROWS
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch, Meter() as meter:
        folder, predictor = Path(scratch), cast(Predictor, Instant())
        answer: Engine = partial(answer_here, predictor)
        seconds["local"] = [measure(meter, answer, folder, count) for count in counts]
        before = meter.seconds()
        with ray_session() as ray:
            answer = partial(answer_on_ray, ray, Instant, jobs=1)
            measure(meter, answer, folder, counts[0])
            start = meter.seconds() - before
            seconds["ray"] = [measure(meter, answer, folder, count) for count in counts]
    few, many = counts
    facts = {
        "rows": counts,
        "seconds": seconds,
        "start_seconds": start,
        "seconds_per_million_rows": {
            engine: 1e6 * (long - short) / (many - few) for engine, (short, long) in seconds.items()
        },
    }
    print(facts)
    print(write_result("ray_overhead", facts, options.out))


def measure(meter: Meter, answer: Engine, folder: Path, count: int) -> float:
    """Processor seconds to read, answer and write so many rows."""
    source, out = folder / "rows.csv", folder / "answers.csv"
    with source.open("w", encoding="utf-8") as file:
        file.write("id,text\n")
        file.writelines(
            f"{n},a text that is about as long as a question {n}\n" for n in range(count)
        )
    inputs = [Input(open_table(source), (TASK,), CSV)]
    before = meter.seconds()
    with out.open("w", encoding="utf-8") as file:
        file.writelines(block.text for _, block in answer(inputs=inputs))
    used = meter.seconds() - before
    with out.open(encoding="utf-8") as file:
        if [line.split(",")[0] for line in file] != [*map(str, range(count))]:
            raise ValueError("the answers are not in the order of the rows")
    return used


class Meter(Thread):
    """Adds up the processor time of this process and of all that descend from it.

    It looks again and again, because nobody collects the time of Ray's ended workers.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ticks: dict[int, int] = {}
        self.ended = Event()

    def __enter__(self) -> Meter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

    def run(self) -> None:
        while not self.ended.wait(INTERVAL):
            self.look()

    def seconds(self) -> float:
        self.look()
        return sum(self.ticks.values()) / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        parents, ticks = dict[int, int](), dict[int, int]()
        for process in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended meanwhile
                fields = process.read_text("utf-8").rpartition(")")[2].split()
                number = int(process.parent.name)
                parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
        own = {os.getpid()}
        while more := {child for child, parent in parents.items() if parent in own} - own:
            own |= more
        self.ticks |= {number: ticks[number] for number in own}


if __name__ == "__main__":
    main()
