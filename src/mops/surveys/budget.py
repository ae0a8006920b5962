"""How long a survey would take, and how many steps fit into a given time. No torch.

FLOPs are counted (`evaluate/cost.py`) and divided by the speed of a matrix product on this machine.
One efficiency stands for all plans, so an estimate is off by about a quarter, and by as much more
as other programs use the machine. Measured and estimated processor seconds of a step of MiniLM
with 8 rows of three tasks: `shared` 0.64 and 0.69, `separate` 0.76 and 0.77, `pals:parallel` 0.75
and 0.72, `frozen+adapters` 0.53 and 0.46.
"""

from __future__ import annotations

import json
import math
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from mops.config.recipe import Recipe
from mops.data.dataset import Dataset, dataset_key, read_dataset
from mops.data.schedule import Schedule, generator, plan_steps, trained_parameters
from mops.data.tokens import TokenTable, tokenise
from mops.evaluate.cost import TrainingWork, training_work
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.layout import Layout
from mops.surveys.design import Survey

# Measured with MiniLM at 8 rows of each of three tasks on one core.
EFFICIENCY = 0.65  # of the machine's matrix products that a training step reaches
SECONDS_PER_UPDATE = 2e-9  # of one weight: AdamW, gradient norm, clipping
STEP_SECONDS, BATCHED_STEP_SECONDS = 0.012, 0.003  # overhead of a step; of one among many batched
# A process: imports, data, the encoder, the bundle at the end; less for one run among many.
START_SECONDS, BATCHED_START_SECONDS = 6.0, 1.0
SAMPLE = 2000  # training rows of a task whose tokens are counted
TRAIN_SAMPLE = 500  # training rows of a task that are scored at the end
LEAST_STEPS, MOST_STEPS = 20, 1_000_000
SEARCH_ROUNDS = 6
# If evaluations take a larger fraction of a budget, so many of them are tried instead.
MOST_EVALUATING, FEWER_EVALUATIONS = 0.25, (5, 2)


def matrix_speed() -> float:
    """GFLOP/s of a matrix product of the size that a step has."""
    left, right = np.ones((512, 384), np.float32), np.ones((384, 1536), np.float32)
    best = min(timeit.repeat(lambda: left @ right, number=1, repeat=20))
    return 2 * 512 * 384 * 1536 / best / 1e9


def flop_seconds(flops: float, gflops: float) -> float:
    return flops / (gflops * 1e9 * EFFICIENCY)


def step_seconds(work: TrainingWork, gflops: float) -> float:
    """Seconds of all training steps."""
    overhead = STEP_SECONDS * (work.steps - work.frozen_steps)
    overhead += BATCHED_STEP_SECONDS * work.frozen_steps
    return flop_seconds(work.flops, gflops) + work.updates * SECONDS_PER_UPDATE + overhead


# ------------------------------------------------------------------ estimates


@dataclass(frozen=True)
class TrialEstimate:
    """One training of a candidate."""

    name: str
    steps: int
    parameters: int
    trained: int
    seconds: float  # steps, evaluations, final scores and the start of the process
    evaluation_seconds: float  # those of the evaluations alone
    encode_seconds: float  # frozen encoder: a process that encodes all texts once for a family
    family: str  # candidates of one family share that; empty: none


@dataclass(frozen=True)
class Forecast:
    """All trials of a survey."""

    candidates: tuple[TrialEstimate, ...]
    seeds: int

    @property
    def encode_seconds(self) -> float:
        """Once for each family."""
        families: dict[str, float] = {}
        for trial in self.candidates:
            families[trial.family] = max(trial.encode_seconds, families.get(trial.family, 0.0))
        return sum(families.values())

    @property
    def seconds(self) -> float:
        """One trial after the other."""
        return self.encode_seconds + self.seeds * sum(trial.seconds for trial in self.candidates)

    @property
    def evaluating(self) -> float:
        """The fraction of the time that evaluations take."""
        return self.seeds * sum(t.evaluation_seconds for t in self.candidates) / self.seconds


@dataclass
class Estimator:
    """Estimates many recipes; data is read and tokens are counted once."""

    gflops: float = field(default_factory=matrix_speed)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    sources: dict[str, EncoderSource] = field(default_factory=dict)
    samples: dict[str, dict[str, TokenTable]] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)

    def survey(self, survey: Survey) -> Forecast:
        """The first seed stands for all."""
        trials = [candidate.trial(survey.seeds[0]) for candidate in survey.candidates()]
        estimates = (self.estimate(trial.candidate.name, trial.recipe) for trial in trials)
        return Forecast(tuple(estimates), len(survey.seeds))

    def estimate(self, name: str, recipe: Recipe) -> TrialEstimate:
        """Steps, evaluations on half of the validation rows, and the scores at the end."""
        layout, schedule, family = self.lay_out(recipe)
        work = training_work(layout, schedule, self.samples[family])
        splits = self.datasets[dataset_key(recipe)].splits
        rows = {task: len(splits[task]["validation"].rows) for task in splits}
        evaluation = sum(n / 2 * work.evaluation_flops[task] for task, n in rows.items())
        final = sum((n + TRAIN_SAMPLE) * work.forward_flops[task] for task, n in rows.items())
        evaluation_seconds = flop_seconds(evaluation * count_evaluations(schedule), self.gflops)
        once = flop_seconds(work.frozen_flops + final, self.gflops)
        start = BATCHED_START_SECONDS if work.is_frozen else START_SECONDS + once
        return TrialEstimate(
            name=name,
            steps=len(schedule),
            parameters=layout.parameters,
            trained=trained_parameters(layout, schedule),
            seconds=start + step_seconds(work, self.gflops) + evaluation_seconds,
            evaluation_seconds=evaluation_seconds,
            encode_seconds=START_SECONDS + once if work.is_frozen else 0.0,
            family=f"{family} {layout.reading.pool}" if work.is_frozen else "",
        )

    def lay_out(self, recipe: Recipe) -> tuple[Layout, Schedule, str]:
        """Layout, schedule, and the key of the texts as this recipe reads them."""
        key = dataset_key(recipe)
        if key not in self.datasets:
            self.datasets[key] = read_dataset(recipe)
        if recipe.encoder not in self.sources:
            self.sources[recipe.encoder] = find_encoder(recipe.encoder)
        dataset, source = self.datasets[key], self.sources[recipe.encoder]
        layout = recipe.with_labels(dataset.tasks).layout(dataset.tasks, source.shape)
        family = json.dumps([key, recipe.encoder, layout.reading.pair, layout.reading.max_length])
        if family not in self.samples:
            self.samples[family] = sample_tokens(dataset, source, layout)
        schedule = f"{key} {recipe.training.model_dump_json()}"
        if schedule not in self.schedules:
            sizes = {name: len(splits["train"].good) for name, splits in dataset.splits.items()}
            self.schedules[schedule] = plan_steps(sizes, recipe.training)
        return layout, self.schedules[schedule], family


def sample_tokens(dataset: Dataset, source: EncoderSource, layout: Layout) -> dict[str, TokenTable]:
    """Tokens of at most SAMPLE training rows of each task."""
    tables = {}
    for name, splits in dataset.splits.items():
        rows = splits["train"].good
        chosen = generator(0, "token-sample", name).permutation(len(rows))[:SAMPLE].tolist()
        tables[name] = tokenise(source.tokenizer, [rows[n].texts for n in chosen], layout.reading)
    return tables


def count_evaluations(schedule: Schedule) -> int:
    """At every interval, and at the end of each stage."""
    per_epoch, stages = schedule.steps_per_epoch, schedule.stages
    intervals = [stage.training.eval_steps or per_epoch for stage in stages]
    spans = zip(stages, intervals, strict=True)
    return sum(math.ceil(stage.stop / every) - stage.first // every for stage, every in spans)


# ------------------------------------------------------------------ budgets


@dataclass(frozen=True)
class FittedSurvey:
    """A survey that is meant to take a given time."""

    survey: Survey
    steps: int
    forecast: Forecast
    warning: str = ""  # if the time is too short


def fit_budget(
    survey: Survey, seconds: float, *, jobs: int = 1, estimator: Estimator | None = None
) -> FittedSurvey:
    """The number of steps, the same for all trials, with which the whole survey takes `seconds`.

    If evaluations would take more than a quarter of the time, there are fewer of them.
    """
    estimator = estimator or Estimator()
    for evaluations in (survey.evaluations, *FEWER_EVALUATIONS):

        def with_steps(steps: int, most: int | None = evaluations) -> FittedSurvey:
            scaled = survey.with_steps(steps, most)
            return FittedSurvey(scaled, steps, estimator.survey(scaled))

        fitted = search_steps(with_steps, seconds * jobs)
        forecast = fitted.forecast
        if forecast.evaluating <= MOST_EVALUATING and forecast.seconds <= seconds * jobs:
            break
    if fitted.steps > LEAST_STEPS:
        return fitted
    warning = (
        f"a budget of {seconds:.0f} s is too small for {len(survey.trials())} trials: "
        f"{LEAST_STEPS} steps each take about {fitted.forecast.seconds / jobs:.0f} s; name fewer "
        "plans or seeds, or a larger budget"
    )
    return replace(fitted, warning=warning)


def search_steps(with_steps: Callable[[int], FittedSurvey], seconds: float) -> FittedSurvey:
    """Time is nearly linear in the steps; encoding a growing set of rows bends it a little."""
    low = with_steps(LEAST_STEPS)
    if low.forecast.seconds > seconds:
        return low
    fitted = with_steps(10 * LEAST_STEPS)
    for _ in range(SEARCH_ROUNDS):
        slope = (fitted.forecast.seconds - low.forecast.seconds) / (fitted.steps - low.steps)
        steps = int(low.steps + (seconds - low.forecast.seconds) / max(slope, 1e-9))
        steps = min(MOST_STEPS, max(LEAST_STEPS + 1, steps))
        if steps == fitted.steps:
            break
        fitted = with_steps(steps)
    return fitted
