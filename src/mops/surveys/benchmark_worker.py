"""The process that measures one candidate: training steps, encoding, requests, memory.

It reads lines from stdin and answers each with one line of JSON on stdout:

    {"recipe": ..., "scratch": ...}   run everything once; costs known without measuring
    round                             seconds of each operation, and the peak memory so far

It ends at once when stdin is closed, so it never outlives its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Thread
from typing import Any, TypeVar

import numpy as np

from mops.config.recipe import Recipe
from mops.data.batches import Segment
from mops.data.dataset import Dataset
from mops.data.schedule import PlannedStage, Schedule
from mops.errors import MopsError
from mops.evaluate.cost import analytic_costs
from mops.predict.bundle import Bundle
from mops.predict.predictor import Predictor
from mops.store import Store, find_store
from mops.surveys.benchmark import BATCH
from mops.training.feature_cache import FeatureCache, digest_segment, open_cache, token_chunks
from mops.training.frozen import fill_rows, make_segments, reused_rows
from mops.training.machine import keep_freed_memory, peak_memory
from mops.training.prepare import prepare
from mops.training.run import build_trainer
from mops.training.step import compute_losses, take_step
from mops.training.trainer import Trainer

REQUESTS = 3  # of a round, after one that is not counted
SIZED_STEPS, MEASURED_STEPS = 100, 4  # steps of a stage whose size is looked at; that are timed
Value = TypeVar("Value")
Request = dict[str, list[tuple[str, ...]]]  # task -> texts of its rows


class Stopwatch:
    """Measures seconds from its creation.

    On the processor the CPU time, if it is shorter than the clock's: then other programs had the
    cores. With one thread this is the time on an idle machine.
    """

    def __init__(self, device: str) -> None:
        self.is_processor = device == "cpu"
        self.clock, self.work = time.perf_counter(), time.process_time()

    def elapsed(self) -> float:
        return time.perf_counter() - self.clock

    def seconds(self) -> float:
        work = time.process_time() - self.work
        return min(self.elapsed(), work) if self.is_processor else self.elapsed()


# ------------------------------------------------------------------ which steps are measured


@dataclass(frozen=True)
class StageSample:
    """Steps that stand for all steps of a stage: quantiles of their numbers of tokens."""

    stage: PlannedStage
    steps: tuple[int, ...]
    weight: float  # of each of them in the mean step of the whole training
    largest: int  # the step with the most tokens: it sets the peak memory


def sample_stage(
    schedule: Schedule, stage: PlannedStage, count_tokens: Callable[[int], int]
) -> StageSample:
    places = np.linspace(stage.first, stage.stop - 1, min(SIZED_STEPS, len(stage)))
    by_size = sorted(places.round().astype(int).tolist(), key=count_tokens)
    steps = quantiles(by_size, MEASURED_STEPS)
    weight = len(stage) / len(steps) / len(schedule)
    return StageSample(stage, tuple(steps), weight, by_size[-1])


def quantiles(values: Sequence[Value], count: int) -> list[Value]:
    """`count` of the sorted values, at the middles of equal parts."""
    return [values[(2 * n + 1) * len(values) // (2 * count)] for n in range(count)]


# ------------------------------------------------------------------ one candidate


class CandidateBenchmark:
    """A candidate at its first step.

    Learning rates are set to zero: a step takes the same time, and the weights stay finite.
    """

    def __init__(self, recipe: Recipe, scratch: Path) -> None:
        self.ready = prepare(recipe, lambda _: None)
        self.trainer = build_trainer(scratch / "run", self.ready)
        self.scratch = scratch
        schedule, make_batch = self.trainer.schedule, self.trainer.objective.make_batch

        def count_tokens(step: int) -> int:
            return sum(len(segment.ids) for segment in make_batch(step).segments)

        self.samples = [sample_stage(schedule, s, count_tokens) for s in schedule.stages if s]
        self.stage: PlannedStage | None = None
        self.encodings: dict[int, EncodingSample] = {}  # by the first step of their stages
        bundle = Bundle(
            scratch, self.trainer.network, self.ready.source.tokenizer, self.ready.recipe.tasks, {}
        )
        self.predictor = Predictor(bundle, self.ready.device)
        self.row, self.batch = (make_request(self.ready.dataset, n) for n in (1, BATCH))

    def warm(self) -> dict[str, Any]:
        """Run everything once, the largest steps included; costs known without measuring."""
        for sample in self.samples:
            self.enter(sample)
        self.time_request(self.row)
        self.time_request(self.batch)
        trainer = self.trainer
        tables = {name: data.tokens for name, data in trainer.objective.data.items()}
        weights = sum(tensor.nbytes for tensor in trainer.network.weights().values())
        encodings = self.encodings.values()
        return {
            **analytic_costs(trainer.network.layout, trainer.schedule, tables),
            "planned_steps": len(trainer.schedule),
            "disk_bytes": weights + len(self.ready.source.tokenizer.to_str().encode()),
            "peak_memory_bytes": peak_memory(),
            "encode_sequences": sum(encoding.sequences for encoding in encodings),
            "encode_measured": sum(len(part) for e in encodings for _, part in e.sample),
        }

    def round(self) -> dict[str, float]:
        """Seconds of a mean step, of encoding the frozen prefix, of one request, of a batch.

        `peak` is the peak memory so far: it grows over the first steps by fragmentation. `clock`
        are the seconds of the whole round, `waited` those that other programs had the cores.
        """
        stopwatch = Stopwatch(self.ready.device)
        step = encode = 0.0
        for sample in self.samples:
            self.enter(sample)
            step += sample.weight * sum(map(self.time_step, sample.steps))
            encode += self.encodings[sample.stage.first].time_encoding()
        self.time_request(self.row)
        latency = median(self.time_request(self.row) for _ in range(REQUESTS))
        times = {"step": step, "encode": encode, "latency": latency}
        times["batch"] = self.time_request(self.batch)
        clock = stopwatch.elapsed()
        waited = max(0.0, clock - stopwatch.seconds())
        return times | {"clock": clock, "waited": waited, "peak": peak_memory()}

    def enter(self, sample: StageSample) -> None:
        """Begin a stage as a run does; its largest step also creates the optimizer's moments."""
        stage, trainer = sample.stage, self.trainer
        if stage is self.stage:
            return
        self.stage = stage
        trainer.learner.enter_stage(stage)
        for group in trainer.learner.optimizer.param_groups:
            group["base"] = 0.0
        if stage.first not in self.encodings:
            self.encodings[stage.first] = sample_encoding(trainer, sample, self.scratch)
        self.time_step(sample.largest)

    def time_step(self, step: int) -> float:
        """Seconds of a training step; its rows are gathered before, as in a run."""
        trainer, stage = self.trainer, self.trainer.schedule.stage_at(step)
        batch = trainer.objective.make_batch(step)
        cache = self.encodings[stage.first].cache
        losses = partial(compute_losses, pack=cache.pack if cache else None)
        stopwatch = Stopwatch(self.ready.device)
        take_step(trainer.learner, batch, stage, step, losses)
        return stopwatch.seconds()

    def time_request(self, request: Request) -> float:
        stopwatch = Stopwatch(self.ready.device)
        self.predictor.predict_tasks(request)
        return stopwatch.seconds()


def make_request(dataset: Dataset, rows: int) -> Request:
    """Validation rows for all tasks, evenly spread over all lengths; pairs if any task has pairs.

    Single-text tasks take the first text of a pair. One row has the median length.
    """
    tasks = dataset.tasks
    source = max(tasks, key=lambda name: tasks[name].is_pair)  # the first pair task, if any
    texts = [row.texts for row in dataset.splits[source]["validation"].good]
    chosen = quantiles(sorted(texts, key=lambda row: len("".join(row))), rows)
    return {name: [row[: len(task.text)] for row in chosen] for name, task in tasks.items()}


# ------------------------------------------------------------------ the frozen prefix


@dataclass(frozen=True)
class EncodingSample:
    """The cached frozen prefix of a stage, and a sample of the sequences to encode."""

    cache: FeatureCache | None = None
    sample: Sequence[tuple[str, Sequence[Segment]]] = ()  # (cache key, sequences of one pack)
    sequences: int = 0  # distinct ones in the steps of the stage
    tokens: int = 0  # of all these

    def time_encoding(self) -> float:
        """Seconds of all sequences, extrapolated from the sample by tokens."""
        if not self.cache or not self.sample:
            return 0.0
        stopwatch = Stopwatch(self.cache.device.type)
        for key, segments in self.sample:
            self.cache.compute(key, segments)
        tokens = sum(len(segment.ids) for _, segments in self.sample for segment in segments)
        return stopwatch.seconds() * self.tokens / tokens


def sample_encoding(trainer: Trainer, sample: StageSample, scratch: Path) -> EncodingSample:
    """Like a run's, but only rows of the sampled steps are cached, in a store of its own."""
    schedule, stage, data = trainer.schedule, sample.stage, trainer.objective.data
    cache = open_cache(trainer.network, Store(scratch / "store")) if find_store() else None
    reused = reused_rows(cache, schedule, stage, stage.first) if cache else {}
    if cache is None or not any(map(len, reused.values())):
        return EncodingSample()
    sampled: dict[str, list[int]] = {task: [] for task in reused}
    for step in {sample.largest, *sample.steps}:
        for task, places in schedule.rows_at(step).items():
            sampled[task] += [place.row for place in places]
    chosen = {task: np.intersect1d(rows, sampled[task]) for task, rows in reused.items()}
    chunks = []
    for task, rows in chosen.items():
        missing = cache.missing(cache.keys[task], make_segments(task, data[task], rows))
        chunks += [(cache.keys[task], chunk) for chunk in token_chunks(missing)]
    fill_rows(cache, data, chosen, lambda _: None)
    distinct: dict[tuple[str, bytes], int] = {}  # cache key and digest -> tokens
    for task, rows in reused.items():
        for segment in make_segments(task, data[task], rows):
            distinct[cache.keys[task], digest_segment(segment)] = len(segment.ids)
    return EncodingSample(cache, chunks, len(distinct), sum(distinct.values()))


# ------------------------------------------------------------------ the process


def main() -> None:
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes stdin
    requests: SimpleQueue[str] = SimpleQueue()
    Thread(target=read_requests, args=(requests,), daemon=True).start()
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of libraries go to stderr
    try:
        job = json.loads(requests.get())
        benchmark = CandidateBenchmark(Recipe.model_validate(job["recipe"]), Path(job["scratch"]))
        print(json.dumps(benchmark.warm()), file=output, flush=True)
        while requests.get():
            print(json.dumps(benchmark.round()), file=output, flush=True)
    except Exception as problem:  # anything: the parent has to know why
        kind = "" if isinstance(problem, MopsError) else f"{type(problem).__name__}: "
        print(json.dumps({"error": f"{kind}{problem}"}), file=output, flush=True)
    os._exit(1)  # a thread that waits for a line would hold up the usual end


def read_requests(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line.strip())
    os._exit(0)


if __name__ == "__main__":
    main()
