"""How long a survey would take, and how many steps fit into a given time. No torch.

FLOPs are counted (`evaluate/cost.py`) and divided by the speed of a matrix product on this machine.
One efficiency stands for all plans, so an estimate is off by about a quarter, and by as much more
as other programs use the machine. Measured and estimated processor seconds of a step of MiniLM
with 8 rows of three tasks: `shared` 0.64 and 0.69, `separate` 0.76 and 0.77, `pals:parallel` 0.75
and 0.72, `frozen+adapters` 0.53 and 0.46.
"""

import json
import math
import time
import timeit
from dataclasses import dataclass, field, replace

import numpy as np
from threadpoolctl import ThreadpoolController

from mops.config.recipe import Recipe
from mops.data.batches import TokenTable, tokenise
from mops.data.dataset import Dataset, dataset_key, read_dataset
from mops.data.planned import PlannedRun, planned_warnings
from mops.data.schedule import Schedule, generator, plan_steps, trained_parameters
from mops.evaluate.cost import TrainingWork, training_work
from mops.evaluate.evaluate import TRAIN_SAMPLE
from mops.model.sources import EncoderSource
from mops.plans.layout import Layout
from mops.surveys.design import Survey
from mops.surveys.ledger import cached_encoder

# Measured with MiniLM at 8 rows of each of three tasks on one core.
EFFICIENCY = 0.65  # of the machine's matrix products that a training step reaches
SECONDS_PER_UPDATE = 2e-9  # of one weight: AdamW, gradient norm, clipping
STEP_SECONDS, BATCHED_STEP_SECONDS = 0.012, 0.003  # overhead of a step; of one among many batched
# A process: imports, data, the encoder, the bundle at the end; less for one run among many.
START_SECONDS, BATCHED_START_SECONDS = 6.0, 1.0
SAMPLE = 2000  # training rows of a task whose tokens are counted
LEAST_STEPS, MOST_STEPS = 20, 1_000_000
SEARCH_ROUNDS = 6
# A race: the fraction of its time in which every candidate could be trained once (the rest is
# for more seeds of the better ones), evaluations of a training, passes over the largest task.
FIRST_TRAININGS, RACE_EVALUATIONS, MOST_PASSES = 0.7, 4, 4
EVALUATED = 2000  # validation rows of a task, at most
# If evaluations take a larger fraction of a budget, so many of them are tried instead.
MOST_EVALUATING, FEWER_EVALUATIONS = 0.25, (5, 2)


def matrix_speed() -> float:
    """GFLOP/s of matrix products of the size that a step has, on all cores.

    Measured on one core in the time of this thread, so that other programs do not count.
    """
    left, right = np.ones((512, 384), np.float32), np.ones((384, 1536), np.float32)
    blas = ThreadpoolController().select(user_api="blas")
    cores = max((pool["num_threads"] for pool in blas.info()), default=1)
    with blas.limit(limits=1):
        timings = timeit.repeat(lambda: left @ right, number=1, repeat=20, timer=time.thread_time)
    return cores * 2 * 512 * 384 * 1536 / min(timings) / 1e9


def flop_seconds(flops: float, gflops: float) -> float:
    return flops / (gflops * 1e9 * EFFICIENCY)


def step_seconds(work: TrainingWork, gflops: float) -> float:
    overhead = STEP_SECONDS * (work.steps - work.frozen_steps)
    overhead += BATCHED_STEP_SECONDS * work.frozen_steps
    return flop_seconds(work.flops, gflops) + work.updates * SECONDS_PER_UPDATE + overhead


@dataclass(frozen=True)
class TrialEstimate:
    name: str
    steps: int
    parameters: int
    trained: int
    seconds: float  # steps, evaluations, final scores and the start of the process
    evaluation_seconds: float  # those of the evaluations alone
    encode_seconds: float  # frozen encoder: a process that encodes all texts once for a family
    family: str  # candidates of one family share that; empty: none
    warnings: tuple[str, ...]  # about budgets and settings


@dataclass(frozen=True)
class Forecast:
    survey: Survey
    candidates: tuple[TrialEstimate, ...]
    warning: str = ""  # if the time that was given is too short

    @property
    def encode_seconds(self) -> float:
        """Once for each family: as long as its longest trial needs."""
        trials = sorted(self.candidates, key=lambda trial: trial.encode_seconds)
        return sum({trial.family: trial.encode_seconds for trial in trials}.values())

    @property
    def seconds(self) -> float:
        """One trial after the other."""
        once = sum(trial.seconds for trial in self.candidates)
        return self.encode_seconds + len(self.survey.seeds) * once

    @property
    def evaluating(self) -> float:
        """The fraction of the time that evaluations take."""
        once = sum(trial.evaluation_seconds for trial in self.candidates)
        return len(self.survey.seeds) * once / self.seconds


@dataclass
class Estimator:
    """Estimates many recipes; data is read and tokens are counted once."""

    gflops: float = field(default_factory=matrix_speed)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    samples: dict[str, dict[str, TokenTable]] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)

    def survey(self, survey: Survey) -> Forecast:
        """The first seed stands for all."""
        trials = [candidate.trial(survey.seeds[0]) for candidate in survey.candidates()]
        estimates = (self.estimate(trial.candidate.name, trial.recipe) for trial in trials)
        return Forecast(survey, tuple(estimates))

    def estimate(self, name: str, recipe: Recipe) -> TrialEstimate:
        """Steps, evaluations on a sample of the validation rows, and the scores at the end."""
        layout, schedule, family = self.lay_out(recipe)
        work = training_work(layout, schedule, self.samples[family])
        splits = self.datasets[dataset_key(recipe)].splits
        rows = {task: len(splits[task]["validation"].rows) for task in splits}
        evaluation = sum(
            min(n, EVALUATED) * work.evaluation_flops[task] for task, n in rows.items()
        )
        final = sum((n + TRAIN_SAMPLE) * work.forward_flops[task] for task, n in rows.items())
        evaluation_seconds = flop_seconds(evaluation * schedule.evaluations, self.gflops)
        once = flop_seconds(work.frozen_flops + final, self.gflops)
        start = BATCHED_START_SECONDS if work.is_frozen else START_SECONDS + once
        folds = recipe.training.folds or 1
        return TrialEstimate(
            name=name,
            steps=len(schedule),
            parameters=layout.parameters,
            trained=trained_parameters(layout, schedule),
            seconds=folds * (start + step_seconds(work, self.gflops) + evaluation_seconds),
            evaluation_seconds=folds * evaluation_seconds,
            encode_seconds=START_SECONDS + once if work.is_frozen else 0.0,
            family=f"{family} {layout.reading.pool}" if work.is_frozen else "",
            warnings=(
                *self.datasets[dataset_key(recipe)].doubts,
                *planned_warnings(PlannedRun(recipe, layout, schedule)),
            ),
        )

    def lay_out(self, recipe: Recipe) -> tuple[Layout, Schedule, str]:
        """Layout, schedule, and the key of the texts as this recipe reads them."""
        key = dataset_key(recipe)
        if key not in self.datasets:
            self.datasets[key] = read_dataset(recipe)
        dataset, source = self.datasets[key], cached_encoder(recipe.encoder)
        layout = recipe.with_labels(dataset.tasks).layout(dataset.tasks, source.shape)
        family = json.dumps([key, recipe.encoder, layout.reading.pair, layout.reading.max_length])
        if family not in self.samples:
            self.samples[family] = sample_tokens(dataset, source, layout)
        schedule = f"{key} {recipe.training.model_dump_json()}"
        if schedule not in self.schedules:
            self.schedules[schedule] = plan_steps(dataset.train_files, recipe.training)
        return layout, self.schedules[schedule], family


def sample_tokens(dataset: Dataset, source: EncoderSource, layout: Layout) -> dict[str, TokenTable]:
    """Tokens of at most SAMPLE training rows of each task."""
    tables = {}
    for name, splits in dataset.splits.items():
        rows = splits["train"].good
        chosen = generator(0, "token-sample", name).permutation(len(rows))[:SAMPLE].tolist()
        texts = [rows[n].texts for n in chosen]
        tables[name] = tokenise(source.tokenizer, texts, layout.reading.of(name))
    return tables


def fit_budget(survey: Survey, seconds: float, estimator: Estimator | None = None) -> Forecast:
    """The survey with as many steps, the same for all trials, as it can take in `seconds`.

    Jobs share the cores, so their number changes nothing. If evaluations would take more than a
    quarter of the time, there are fewer of them.
    """
    estimator = estimator or Estimator()
    for evaluations in (survey.evaluations, *FEWER_EVALUATIONS):
        fitted = search_steps(estimator, survey, evaluations, seconds)
        if fitted.evaluating <= MOST_EVALUATING and fitted.seconds <= seconds:
            break
    return with_warning(fitted, seconds)


def fit_race(survey: Survey, seconds: float, estimator: Estimator | None = None) -> Forecast:
    """A race with as many steps as one training of each candidate can take in most of `seconds`.

    Steps that the survey names are kept. There are evaluations at all of its rungs, and at most
    MOST_PASSES over the largest task.
    """
    estimator = estimator or Estimator()
    race = survey.changed(seeds=1).model_copy(update={"budget": seconds})
    if survey.steps:
        return estimator.survey(race.changed(evaluations=RACE_EVALUATIONS))
    fitted = search_steps(estimator, race, RACE_EVALUATIONS, FIRST_TRAININGS * seconds)
    training = fitted.survey.candidates()[0].recipe.training
    _, schedule, _ = estimator.lay_out(fitted.survey.candidates()[0].recipe)
    passes = (rows / training.batch_size(task) for task, rows in schedule.sizes.items())
    most = math.ceil(MOST_PASSES * max(passes))
    if (fitted.survey.steps or 0) > most:
        return estimator.survey(fitted.survey.changed(steps=most))
    return with_warning(fitted, seconds)


def with_warning(fitted: Forecast, seconds: float) -> Forecast:
    if fitted.survey.steps != LEAST_STEPS:
        return fitted
    count = len(fitted.candidates) * len(fitted.survey.seeds)
    warning = (
        f"a budget of {seconds:.0f} s is too small for {count} trials: "
        f"{LEAST_STEPS} steps each take about {fitted.seconds:.0f} s; name fewer plans or "
        "seeds, or a larger budget"
    )
    return replace(fitted, warning=warning)


def search_steps(
    estimator: Estimator, survey: Survey, evaluations: int | None, seconds: float
) -> Forecast:
    """Time is nearly linear in the steps; encoding a growing set of rows bends it a little."""

    def forecast(steps: int) -> Forecast:
        return estimator.survey(survey.changed(steps=steps, evaluations=evaluations))

    low, steps = forecast(LEAST_STEPS), 10 * LEAST_STEPS
    if low.seconds > seconds:
        return low
    fitted = forecast(steps)
    for _ in range(SEARCH_ROUNDS):
        slope = (fitted.seconds - low.seconds) / (steps - LEAST_STEPS)
        better = int(LEAST_STEPS + (seconds - low.seconds) / max(slope, 1e-9))
        better = min(MOST_STEPS, max(LEAST_STEPS + 1, better))
        if better == steps:
            break
        steps, fitted = better, forecast(better)
    return fitted
