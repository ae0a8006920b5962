"""How long a survey would take, and how many steps fit into a given time. No torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mops.data.budgets import trained_parameters
from mops.data.material import Material, layout_of, material_key, read_material, resolve
from mops.data.schedule import Schedule, generator, plan_steps
from mops.data.tokens import TokenTable, tokenise
from mops.encoder.sources import EncoderSource, find_encoder
from mops.layout import Layout
from mops.recipes import Recipe
from mops.settings import Training
from mops.shapes import Reading
from mops.survey.design import Survey
from mops.survey.estimate import (
    evaluations_of,
    frozen_share,
    matrix_speed,
    split_flops,
    time_of,
    work_of,
)
from mops.survey.trials import Trial

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
