"""Training many runs at once: small networks on one frozen encoder whose texts are encoded once."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import cast

import numpy as np
import torch

from mops.config.methods import SUM
from mops.config.recipe import Recipe
from mops.data.batches import take_rows
from mops.data.dataset import Dataset, dataset_key, read_dataset
from mops.data.schedule import Schedule, plan_steps
from mops.errors import MopsError, RecipeError, RunError
from mops.evaluate.evaluate import sample
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import find_encoder
from mops.store import find_store
from mops.training import run as single_run
from mops.training.batched.ensemble import Ensemble, FeatureBatch, Member
from mops.training.batched.features import (
    FeatureObjective,
    FeatureTable,
    FeatureTables,
    Ints,
    TablePredictor,
    build_table,
    training_rows,
)
from mops.training.checkpoint import STATE, saved_step
from mops.training.feature_cache import FeatureCache, find_prefix
from mops.training.machine import restored_threads
from mops.training.prepare import Prepared, prepare, selection_rows, task_data
from mops.training.run import Run
from mops.training.step import StepFacts
from mops.training.tracking import Label, Watcher, label_of
from mops.training.trainer import Trainer, run_all

# Bytes of the weights and moments of networks that are trained as one batch. With 384 wide vectors
# a network has about 10 MiB. CPU time of its step on one thread, relative to that in a batch of
# eight (medians of two runs on a busy machine): alone 1.26, of two 1.13, of four 1.04, of sixteen
# 0.97.
BATCH_BYTES = 96 * 2**20
Results = dict[Path, Run | RunError]


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
        "its plan freezes more than the encoder": not all(
            rate for owner, rate in layout.rates.items() if owner not in trunk
        ),
        "training.stages is set": bool(training.stages),
        "training.gradients is not sum": training.gradients != SUM,
        "its loss weights are not fixed": isinstance(training.loss_weights, str),
        "training.augment is set": training.augment is not None,
        "it does not run on the CPU (training.device)": device != "cpu",
    }
    return next((reason for reason, applies in obstacles.items() if applies), "")


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be trained in a batch."""

    ready: Prepared
    folder: Path
    label: Label  # its name in trackers

    @cached_property
    def schedule(self) -> Schedule:
        splits = self.ready.dataset.splits
        sizes = {name: len(rows["train"].good) for name, rows in splits.items()}
        return plan_steps(sizes, self.ready.recipe.training)

    @cached_property
    def trunk(self) -> tuple[str, ...]:
        """The owners of pretrained weights."""
        routes = self.ready.layout.routes.values()
        return tuple(dict.fromkeys(owner for route in routes for owner, _, _ in route.trunk))

    @property
    def bytes(self) -> int:
        """The memory of its weights, each with two moments, without the encoder."""
        sizes = self.ready.layout.sizes
        return 12 * sum(size for owner, size in sizes.items() if owner not in self.trunk)

    @property
    def feature_key(self) -> Hashable:
        """Runs with equal keys read the same rows through the same frozen weights."""
        return id(self.ready.dataset), repr(self.ready.layout.reading), self.trunk

    @property
    def step_key(self) -> Hashable:
        """Runs with equal keys have the same tasks in all steps, equal heads, and the same step."""
        layout, schedule = self.ready.layout, self.schedule
        widths = [layout.head_input(task).width for task in layout.tasks]
        steps = hash(tuple(tuple(step.items()) for step in schedule.steps))
        return repr((saved_step(self.folder / STATE), steps, schedule.batch_sizes, widths))


@restored_threads()
def train_many(
    recipes: Sequence[Recipe],
    outs: Sequence[str | Path],
    watcher: Watcher | None = None,
    labels: Sequence[Label] | None = None,
) -> list[Run | RunError]:
    """Train recipes that differ only in what they add to a frozen encoder, as `train` would.

    Each folder gets what `train` writes into it. A run that fails returns its error and the others
    continue; the same call resumes interrupted runs. `labels` name the runs in trackers.
    """
    watcher, folders = watcher or Watcher(), [Path(out) for out in outs]
    if len(set(folders)) != len(recipes) or len(folders) != len(recipes):
        raise RecipeError(
            f"{len(recipes)} recipes and {len(set(folders))} different folders; "
            "every recipe needs a folder of its own"
        )
    labels = labels or [label_of(folder) for folder in folders]
    ready = prepare_many(recipes, watcher)
    runs = [PlannedRun(*facts) for facts in zip(ready, folders, labels, strict=True)]
    for run in runs:
        if reason := batching_obstacle(run.ready.recipe, run.ready.device):
            raise RecipeError(
                f"{run.folder}: this run cannot be trained in a batch: {reason}; "
                "train it alone with `mops train`"
            )
    done = [run.folder for run in runs if single_run.is_finished(run.folder, run.ready)]
    results: Results = {folder: single_run.finished_run(folder) for folder in done}
    open_runs = [run for run in runs if run.folder not in done]
    for group in group_runs(open_runs, lambda run: run.feature_key):
        results |= train_group(group, watcher)
    return [results[folder] for folder in folders]


def prepare_many(recipes: Sequence[Recipe], watcher: Watcher) -> list[Prepared]:
    """`prepare` for every recipe; the same files are read once."""
    datasets: dict[str, Dataset] = {}

    def read(recipe: Recipe) -> Dataset:
        if (key := dataset_key(recipe)) not in datasets:
            datasets[key] = read_dataset(recipe)
        return datasets[key]

    find = cache(find_encoder)
    return [prepare(recipe, watcher.phase, read, find) for recipe in recipes]


def group_runs(
    runs: Sequence[PlannedRun], key: Callable[[PlannedRun], Hashable]
) -> list[list[PlannedRun]]:
    groups: dict[Hashable, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def split_batches(runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """Runs of similar size in batches of at most BATCH_BYTES, or of one run."""
    batches: list[list[PlannedRun]] = []
    for run in sorted(runs, key=lambda run: run.bytes):
        if batches and sum(other.bytes for other in (*batches[-1], run)) <= BATCH_BYTES:
            batches[-1].append(run)
        else:
            batches.append([run])
    return batches


# ------------------------------------------------------------------ training


def train_group(runs: Sequence[PlannedRun], watcher: Watcher) -> Results:
    """Encode the texts of all runs once, then train the runs batch by batch."""
    watcher.phase("tokenising")
    tables = {name: build_table(runs[0].ready, name) for name in runs[0].ready.dataset.tasks}
    features = frozen_features(runs[0].ready)
    watcher.phase("encoding")
    for table in tables.values():
        table.fill(needed_rows(runs, table), features)
    results: Results = {}
    for group in group_runs(runs, lambda run: run.step_key):
        for batch in split_batches(group):
            results |= train_batch(batch, features.network, tables, watcher)
    return results


def frozen_features(ready: Prepared) -> FeatureCache:
    """The pooled vectors of the frozen encoder; without a store, if the cache is off."""
    network = Network(ready.layout)
    load_pretrained(network, ready.source)
    return FeatureCache(network.eval(), find_prefix(network), find_store())


def needed_rows(runs: Sequence[PlannedRun], table: FeatureTable) -> Ints:
    """The rows of a task that any of the runs reads in training or is evaluated on."""
    name = table.task.name
    rows = [np.arange(len(table.training), len(table.sequences_RK))]  # of the other splits
    for run in runs:
        train = run.ready.dataset.splits[name]["train"]
        evaluated = sample(train, name, run.ready.recipe.training.seed)
        rows.append(table.find_rows(row.texts for row in evaluated))
        rows.append(training_rows(run.schedule, name))
    return np.unique(np.concatenate(rows))


def train_batch(
    batch: Sequence[PlannedRun], encoder: Network, tables: FeatureTables, watcher: Watcher
) -> Results:
    """Train runs as one computation. An error of one run does not stop the others."""
    results: Results = {}
    trainers: list[tuple[PlannedRun, Trainer]] = []
    with ExitStack() as trackers:
        for run in batch:
            try:
                trainer = build_trainer(run, encoder, tables)
                single_run.begin_folder(run.folder, run.ready.recipe)
                trackers.enter_context(single_run.tracked(trainer, run.ready.recipe, run.label))
                trainers.append((run, trainer))
            except RunError as error:  # a state that cannot be read, a folder without space
                results[run.folder] = error
        for _, trainer in trainers:
            trainer.state.batched = len(trainers)
        if trainers:
            run_all([trainer for _, trainer in trainers], BatchedRuns(), watcher)
        for run, trainer in trainers:
            predictor = partial(TablePredictor, tables)
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
    data = {name: table.training for name, table in tables.items()}
    selection = selection_rows(ready).items()
    objective = FeatureObjective(
        training=training,
        schedule=run.schedule,
        data=data,
        selection={name: task_data(ready, name, rows) for name, rows in selection},
        take=partial(take_rows, data),
        tables=tables,
        selection_rows={n: tables[n].find_rows(row.texts for row in rows) for n, rows in selection},
    )
    return single_run.start_trainer(run.folder, ready, network, objective)


class BatchedRuns:
    """A strategy of the trainer: the steps of runs with equal schedules are one computation.

    Each run keeps its own state, curve, best weights and checkpoints, as if it ran alone.
    """

    def __init__(self) -> None:
        self.runs: Sequence[Trainer] = ()
        self.ensemble: Ensemble

    def take_steps(self, runs: Sequence[Trainer]) -> Sequence[StepFacts]:
        step, objectives = runs[0].state.step, [cast(FeatureObjective, r.objective) for r in runs]
        if runs != self.runs:  # one has stopped or failed
            self.runs = runs
            self.ensemble = Ensemble(
                [Member(r.network, r.learner.optimizer, r.schedule.stage_at(step)) for r in runs]
            )
        rows = objectives[0].make_batch(step)
        started = time.perf_counter()
        batches, tokens_N = {}, np.zeros(len(runs), np.int64)
        for task, place in rows.slices.items():
            orders = [objective.orders[task] for objective in objectives]
            vectors_NT = torch.stack([order.vectors_PK[place].flatten() for order in orders])
            batches[task] = FeatureBatch(
                vectors_NTD=objectives[0].tables[task].vectors_UD[vectors_NT],
                targets_NR=torch.stack([order.targets_P[place] for order in orders]),
                scale=rows.scale[task],
            )
            tokens_N += [order.tokens[place.stop] - order.tokens[place.start] for order in orders]
        facts = self.ensemble.take_step(batches, step)
        seconds = (time.perf_counter() - started) / len(runs)
        return [
            replace(own, seconds=seconds, tokens=int(tokens))
            for own, tokens in zip(facts, tokens_N, strict=True)
        ]

    def close(self) -> None:
        return
