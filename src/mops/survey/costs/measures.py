"""What one candidate costs, measured in its own process: steps, encoding, requests, memory."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from mops.data.material import Material
from mops.data.schedule import PlannedStage
from mops.fit.machine import peak_memory
from mops.fit.prepare import prepare
from mops.fit.run import build_loop
from mops.fit.stages import enter
from mops.fit.step import take_step
from mops.judge.cost import analytic_costs
from mops.predict.bundle import Bundle
from mops.predict.predictor import Predictor
from mops.recipes import Recipe
from mops.survey.costs.encoding import Encoding, encoding_of
from mops.survey.costs.rounds import BATCH
from mops.survey.costs.stopwatch import Stopwatch
from mops.survey.costs.typical import Typical, typical_steps

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
        self.one = request_of(self.ready.material, 1)
        self.many = request_of(self.ready.material, BATCH)

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
        self.predictor.answers(request)
        return stopwatch.seconds()


def request_of(material: Material, rows: int) -> Request:
    """Validation rows that all tasks answer: pairs, where a task reads pairs.

    Tasks that read one text take the first of a pair. The rows are spread evenly over all lengths;
    one row is of the middle length.
    """
    tasks = material.tasks
    first = max(tasks, key=lambda name: tasks[name].is_pair)  # the first of those that are most
    known = sorted(
        (row.texts for row in material.splits[first]["validation"].good),
        key=lambda texts: len("".join(texts)),
    )
    places = [(2 * n + 1) * len(known) // (2 * rows) for n in range(rows)]
    return {
        name: [known[place][: len(task.text)] for place in places] for name, task in tasks.items()
    }
