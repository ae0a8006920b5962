"""Training many runs at once: small networks on one frozen encoder whose texts are encoded once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from mops.config.methods import SUM, check_solver_installed
from mops.config.recipe import Recipe
from mops.data.batches import take_rows
from mops.data.dataset import Dataset, dataset_key, read_dataset
from mops.data.schedule import Schedule, plan_steps
from mops.errors import RecipeError, RunError
from mops.evaluate.evaluate import sample
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import EncoderSource, find_encoder
from mops.plans.rows import TRUNK_FROZEN
from mops.predict.bundle import Bundle
from mops.training.batched.features import (
    FeatureTable,
    FeatureTables,
    Ints,
    TablePredictor,
    build_table,
    pooled_features,
)
from mops.training.batched.trainer import BatchedRuns, FeatureObjective, RowOrder, training_rows
from mops.training.checkpoint import STATE, saved_step
from mops.training.machine import prepare_machine, restored_threads
from mops.training.prepare import Prepared, selection_rows, task_data
from mops.training.run import (
    Run,
    begin_folder,
    conclude,
    finished_run,
    is_finished,
    start_trainer,
    tracked,
)
from mops.training.tracking import Label, Watcher, label_of, refuse_missing_trackers
from mops.training.trainer import Trainer, run_all

# Bytes of the weights and moments of networks that are trained as one batch. With 384 wide vectors
# a network has about 10 MiB. CPU time of its step on one thread, relative to that in a batch of
# eight (medians of two runs on a busy machine): alone 1.26, of two 1.13, of four 1.04, of sixteen
# 0.97.
BATCH_BYTES = 96 * 2**20
MOMENT_BYTES = 12  # a weight and its two moments

Results = dict[Path, Run | RunError]


def batching_obstacle(recipe: Recipe, device: str = "cpu") -> str:
    """Why a run cannot be trained in a batch with others; empty if it can."""
    plan, training = recipe.sharing_plan(), recipe.training
    rates, others = plan.rates[: len(TRUNK_FROZEN)], plan.rates[len(TRUNK_FROZEN) :]
    obstacles = {
        "its encoder learns (write the plan as frozen+...)": rates != TRUNK_FROZEN,
        "its plan adds something inside the encoder": bool(plan.additions),
        "its plan has feeds": bool(plan.feeds),
        "its plan has pull rows": bool(plan.pull),
        "its plan freezes more than the encoder": any(row.factor == 0 for row in others),
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
        """The memory of its weights and moments, without the encoder."""
        sizes = self.ready.layout.sizes
        return MOMENT_BYTES * sum(size for owner, size in sizes.items() if owner not in self.trunk)

    @property
    def feature_key(self) -> Hashable:
        """Runs with equal keys read the same rows through the same frozen weights."""
        return id(self.ready.dataset), repr(self.ready.layout.reading), self.trunk

    @property
    def step_key(self) -> Hashable:
        """Runs with equal keys have the same tasks in all steps, equal heads, and the same step."""
        layout, schedule = self.ready.layout, self.schedule
        steps = tuple(tuple(step.items()) for step in schedule.steps)
        widths = tuple(layout.head_input(task).width for task in layout.tasks)
        sizes = tuple(schedule.batch_sizes.items())
        return saved_step(self.folder / STATE), hash(steps), sizes, widths


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
    ready = prepare_many(recipes, watcher.phase)
    runs = [PlannedRun(*facts) for facts in zip(ready, folders, labels, strict=True)]
    for run in runs:
        if reason := batching_obstacle(run.ready.recipe, run.ready.device):
            raise RecipeError(
                f"{run.folder}: this run cannot be trained in a batch: {reason}; "
                "train it alone with `mops train`"
            )
    is_done = {run.folder: is_finished(run.folder, run.ready) for run in runs}
    results: Results = {folder: finished_run(folder) for folder in folders if is_done[folder]}
    open_runs = [run for run in runs if not is_done[run.folder]]
    for group in group_runs(open_runs, lambda run: run.feature_key):
        results |= train_group(group, watcher)
    return [results[folder] for folder in folders]


def prepare_many(recipes: Sequence[Recipe], tell: Callable[[str], None]) -> list[Prepared]:
    """`prepare` for every recipe; the same files are read once."""
    datasets: dict[str, Dataset] = {}
    sources: dict[str, EncoderSource] = {}
    prepared = []
    for recipe in recipes:
        device = prepare_machine(recipe.training)
        check_solver_installed(recipe.training.gradients)
        refuse_missing_trackers(recipe.training)
        if (key := dataset_key(recipe)) not in datasets:
            tell("reading data")
            datasets[key] = read_dataset(recipe)
        source = sources.setdefault(recipe.encoder, find_encoder(recipe.encoder))
        tasks = datasets[key].tasks
        layout = recipe.layout(tasks, source.shape)
        prepared.append(Prepared(recipe.with_labels(tasks), datasets[key], source, layout, device))
    return prepared


def group_runs(
    runs: Sequence[PlannedRun], key: Callable[[PlannedRun], Hashable]
) -> list[list[PlannedRun]]:
    groups: dict[Hashable, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def split_batches(runs: Sequence[PlannedRun]) -> Iterator[list[PlannedRun]]:
    """Runs of similar size in batches of at most BATCH_BYTES, or of one run."""
    batch: list[PlannedRun] = []
    for run in sorted(runs, key=lambda run: run.bytes):
        if batch and sum(other.bytes for other in (*batch, run)) > BATCH_BYTES:
            yield batch
            batch = []
        batch.append(run)
    if batch:
        yield batch


# ------------------------------------------------------------------ training


def train_group(runs: Sequence[PlannedRun], watcher: Watcher) -> Results:
    """Encode the texts of all runs once, then train the runs batch by batch."""
    watcher.phase("tokenising")
    tables = {name: build_table(runs[0].ready, name) for name in runs[0].ready.dataset.tasks}
    encoder = frozen_network(runs[0].ready)
    watcher.phase("encoding")
    features = pooled_features(encoder)
    for task, table in tables.items():
        poolers = [encoder.bank[owner] for owner in encoder.layout.routes[task].pooler]
        table.fill(needed_rows(runs, table), features, poolers)
    results: Results = {}
    for group in group_runs(runs, lambda run: run.step_key):
        for batch in split_batches(group):
            results |= train_batch(batch, encoder, tables, watcher)
    return results


def frozen_network(ready: Prepared) -> Network:
    network = Network(ready.layout)
    load_pretrained(network, ready.source)
    return network.eval()


def needed_rows(runs: Sequence[PlannedRun], table: FeatureTable) -> Ints:
    """The rows of a task that any of the runs reads in training or is evaluated on."""
    name = table.task.name
    rows = [np.arange(len(table.training), len(table.sequences_RK))]  # of the other splits
    for run in runs:
        train = run.ready.dataset.splits[name]["train"]
        evaluated = sample(train, name, run.ready.recipe.training.seed)
        rows.append(table.find_rows([row.texts for row in evaluated]))
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
                begin_folder(run.folder, run.ready.recipe)
                trackers.enter_context(tracked(trainer, run.ready.recipe, run.label))
                trainers.append((run, trainer))
            except RunError as error:  # a state that cannot be read, a folder without space
                results[run.folder] = error
        for _, trainer in trainers:
            trainer.state.batched = len(trainers)
        if trainers:
            run_all([trainer for _, trainer in trainers], BatchedRuns(), watcher)
        for run, trainer in trainers:
            results[run.folder] = conclude_run(run, trainer, tables, watcher)
    return results


def conclude_run(
    run: PlannedRun, trainer: Trainer, tables: FeatureTables, watcher: Watcher
) -> Run | RunError:
    def answer(bundle: Bundle, device: str) -> TablePredictor:
        return TablePredictor(bundle.network, tables)

    try:
        return trainer.error or conclude(run.ready, trainer, watcher, answer)
    except RunError as error:
        return error


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
    selection = selection_rows(ready)
    objective = FeatureObjective(
        training=training,
        schedule=run.schedule,
        data=data,
        selection={name: task_data(ready, name, rows) for name, rows in selection.items()},
        take=partial(take_rows, data),
        tables=tables,
        orders={name: RowOrder.plan(run.schedule, table) for name, table in tables.items()},
        selection_rows={
            name: tables[name].find_rows([row.texts for row in rows])
            for name, rows in selection.items()
        },
    )
    return start_trainer(run.folder, ready, network, objective)
