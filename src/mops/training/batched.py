"""Training many runs at once: small networks on one frozen encoder whose texts are encoded once."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from mops.config.recipe import Recipe
from mops.config.training import SUM
from mops.data.batches import split_batches
from mops.data.compose import given_recipe
from mops.data.dataset import dataset_key, read_dataset, shared_files
from mops.data.schedule import Schedule, plan_steps
from mops.errors import MopsError, RecipeError, RunError
from mops.files import to_path
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import find_encoder
from mops.store import find_store
from mops.training import run as single_run
from mops.training.checkpoint import STATE, saved_step
from mops.training.ensemble import Ensemble, Member
from mops.training.feature_cache import FeatureCache
from mops.training.features import (
    FeatureObjective,
    FeatureTables,
    Ints,
    TablePredictor,
    build_table,
    training_rows,
)
from mops.training.machine import hold_folder, restored_threads
from mops.training.meters import start_energy
from mops.training.prepare import Prepared, prepare, selection_data, start_trainer
from mops.training.run import Paused, Run
from mops.training.step import StepFacts
from mops.training.tracking import Label, Watcher
from mops.training.trainer import Trainer, run_all

# Bytes of the weights and moments of networks that are trained as one batch. With 384 wide vectors
# a network has about 10 MiB. CPU time of its step on one thread, relative to that in a batch of
# eight (medians of two runs on a busy machine): alone 1.26, of two 1.13, of four 1.04, of sixteen
# 0.97.
BATCH_BYTES = 96 * 2**20
Results = dict[Path, Run | Paused | RunError]


def batching_obstacle(recipe: Recipe, device: str = "cpu") -> str:
    """Why a run cannot be trained in a batch with others; empty if it can."""
    training = recipe.training
    try:
        layout = recipe.layout(recipe.task_values(), find_encoder(recipe.encoder).shape)
    except MopsError as error:  # the run itself will report it
        return str(error)
    routes = layout.routes.values()
    trunk = {owner for route in routes for owner, _, _ in route.trunk}
    obstacles = {
        "its encoder learns (write the plan as frozen+...)": any(layout.rates[o] for o in trunk),
        "its plan adds something inside the encoder": bool(layout.plan.additions),
        "its plan has feeds": bool(layout.plan.feeds),
        "its plan has pull rows": bool(layout.plan.pull),
        "its plan has a LayerNorm before the heads": any(row.norm for row in layout.plan.late),
        "its plan freezes more than the encoder": not all(
            rate for owner, rate in layout.rates.items() if owner not in trunk
        ),
        "several of its tasks read the same rows": bool(shared_files(recipe.tasks)),
        "one of its tasks answers each word": any(
            task.answer.reads_words for task in layout.tasks.values()
        ),
        "training.stages is set": bool(training.stages),
        "training.folds is set": bool(training.folds),
        "training.gradients is not sum": training.gradients != SUM,
        "its loss weights are not fixed": isinstance(training.loss_weights, str),
        "training.augment is set": training.augment is not None,
        "training.label_smoothing is set": training.label_smoothing > 0,
        "training.teachers is set": bool(training.teachers),
        "training.ema is set": training.ema > 0,
        "training.r_drop is set": training.r_drop > 0,
        "it does not run on the CPU (training.device)": device != "cpu",
    }
    return next((reason for reason, applies in obstacles.items() if applies), "")


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be trained in a batch."""

    ready: Prepared
    folder: Path
    label: Label | None  # its name in trackers
    until: float  # fraction of its steps

    @cached_property
    def schedule(self) -> Schedule:
        return plan_steps(self.ready.dataset.train_files, self.ready.recipe.training)

    @cached_property
    def trunk(self) -> tuple[str, ...]:
        """The owners of pretrained weights; in a batch nothing else is frozen."""
        return tuple(owner for owner, rate in self.ready.layout.rates.items() if rate == 0)


def feature_key(run: PlannedRun) -> tuple[int, str, tuple[str, ...]]:
    """Runs with equal keys read the same rows through the same frozen weights."""
    return id(run.ready.dataset), repr(run.ready.layout.reading), run.trunk


def step_key(run: PlannedRun) -> str:
    """Runs with equal keys have the same tasks in all steps, equal heads, and the same step."""
    layout, schedule = run.ready.layout, run.schedule
    widths = [layout.head_input(task).width for task in layout.tasks]
    steps = hash(tuple(tuple(step.items()) for step in schedule.steps))
    return repr((saved_step(run.folder / STATE), steps, schedule.batch_sizes, widths))


def own_bytes(run: PlannedRun) -> int:
    """The memory of what a run trains: its weights, each with two moments."""
    return 12 * run.ready.layout.trained


@restored_threads()
def train_many(
    recipes: Sequence[Recipe | str | Path],
    outs: Sequence[str | Path],
    watcher: Watcher | None = None,
    labels: Sequence[Label] | None = None,
    until: float = 1.0,
) -> list[Run | Paused | RunError]:
    """Train recipes that differ only in what they add to a frozen encoder, as `train_until` would.

    Each folder gets what `train` writes into it. A run that fails returns its error and the others
    continue; the same call resumes interrupted runs. `labels` name the runs in trackers.
    """
    watcher, folders = watcher or Watcher(), [to_path(out, "out") for out in outs]
    if not len(recipes) == len(folders) == len(set(folders)):
        raise RecipeError(
            f"{len(recipes)} recipes and {len(set(folders))} different folders; "
            "every recipe needs a folder of its own"
        )
    names: Sequence[Label | None] = labels or [None] * len(folders)
    ready = prepare_many([given_recipe(recipe) for recipe in recipes], watcher)
    runs = [PlannedRun(*facts, until) for facts in zip(ready, folders, names, strict=True)]
    for run in runs:
        if reason := batching_obstacle(run.ready.recipe, run.ready.device):
            raise RecipeError(
                f"{run.folder}: this run cannot be trained in a batch: {reason}; "
                "train it alone with `mops train`"
            )
    found = {run.folder: single_run.finished_run(run.folder, run.ready) for run in runs}
    results: Results = {folder: run for folder, run in found.items() if run}
    left = sorted((run for run in runs if run.folder not in results), key=feature_key)
    for _, group in groupby(left, key=feature_key):
        results |= train_group(list(group), watcher)
    return [results[folder] for folder in folders]


def prepare_many(recipes: Sequence[Recipe], watcher: Watcher) -> list[Prepared]:
    """`prepare` for every recipe; the same files are read once."""
    by_key = {dataset_key(recipe): recipe for recipe in recipes}
    read = cache(lambda key: read_dataset(by_key[key]))
    find = cache(find_encoder)
    return [prepare(r, watcher.phase, lambda r: read(dataset_key(r)), find) for r in recipes]


def train_group(runs: Sequence[PlannedRun], watcher: Watcher) -> Results:
    """Encode the texts of all runs once, then train the runs batch by batch."""
    ready, features = runs[0].ready, frozen_features(runs[0].ready)
    schedules = [run.schedule for run in runs]
    tables = {
        name: build_table(ready, name, schedules, features, watcher.phase)
        for name in ready.dataset.tasks
    }
    results: Results = {}
    for _, group in groupby(sorted(runs, key=step_key), key=step_key):
        for batch in split_batches(sorted(group, key=own_bytes), own_bytes, BATCH_BYTES):
            results |= train_batch(batch, features.network, tables, watcher)
    return results


def frozen_features(ready: Prepared) -> FeatureCache:
    """The pooled vectors of the frozen encoder; without a store, if the cache is off."""
    network = Network(ready.layout)
    load_pretrained(network, ready.source)
    return FeatureCache(network.eval(), find_store())


def train_batch(
    batch: Sequence[PlannedRun], encoder: Network, tables: FeatureTables, watcher: Watcher
) -> Results:
    """Train runs as one computation. An error of one run does not stop the others."""
    results: Results = {}
    trainers: list[tuple[PlannedRun, Trainer]] = []
    with ExitStack() as held:
        for run in batch:
            try:
                held.enter_context(hold_folder(run.folder))
                trainer = build_trainer(run, encoder, tables)
                held.enter_context(single_run.begun(trainer, run.ready, run.label))
                trainers.append((run, trainer))
            except RunError as error:  # a state that cannot be read, a folder without space
                results[run.folder] = error
        for _, trainer in trainers:
            trainer.state.batched = len(trainers)
        if trainers:
            run_all(
                [t for _, t in trainers], BatchedRuns(tables).take_steps, watcher, batch[0].until
            )
        for run, trainer in trainers:
            predictor = partial(TablePredictor, tables)
            if not trainer.is_done:
                results[run.folder] = Paused(trainer.state.best_score, trainer.run_seconds)
                continue
            try:
                done = trainer.error or single_run.conclude(run.ready, trainer, watcher, predictor)
            except RunError as error:
                done = error
            results[run.folder] = done
    return results


def build_trainer(run: PlannedRun, encoder: Network, tables: FeatureTables) -> Trainer:
    """A trainer of the run's own late layers and heads on the shared encoder."""
    ready, training = run.ready, run.ready.recipe.training
    network = Network(
        ready.layout,
        head_dropout=training.head_dropout,
        seed=training.seed,
        trunk={owner: encoder.bank[owner] for owner in run.trunk},
    )
    objective = FeatureObjective(
        training=training, schedule=run.schedule, data=tables, selection=selection_data(ready)
    )
    return start_trainer(run.folder, ready, network, objective)


class BatchedRuns:
    """A strategy of the trainer: the steps of runs with equal schedules are one computation.

    Each run keeps its own state, curve, best weights and checkpoints, as if it ran alone.
    """

    def __init__(self, tables: FeatureTables) -> None:
        self.tables = tables
        self.runs: Sequence[Trainer] = ()
        self.ensemble: Ensemble
        self.rows_NP: dict[str, Ints]  # the training rows that each network takes, in order

    def take_steps(self, runs: Sequence[Trainer]) -> Sequence[StepFacts]:
        step, schedule = runs[0].state.step, runs[0].schedule
        if runs != self.runs:  # the first step, or one has stopped or failed
            self.join(runs, step)
        joules, started = start_energy(), time.perf_counter()
        vectors, targets, tokens_N = {}, {}, np.zeros(len(runs), np.int64)
        before = schedule.rows_before(step)
        for task, count in schedule.steps[step].items():
            table, first = self.tables[task], before[task]
            rows_NR = self.rows_NP[task][:, first : first + count]
            places_NT = table.places_RK[rows_NR].reshape(len(runs), -1)
            vectors[task] = table.vectors_UD[torch.from_numpy(places_NT)]
            targets[task] = torch.from_numpy(table.targets[rows_NR])
            tokens_N += table.lengths_R[rows_NR].sum(1)
        facts = self.ensemble.take_step(vectors, targets, schedule.scale(step), step)
        seconds, share = (time.perf_counter() - started) / len(runs), joules() / len(runs)
        return [
            replace(own, seconds=seconds, joules=share, tokens=tokens)
            for own, tokens in zip(facts, tokens_N.tolist(), strict=True)
        ]

    def join(self, runs: Sequence[Trainer], step: int) -> None:
        """Stack what these runs train."""
        self.runs = runs
        members = [
            Member(run.network, run.learner.optimizer, run.schedule.stage_at(step)) for run in runs
        ]
        self.ensemble = Ensemble(members)
        self.rows_NP = {
            task: np.stack([training_rows(run.schedule, task) for run in runs])
            for task in self.tables
        }
