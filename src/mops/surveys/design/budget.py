"""How long trainings would take: matrix products counted, at the speed this machine shows now.

What it is worth: one share of the machine's peak stands for all plans, so a training takes about
a quarter more or less than its estimate, and as much longer as other programs use the machine.
Steps of MiniLM with 8 rows of three tasks on one core, processor seconds measured and estimated:
one encoder 0.64 and 0.69, one per task 0.76 and 0.77, projected attention in every layer 0.75 and
0.72, bottlenecks in a frozen encoder 0.53 and 0.46. Whole trials of 20 steps on the sample: one
encoder 48 and 46, two layers frozen and two per task 46 and 41, late layers on a frozen one 33
and 31. Without torch.

How long a survey would take, and how many steps fit into a given time. No torch.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mops.config.recipe import Recipe
from mops.config.training import SUM, Training
from mops.data.dataset import Material, layout_of, material_key, read_material, resolve
from mops.data.schedule import (
    PlannedStage,
    Schedule,
    generator,
    learning_in,
    plan_steps,
    rates_in,
    trained_parameters,
)
from mops.data.tokens import TokenTable, row_flops, tokenise
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.layout import Layout
from mops.plans.shapes import Reading
from mops.plans.sizes import dense, late_widths
from mops.surveys.design.survey import Survey
from mops.surveys.ledger import Trial

# Of the machine's matrix products a training step reaches about this share, measured with MiniLM
# at 8 rows of each of three tasks on one core.
SHARE_OF_PEAK = 0.65
# AdamW, the norm of the gradients and their clipping, for each weight that learns.
SECONDS_PER_WEIGHT = 2e-9
# What a step costs whatever it computes: of a network alone, and of one among many abreast.
STEP_SECONDS, SMALL_STEP_SECONDS = 0.012, 0.003
FORWARD_AND_BACKWARD = 3.0  # a step of a layer that learns, in forward passes


@dataclass(frozen=True)
class Work:
    """What a training computes."""

    flops: float = 0.0  # of the steps
    frozen_flops: float = 0.0  # of frozen layers, once for each row, before the steps
    moved: float = 0.0  # weights that learn, once for each step
    overhead: float = 0.0  # seconds of steps beside their products
    is_frozen: bool = True  # nothing in the encoder learns, and nothing is added inside

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.frozen_flops + other.frozen_flops,
            self.moved + other.moved,
            self.overhead + other.overhead,
            self.is_frozen and other.is_frozen,
        )

    def seconds(self, gflops: float) -> float:
        """Of the training steps."""
        return time_of(self.flops, gflops) + self.moved * SECONDS_PER_WEIGHT + self.overhead


def time_of(flops: float, gflops: float) -> float:
    return flops / (gflops * 1e9 * SHARE_OF_PEAK)


def work_of(layout: Layout, schedule: Schedule, tables: Mapping[str, TokenTable]) -> Work:
    """All stages of a training."""
    per_row = {name: split_flops(layout, name, table) for name, table in tables.items()}
    return sum((stage_work(layout, schedule, s, per_row) for s in schedule.stages), start=Work())


def split_flops(layout: Layout, task: str, table: TokenTable) -> tuple[float, float, float]:
    """Forward, the mean over rows: the encoder's own layers, what is added to them, the top."""
    route = layout.routes[task]
    trunk = row_flops(replace(route, stops=()), layout.encoder, table)
    added = row_flops(route, layout.encoder, table) - trunk
    widths = late_widths(layout.plan, layout.encoder)
    late = 2.0 * table.per_row * sum(map(dense, widths, widths[1:]))
    return trunk, added, late + 2.0 * layout.sizes[route.head]


def stage_work(
    layout: Layout,
    schedule: Schedule,
    stage: PlannedStage,
    per_row: Mapping[str, tuple[float, float, float]],
) -> Work:
    """Layers that are frozen from the bottom up are computed once a row, the rest in every step."""
    learning = learning_in(layout, schedule, stage)
    share, is_whole = frozen_share(layout, stage)
    before, after = schedule.rows_before(stage.first), schedule.rows_before(stage.stop)
    batches = schedule.batches_before(stage.stop), schedule.batches_before(stage.first)
    tasks_in_step = (sum(batches[0].values()) - sum(batches[1].values())) / max(1, len(stage))
    passes = 1.0 if stage.training.gradients == SUM else max(1.0, tasks_in_step)
    backward = backward_passes(layout, learning) * passes
    flops = once = 0.0
    for task, (trunk, added, top) in per_row.items():
        seen = after[task] - before[task]
        once += trunk * share * min(seen, schedule.sizes[task])
        flops += seen * (trunk * (1 - share) + added) * (1 + backward)
        flops += seen * top * FORWARD_AND_BACKWARD
    return Work(
        flops=flops,
        frozen_flops=once,
        moved=float(len(stage) * sum(layout.sizes[owner] for owner in learning)),
        overhead=len(stage) * (SMALL_STEP_SECONDS if is_whole else STEP_SECONDS),
        is_frozen=is_whole,
    )


def frozen_share(layout: Layout, stage: PlannedStage) -> tuple[float, bool]:
    """The part of the layers, from the bottom up, in which nothing learns; and whether it is all.

    All: no place on top learns either, so that a sequence is its pooled vector.
    """
    rates = rates_in(layout, stage)
    routes = layout.routes.values()
    every = zip(*(route.stages for route in routes), strict=True)
    learns = [any(rates[owner] > 0 for owners in at for owner in owners) for at in every]
    stages = (*learns, True).index(True)
    depth = layout.encoder.depth
    return max(0, min(stages - 1, depth)) / depth, stages == len(learns)


def backward_passes(layout: Layout, learning: list[str]) -> float:
    """In forward passes: for the weights and for what is below them; only below, if all is frozen.

    Nothing at all where no owner that the tokens pass learns.
    """
    if any(owner.startswith(("attention", "feedforward")) for owner in learning):
        return 2.0
    passed = {o for route in layout.routes.values() for stage in route.stages for o in stage}
    return 1.0 if passed & set(learning) else 0.0


def evaluations_of(schedule: Schedule) -> int:
    """By number, and one at the end of each stage."""
    found = 0
    for stage in schedule.stages:
        every = stage.training.eval_steps or schedule.steps_per_epoch
        found += math.ceil(stage.stop / every) - stage.first // every
    return found


def matrix_speed() -> float:
    """GFLOP/s of a matrix product of the size that a step has."""
    left = np.ones((512, 384), np.float32)
    right = np.ones((384, 1536), np.float32)
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - started)
    return 2 * 512 * 384 * 1536 / best / 1e9


SAMPLE = 2000  # rows of a task whose tokens are counted
TRAIN_SAMPLE = 500  # training rows of a task that are scored at the end
# Of a process: imports, reading, the encoder, the bundle at the end; of one run among many less.
START_SECONDS, SMALL_START_SECONDS = 6.0, 1.0
LEAST_STEPS, MOST_STEPS = 20, 1_000_000
ROUNDS = 6  # of looking for the number of steps
MOST_JUDGING, FEWER = 0.25, (5, 2)  # share of the time for evaluations; else so many of them


@dataclass(frozen=True)
class Estimate:
    """What one training of a candidate would be."""

    name: str
    steps: int
    parameters: int
    trained: int
    seconds: float  # steps, evaluations, the scores at the end, the start of its process
    judge_seconds: float  # of these the evaluations
    encode_seconds: float  # once for a family on a frozen encoder: its process and all texts
    family: str  # candidates with the same one share that; empty: none


@dataclass(frozen=True)
class Forecast:
    """What a survey would be."""

    candidates: tuple[Estimate, ...]
    seeds: int
    gflops: float

    @property
    def encode_seconds(self) -> float:
        """Once for each family."""
        found: dict[str, float] = {}
        for one in self.candidates:
            found[one.family] = max(one.encode_seconds, found.get(one.family, 0.0))
        return sum(found.values())

    @property
    def seconds(self) -> float:
        """Of all trials, one after the other."""
        return self.encode_seconds + self.seeds * sum(one.seconds for one in self.candidates)

    @property
    def judge_share(self) -> float:
        """The part of the time that evaluations take."""
        return self.seeds * sum(one.judge_seconds for one in self.candidates) / self.seconds


@dataclass(frozen=True)
class Known:
    """What an estimate needs of a recipe beside itself."""

    recipe: Recipe
    material: Material
    layout: Layout
    tables: Mapping[str, TokenTable]  # tokens of a sample of each task's training rows
    family: str  # recipes with the same one read the same texts in the same way
    schedule: Schedule


@dataclass
class Estimator:
    """Estimates of many recipes; data is read and tokens are counted once."""

    gflops: float = field(default_factory=matrix_speed)
    materials: dict[str, Material] = field(default_factory=dict)
    sources: dict[str, EncoderSource] = field(default_factory=dict)
    samples: dict[str, dict[str, TokenTable]] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)

    def survey(self, survey: Survey) -> Forecast:
        """The first seed stands for all."""
        trials = [candidate.trial(survey.seeds[0]) for candidate in survey.candidates()]
        return Forecast(tuple(map(self.trial, trials)), len(survey.seeds), self.gflops)

    def trial(self, trial: Trial) -> Estimate:
        return estimate(trial.candidate.name, self.learn(trial.recipe), self.gflops)

    def learn(self, recipe: Recipe) -> Known:
        key = material_key(recipe)
        if key not in self.materials:
            self.materials[key] = read_material(recipe)
        if recipe.encoder not in self.sources:
            self.sources[recipe.encoder] = find_encoder(recipe.encoder)
        material, source = self.materials[key], self.sources[recipe.encoder]
        recipe = resolve(recipe, material)
        layout = layout_of(recipe, material, source.shape)
        reading = layout.reading
        family = json.dumps([key, recipe.encoder, reading.pair, reading.max_length])
        if family not in self.samples:
            self.samples[family] = sample_tokens(material, source, reading)
        schedule = self.plan(key, material, recipe.training)
        return Known(recipe, material, layout, self.samples[family], family, schedule)

    def plan(self, key: str, material: Material, training: Training) -> Schedule:
        """The same for all plans that are trained alike."""
        key = f"{key} {training.model_dump_json()}"
        if key not in self.schedules:
            sizes = {name: len(splits["train"].good) for name, splits in material.splits.items()}
            self.schedules[key] = plan_steps(sizes, training)
        return self.schedules[key]


def sample_tokens(
    material: Material, source: EncoderSource, reading: Reading
) -> dict[str, TokenTable]:
    """Tokens of at most so many training rows of each task."""
    found = {}
    for name, splits in material.splits.items():
        rows = splits["train"].good
        chosen = generator(0, "token-sample", name).permutation(len(rows))[:SAMPLE].tolist()
        found[name] = tokenise(source.tokenizer, [rows[n].texts for n in chosen], reading)
    return found


def estimate(name: str, known: Known, gflops: float) -> Estimate:
    """Steps, evaluations on half of the validation rows, and the scores at the end."""
    layout, schedule = known.layout, known.schedule
    work = work_of(layout, schedule, known.tables)
    share = min(frozen_share(layout, stage)[0] for stage in schedule.stages)
    judging, ending = 0.0, 0.0
    for task, table in known.tables.items():
        trunk, added, _ = split_flops(layout, task, table)
        validation = len(known.material.splits[task]["validation"].rows)
        judging += validation / 2 * (trunk * (1 - share) + added)
        ending += (validation + TRAIN_SAMPLE) * (trunk + added)
    judging_seconds = time_of(judging * evaluations_of(schedule), gflops)
    once = work.frozen_flops + ending
    start = SMALL_START_SECONDS if work.is_frozen else START_SECONDS
    own = 0.0 if work.is_frozen else time_of(once, gflops)
    return Estimate(
        name=name,
        steps=len(schedule),
        parameters=layout.parameters,
        trained=trained_parameters(layout, schedule),
        seconds=start + work.seconds(gflops) + judging_seconds + own,
        judge_seconds=judging_seconds,
        encode_seconds=START_SECONDS + time_of(once, gflops) if work.is_frozen else 0.0,
        family=f"{known.family} {layout.reading.pool}" if work.is_frozen else "",
    )


# ------------------------------------------------------------------ budgets


@dataclass(frozen=True)
class Fitted:
    """A survey that is meant to take a given time."""

    survey: Survey
    steps: int
    forecast: Forecast
    note: str  # what the time does not allow; empty when it does


def fit_budget(
    survey: Survey, seconds: float, *, jobs: int = 1, estimator: Estimator | None = None
) -> Fitted:
    """The number of steps, the same for all trials, with which the whole survey takes `seconds`.

    Where evaluations would take more than a quarter of that, there are fewer of them.
    """
    estimator = estimator or Estimator()
    for evaluations in (survey.evaluations, *FEWER):

        def with_steps(steps: int, most: int | None = evaluations) -> Fitted:
            scaled = survey.with_steps(steps, most)
            return Fitted(scaled, steps, estimator.survey(scaled), "")

        found = search(with_steps, seconds * jobs)
        if found.forecast.judge_share <= MOST_JUDGING and found.forecast.seconds <= seconds * jobs:
            break
    if found.steps > LEAST_STEPS:
        return found
    trials = len(survey.candidates()) * len(survey.seeds)
    note = (
        f"a budget of {seconds:.0f} s is too small for {trials} trials: {LEAST_STEPS} steps each "
        f"take about {found.forecast.seconds / jobs:.0f} s; name fewer plans or seeds, or a larger "
        "budget"
    )
    return replace(found, note=note)


def search(with_steps: Callable[[int], Fitted], seconds: float) -> Fitted:
    """Nearly a line in the number of steps: what a frozen encoder reads bends it a little."""
    low = with_steps(LEAST_STEPS)
    if low.forecast.seconds > seconds:
        return low
    found = with_steps(10 * LEAST_STEPS)
    for _ in range(ROUNDS):
        slope = (found.forecast.seconds - low.forecast.seconds) / (found.steps - low.steps)
        steps = int(low.steps + (seconds - low.forecast.seconds) / max(slope, 1e-9))
        steps = min(MOST_STEPS, max(LEAST_STEPS + 1, steps))
        if steps == found.steps:
            break
        found = with_steps(steps)
    return found
