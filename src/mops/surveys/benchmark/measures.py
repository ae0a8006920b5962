"""The time that something takes, without what its process waited for others.

Which steps stand for a whole training when only a few are measured. No torch.
What one candidate costs, measured in its own process: steps, encoding, requests, memory.
What a candidate computes once before its steps, estimated from the rows of a few of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mops.config.recipe import Recipe
from mops.data.batches import Segment, TaskData
from mops.data.dataset import Dataset
from mops.data.samplers import Step
from mops.data.schedule import PlannedStage, Schedule
from mops.evaluate.cost import analytic_costs
from mops.model.packing import Packer
from mops.predict.bundle import Bundle
from mops.predict.predictor import Predictor
from mops.store import Store, find_store
from mops.surveys.benchmark.timing import BATCH, ROUNDS
from mops.training.feature_cache import (
    FeatureCache,
    digest_segment,
    make_segments,
    open_cache,
    token_chunks,
)
from mops.training.frozen import Rows, fill_rows, reused_rows, windows
from mops.training.optim import enter
from mops.training.prepare import peak_memory, prepare
from mops.training.run import build_loop
from mops.training.step import take_step
from mops.training.trainer import Loop


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


LOOKED_AT = 100  # steps of a kind
Tokens = Callable[[int], int]  # of a step


@dataclass(frozen=True)
class Typical:
    """Steps of one stage that are measured."""

    stage: PlannedStage
    rounds: tuple[Mapping[int, float], ...]  # step -> its part in the whole training's mean step
    largest: int  # the step with the most tokens: it sets the peak of memory

    @property
    def steps(self) -> set[int]:
        return {self.largest, *(step for weights in self.rounds for step in weights)}


def typical_steps(schedule: Schedule, tokens: Tokens) -> list[Typical]:
    """Of each stage, for each round and each kind of step, two that have the kind's mean size."""
    return [typical_of(schedule, stage, tokens) for stage in schedule.stages if len(stage)]


def typical_of(schedule: Schedule, stage: PlannedStage, tokens: Tokens) -> Typical:
    kinds: dict[str, list[int]] = {}
    for step in range(stage.first, stage.stop):
        kinds.setdefault(kind_of(schedule.steps[step]), []).append(step)
    rounds: list[dict[int, float]] = [{} for _ in range(ROUNDS)]
    looked_at: dict[int, int] = {}
    for steps in kinds.values():
        sizes = {step: tokens(step) for step in spaced(steps, LOOKED_AT)}
        looked_at |= sizes
        for weights, pair in zip(rounds, cycle(middle_pairs(sizes)), strict=False):
            weights.update(dict.fromkeys(pair, len(steps) / len(pair) / len(schedule)))
    return Typical(stage, tuple(rounds), max(looked_at, key=looked_at.__getitem__))


def kind_of(step: Step) -> str:
    """Steps of one task differ from task to task; those of several are of one kind."""
    return next(iter(step)) if len(step) == 1 else ""


def spaced(steps: Sequence[int], count: int) -> list[int]:
    """At most `count` of them, evenly spaced."""
    places = np.linspace(0, len(steps) - 1, min(count, len(steps)))
    return [steps[place] for place in places.round().astype(int).tolist()]


def middle_pairs(sizes: Mapping[int, int]) -> list[tuple[int, ...]]:
    """A small and a large step each; first those that are nearest to two mean ones."""
    order = sorted(sizes, key=sizes.__getitem__)
    twice = 2 * sum(sizes.values()) / len(sizes)
    pairs = [(order[n], order[-1 - n]) for n in range((len(order) + 1) // 2)]
    pairs.sort(key=lambda pair: abs(sum(sizes[step] for step in pair) - twice))
    return [tuple(dict.fromkeys(pair)) for pair in pairs]


REQUESTS = 3  # of a round, after one that is not counted

Request = dict[str, list[tuple[str, ...]]]  # task -> texts of its rows


class Measures:
    """A candidate at its first step. Its weights are held still: a step takes the same time, and
    no learning rate can spoil it.
    """

    def __init__(self, recipe: Recipe, scratch: Path) -> None:
        self.ready = prepare(recipe, lambda _: None)
        self.loop = build_loop(scratch / "run", self.ready)
        self.scratch = scratch
        self.typical = typical_steps(self.loop.schedule, self.tokens)
        self.stage: PlannedStage | None = None
        self.encodings: dict[int, Encoding] = {}  # by the first step of their stages
        bundle = Bundle(
            scratch, self.loop.network, self.ready.source.tokenizer, self.ready.recipe.tasks, {}
        )
        self.predictor = Predictor(bundle, self.ready.device)
        self.one = request_of(self.ready.dataset, 1)
        self.many = request_of(self.ready.dataset, BATCH)

    def tokens(self, step: int) -> int:
        return sum(len(segment.ids) for segment in self.loop.make_batch(step).segments)

    def facts(self) -> dict[str, Any]:
        """What is known without measuring."""
        loop, layout = self.loop, self.loop.network.layout
        tables = {name: data.tokens for name, data in loop.data.items()}
        weights = sum(tensor.nbytes for tensor in loop.network.weights().values())
        return {
            **analytic_costs(layout, loop.schedule, tables),
            "planned_steps": len(loop.schedule),
            "disk_bytes": weights + len(self.ready.source.tokenizer.to_str().encode()),
        }

    def warm(self) -> dict[str, Any]:
        """Everything once, so that nothing is new in a round; the largest steps are among it."""
        for typical in self.typical:
            self.enter(typical)
        self.ask(self.one)
        self.ask(self.many)
        return {
            "peak_memory_bytes": peak_memory(),
            "encode_sequences": sum(of.sequences for of in self.encodings.values()),
            "encode_measured": sum(of.measured for of in self.encodings.values()),
        }

    def round(self, number: int) -> dict[str, float]:
        """Seconds of a mean step, of encoding what is frozen, of a request, of a batch of them.

        And the peak of memory so far: freed tensors leave holes, it grows over the first steps.
        """
        step = encode = 0.0
        for typical in self.typical:
            self.enter(typical)
            step += sum(part * self.take(of) for of, part in typical.rounds[number].items())
            encode += self.encodings[typical.stage.first].seconds()
        self.ask(self.one)
        latency = median(self.ask(self.one) for _ in range(REQUESTS))
        batch, peak = self.ask(self.many), peak_memory()
        return {"step": step, "encode": encode, "latency": latency, "batch": batch, "peak": peak}

    # -------------------------------------------------------------- one thing at a time

    def enter(self, typical: Typical) -> None:
        """Begin a stage, as a run does, with its largest step, which makes its moments too."""
        stage, loop = typical.stage, self.loop
        if stage is self.stage:
            return
        self.stage = stage
        loop.optimiser = enter(loop.network, stage, loop.weighting)
        for group in loop.optimiser.param_groups:
            group["base"] = 0.0
        if stage.first not in self.encodings:
            self.encodings[stage.first] = encoding_of(loop, typical, self.scratch)
        self.take(typical.largest)

    def take(self, step: int) -> float:
        """Seconds of a training step; its rows are gathered before, as in a run."""
        loop, stage = self.loop, self.loop.schedule.stage_at(step)
        batch = loop.make_batch(step)
        stopwatch = Stopwatch(self.ready.device)
        take_step(
            loop.network,
            loop.optimiser,
            batch,
            stage.training,
            step=step,
            total=len(stage),
            first=stage.first,
            start=loop.start,
            weighting=loop.weighting,
            gradients=loop.gradients,
            pack=self.encodings[stage.first].pack,
        )
        return stopwatch.seconds()

    def ask(self, request: Request) -> float:
        stopwatch = Stopwatch(self.ready.device)
        self.predictor.predict_tasks(request)
        return stopwatch.seconds()


def request_of(dataset: Dataset, rows: int) -> Request:
    """Validation rows that all tasks answer: pairs, where a task reads pairs.

    Tasks that read one text take the first of a pair. The rows are spread evenly over all lengths;
    one row is of the middle length.
    """
    tasks = dataset.tasks
    first = max(tasks, key=lambda name: tasks[name].is_pair)  # the first of those that are most
    known = sorted(
        (row.texts for row in dataset.splits[first]["validation"].good),
        key=lambda texts: len("".join(texts)),
    )
    places = [(2 * n + 1) * len(known) // (2 * rows) for n in range(rows)]
    return {
        name: [known[place][: len(task.text)] for place in places] for name, task in tasks.items()
    }


@dataclass(frozen=True)
class Encoding:
    """How the packs of a stage begin, and what its frozen part takes once."""

    cache: FeatureCache | None = None
    sample: tuple[tuple[str, Sequence[Segment]], ...] = ()  # (key, sequences of one pack)
    sequences: int = 0  # different ones that the steps of the stage take
    tokens: int = 0  # of all these

    @property
    def pack(self) -> Packer | None:
        return self.cache.pack if self.cache else None

    @property
    def measured(self) -> int:
        """Sequences that are really computed; the seconds of the others are extrapolated."""
        return sum(len(segments) for _, segments in self.sample)

    def seconds(self) -> float:
        """Of all sequences: as many times those of the sample as they have tokens."""
        if not self.cache or not self.sample:
            return 0.0
        stopwatch = Stopwatch(self.cache.device.type)
        for key, segments in self.sample:
            self.cache.compute(key, segments)
        tokens = sum(len(segment.ids) for _, segments in self.sample for segment in segments)
        return stopwatch.seconds() * self.tokens / tokens


def encoding_of(loop: Loop, typical: Typical, scratch: Path) -> Encoding:
    """As `Frozen.enter` would, but only the rows of typical steps are computed and kept.

    They are kept in a store of their own: what other runs left behind must not count.
    """
    stage = typical.stage
    cache = open_cache(loop.network, Store(scratch / "store")) if find_store() else None
    worth = reused_rows(cache, loop.schedule, stage, stage.first) if cache else {}
    if cache is None or not any(map(len, worth.values())):
        return Encoding()
    sample = sampled(cache, loop.data, chosen_in(loop, typical.rounds[0], worth))
    fill_rows(cache, loop.data, chosen_in(loop, typical.steps, worth), lambda _: None)
    chunks = tuple((key, chunk) for key, of in sample.items() for chunk in token_chunks(of))
    return Encoding(cache, chunks, *count_distinct(cache, loop.data, worth))


def chosen_in(loop: Loop, steps: Iterable[int], worth: Mapping[str, Rows]) -> dict[str, Rows]:
    """Those of the rows that come in these steps."""
    taken: dict[str, set[int]] = {task: set() for task in worth}
    for step in steps:
        for task, places in loop.chosen(step, loop.schedule.steps[step]).items():
            taken[task] |= {place.row for place in places}
    return {task: np.intersect1d(rows, list(taken[task])) for task, rows in worth.items()}


def sampled(
    cache: FeatureCache, data: Mapping[str, TaskData], rows: Mapping[str, Rows]
) -> dict[str, list[Segment]]:
    """Key of the cache -> the different sequences of these rows, by length."""
    found: dict[str, list[Segment]] = {}
    for task, chosen in rows.items():
        segments = make_segments(task, data[task].tokens, chosen.tolist())
        found.setdefault(cache.keys[task], []).extend(segments)
    return {key: cache.missing(key, segments) for key, segments in found.items() if segments}


def count_distinct(
    cache: FeatureCache, data: Mapping[str, TaskData], rows: Mapping[str, Rows]
) -> tuple[int, int]:
    """How many different sequences these rows have, and how many tokens those."""
    lengths: dict[str, dict[bytes, int]] = {}
    for task, window in windows(rows):
        segments = make_segments(task, data[task].tokens, window.tolist())
        distinct = {digest_segment(segment): len(segment.ids) for segment in segments}
        lengths.setdefault(cache.keys[task], {}).update(distinct)
    return sum(map(len, lengths.values())), sum(sum(of.values()) for of in lengths.values())
