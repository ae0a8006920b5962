"""One candidate in a process of its own: training steps, encoding, requests, memory."""

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from mops.config.recipe import Recipe
from mops.data.batches import Segment, make_segments
from mops.data.schedule import PlannedStage
from mops.evaluate.cost import analytic_costs
from mops.predict.bundle import Bundle, Predictor
from mops.store import Store, find_store
from mops.surveys.benchmark import BATCH
from mops.training.feature_cache import (
    FeatureCache,
    digest_segment,
    open_cache,
    reused_rows,
    token_chunks,
)
from mops.training.machine import peak_memory
from mops.training.meters import (
    make_request,
    measure_latency,
    quantiles,
    start_energy,
    start_stopwatch,
    time_request,
)
from mops.training.prepare import build_trainer, prepare
from mops.training.step import compute_losses, take_step
from mops.training.trainer import Trainer

SIZED_STEPS, MEASURED_STEPS = 100, 4  # steps of a stage whose size is looked at; that are timed


class StageBenchmark:
    """Steps that stand for all steps of a stage: quantiles of their numbers of tokens."""

    def __init__(self, trainer: Trainer, stage: PlannedStage, scratch: Path) -> None:
        self.trainer, self.stage, self.scratch = trainer, stage, scratch
        self.device = next(trainer.network.parameters()).device.type
        places = np.linspace(stage.first, stage.stop - 1, min(SIZED_STEPS, len(stage)))
        by_size = sorted(places.round().astype(int).tolist(), key=self.count_tokens)
        self.steps = quantiles(by_size, MEASURED_STEPS)
        self.largest = by_size[-1]  # the step with the most tokens: it sets the peak memory
        # The frozen prefix, once it was filled: its cache, a sample of the sequences to encode as
        # (cache key, sequences of one pack), and all distinct ones in the steps.
        self.cache: FeatureCache | None = None
        self.sample: list[tuple[str, Sequence[Segment]]] = []
        self.sequences: dict[tuple[str, bytes], int] = {}  # key and digest -> tokens

    def count_tokens(self, step: int) -> int:
        return sum(len(segment.ids) for segment in self.trainer.objective.make_batch(step).segments)

    def enter(self) -> None:
        """Begin the stage as a run does, but with learning rates of zero.

        A step takes the same time, and the weights stay finite.
        """
        learner = self.trainer.learner
        learner.enter_stage(self.stage)
        for group in learner.optimizer.param_groups:
            group["base"] = 0.0

    def fill_cache(self) -> None:
        """Like a run's, but only rows of the sampled steps are cached, in a store of its own."""
        schedule, data = self.trainer.schedule, self.trainer.objective.data
        store = Store(self.scratch / "store") if find_store() else None
        cache = open_cache(self.trainer.network, store) if store else None
        reused = reused_rows(cache, schedule, self.stage, self.stage.first) if cache else {}
        if cache is None or not any(map(len, reused.values())):
            return
        self.cache = cache
        sampled = [schedule.rows_at(step) for step in {self.largest, *self.steps}]
        for task, rows in reused.items():
            key = cache.keys[task]
            taken = [place.row for step in sampled for place in step.get(task, ())]
            chosen = np.intersect1d(rows, np.array(taken, dtype=np.int64))
            missing = cache.missing(key, make_segments((task,), data[task], chosen.tolist()))
            self.sample += [(key, chunk) for chunk in token_chunks(missing)]
            cache.fill(task, missing)
            for segment in make_segments((task,), data[task], rows.tolist()):
                self.sequences[key, digest_segment(segment)] = len(segment.ids)

    def time_step(self, step: int) -> float:
        """Seconds of a training step; its rows are gathered before, as in a run."""
        batch = self.trainer.objective.make_batch(step)
        pack = self.cache.pack if self.cache else None
        losses = partial(compute_losses, pack=pack, r_drop=self.stage.training.r_drop)
        seconds = start_stopwatch(self.device)
        take_step(self.trainer.learner, batch, self.stage, step, losses)
        return seconds()

    def time_encoding(self) -> float:
        """Seconds of all sequences to encode, extrapolated from the sample by tokens."""
        if not self.cache or not self.sample:
            return 0.0
        seconds = start_stopwatch(self.device)
        for key, segments in self.sample:
            self.cache.compute(key, segments)
        tokens = sum(len(segment.ids) for _, segments in self.sample for segment in segments)
        return seconds() * sum(self.sequences.values()) / tokens


class CandidateBenchmark:
    """A candidate at its first step, and requests to predict for all of its tasks."""

    def __init__(self, recipe: Recipe, scratch: Path) -> None:
        self.ready = prepare(recipe, lambda _: None)
        self.trainer = build_trainer(scratch / "run", self.ready)
        planned = [stage for stage in self.trainer.schedule.stages if stage]
        self.stages = [StageBenchmark(self.trainer, stage, scratch) for stage in planned]
        network, tokenizer = self.trainer.network, self.ready.source.tokenizer
        bundle = Bundle(scratch, network, tokenizer, self.ready.recipe.tasks, {})
        self.predictor = Predictor(bundle, self.ready.device)
        self.row, self.batch = (make_request(self.ready.dataset, n) for n in (1, BATCH))

    def warm(self) -> dict[str, Any]:
        """Run everything once, the largest steps included; costs known without measuring."""
        for stage in self.stages:
            stage.enter()
            stage.fill_cache()
            stage.time_step(stage.largest)  # it creates the optimizer's moments
        for request in (self.row, self.batch):
            time_request(self.predictor, request, self.ready.device)
        trainer = self.trainer
        tables = {name: data.tokens for name, data in trainer.objective.data.items()}
        weights = sum(tensor.nbytes for tensor in trainer.network.weights().values())
        return {
            **analytic_costs(trainer.network.layout, trainer.schedule, tables),
            "planned_steps": len(trainer.schedule),
            "disk_bytes": weights + len(self.ready.source.tokenizer.to_str().encode()),
            "peak_memory_bytes": peak_memory(),
        }

    def round(self) -> dict[str, float]:
        """Seconds of a mean step, of encoding the frozen prefix, of one request to all tasks and to
        each alone, of a batch.

        `watts` is the mean power of the steps, where it is known. `peak` is the peak memory so far:
        it grows over the first steps by fragmentation. `clock` are the seconds of the whole round,
        `waited` those that other programs had the cores.
        """
        start, seconds = time.perf_counter(), start_stopwatch(self.ready.device)
        joules, step, encode = start_energy(), 0.0, 0.0
        for stage in self.stages:
            if len(self.stages) > 1:
                stage.enter()
                stage.time_step(stage.largest)
            share = len(stage.stage) / len(self.trainer.schedule)
            step += share * fmean(map(stage.time_step, stage.steps))
            encode += stage.time_encoding()
        watts = joules() / (time.perf_counter() - start)  # NaN where no counter can be read
        power = {} if math.isnan(watts) else {"watts": watts}
        device = self.ready.device
        latency = measure_latency(self.predictor, self.row, device)
        by_task = {f"latency/{task}": own for task, own in latency["latency_by_task"].items()}
        times = {"step": step, "encode": encode, "latency": latency["latency_seconds"], **by_task}
        times["batch"] = time_request(self.predictor, self.batch, device)
        clock = time.perf_counter() - start
        waited = max(0.0, clock - seconds())
        return times | power | {"clock": clock, "waited": waited, "peak": peak_memory()}
