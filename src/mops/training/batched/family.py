"""Which runs can be trained together: all that they add to the same frozen encoder is small.

A family: runs that share a frozen encoder and its vectors, trained a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from mops.config.methods import SUM
from mops.data.batches import take_rows
from mops.data.schedule import Schedule, plan_steps
from mops.errors import RunError
from mops.evaluate.evaluate import sample
from mops.model.encoder import trunk_owners
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.plans.layout import Layout
from mops.predict.bundle import Bundle
from mops.training.batched.trainer import (
    BatchedRuns,
    FeatureObjective,
    Order,
    Shelf,
    training_rows,
)
from mops.training.batched.vectors import (
    Features,
    Ints,
    Known,
    TaskShelf,
    build_shelf,
    pooled_vectors,
)
from mops.training.checkpoint import saved_step
from mops.training.prepare import Prepared, selection_rows
from mops.training.run import Run, begin_folder, conclude, start_trainer, tracked
from mops.training.tracking import Label
from mops.training.trainer import Trainer, Watcher, run_all


def why_not(ready: Prepared) -> str:
    """Why a run cannot be trained beside others; empty when it can."""
    return next((reason for is_so, reason in OBSTACLES if is_so(ready)), "")


def trunk_of(layout: Layout) -> tuple[str, ...]:
    """The owners of pretrained weights."""
    owners = (owner for route in layout.routes.values() for owner, _ in trunk_owners(route))
    return tuple(dict.fromkeys(owners))


def top_of(layout: Layout) -> list[str]:
    """Late layers and heads."""
    routes = layout.routes.values()
    return list(dict.fromkeys(o for route in routes for o in (*route.late, route.head)))


def learns_in_trunk(ready: Prepared) -> bool:
    return any(ready.layout.rates[owner] > 0 for owner in trunk_of(ready.layout))


def has_additions(ready: Prepared) -> bool:
    return any(stops for route in ready.layout.routes.values() for stops in route.adapters)


OBSTACLES: tuple[tuple[Callable[[Prepared], bool], str], ...] = (
    (learns_in_trunk, "its encoder learns (write the plan as frozen+...)"),
    (has_additions, "its plan adds something inside the encoder"),
    (lambda r: bool(r.layout.plan.feeds), "its plan has feeds"),
    (lambda r: bool(r.layout.l2_groups), "its plan has pull rows that hold late layers"),
    (
        lambda r: not all(r.layout.rates[owner] > 0 for owner in top_of(r.layout)),
        "its plan freezes a late layer or a head",
    ),
    (lambda r: bool(r.recipe.training.stages), "training.stages is set"),
    (lambda r: r.recipe.training.gradients != SUM, "training.gradients is not sum"),
    (lambda r: isinstance(r.recipe.training.loss_weights, str), "its loss weights are not fixed"),
    (lambda r: r.recipe.training.augment is not None, "training.augment is set"),
    (lambda r: r.device != "cpu", "it does not run on the processor (training.device)"),
)


def family_of(ready: Prepared) -> Hashable:
    """Runs with equal keys read the same rows in the same way through the same frozen weights."""
    return id(ready.dataset), repr(ready.layout.reading), trunk_of(ready.layout)


def pattern_of(ready: Prepared, schedule: Schedule) -> Hashable:
    """Runs of a family with equal keys have the same tasks in every step and heads alike."""
    steps = tuple(tuple(step.items()) for step in schedule.steps)
    seen = tuple(ready.layout.head_input(task).width for task in ready.layout.tasks)
    return hash(steps), tuple(schedule.batch_sizes.items()), seen


# Of runs abreast. With 384 wide vectors (about 10 MiB a network) a step of one network took, in
# processor time on one thread beside that of eight abreast: alone 1.36, two 1.17, four 1.03,
# sixteen 0.92 (medians of 3 to 5 runs on a busy machine, which differed by up to a tenth).
BATCH_BYTES = 96 * 2**20
MOMENT_BYTES = 12  # a weight and its two moments


@dataclass(frozen=True)
class Planned:
    """A run that is to be trained."""

    ready: Prepared
    folder: Path
    label: Label  # what trackers call it

    @cached_property
    def schedule(self) -> Schedule:
        splits = self.ready.dataset.splits
        sizes = {name: len(of["train"].good) for name, of in splits.items()}
        return plan_steps(sizes, self.ready.recipe.training)

    @property
    def bytes(self) -> int:
        """Of what it trains."""
        layout = self.ready.layout
        return MOMENT_BYTES * sum(layout.sizes[owner] for owner in top_of(layout))

    @property
    def place(self) -> Hashable:
        """Runs abreast have the same tasks in all steps and are at the same step."""
        state = self.folder / "state" / "state.safetensors"
        return saved_step(state), pattern_of(self.ready, self.schedule)


def train_family(
    runs: Sequence[Planned], watcher: Watcher, features: Features | None
) -> dict[Path, Run | RunError]:
    """Encode the texts of all runs once, then train the runs batch by batch."""
    watcher.phase("tokenising")
    shelf, trunk = build_shelf(runs[0].ready), frozen_network(runs[0].ready)
    watcher.phase("encoding")
    features = features or pooled_vectors(trunk)
    for task, of in shelf.items():
        poolers = [trunk.bank[owner] for owner in trunk.layout.routes[task].pooler]
        of.fill(needed_rows(runs, of), features, poolers)
    results: dict[Path, Run | RunError] = {}
    for alike in grouped(runs, lambda run: run.place):
        for batch in batches(alike):
            results |= train_batch(batch, trunk, shelf, watcher)
    return results


def frozen_network(ready: Prepared) -> Network:
    network = Network(ready.layout)
    load_pretrained(network, ready.source)
    return network.eval()


def needed_rows(runs: Sequence[Planned], shelf: TaskShelf) -> Ints:
    """The rows of a task that any of the runs will ask for, in training or at its end."""
    name = shelf.task.name
    others = [row.texts for split, rows in shelf.splits.items() if split != "train" for row in rows]
    found = [shelf.numbers(others)]
    for run in runs:
        read = run.ready.dataset.splits[name]["train"]
        judged = sample(read, name, run.ready.recipe.training.seed)
        found.append(shelf.numbers([row.texts for row in judged]))
        found.append(training_rows(run.schedule, name))
    return np.unique(np.concatenate(found))


# ------------------------------------------------------------------ a few at a time


def train_batch(
    batch: Sequence[Planned], trunk: Network, shelf: Shelf, watcher: Watcher
) -> dict[Path, Run | RunError]:
    """Train runs as one computation; each that gets to its end is evaluated and written down."""
    results: dict[Path, Run | RunError] = {}
    trainers: dict[Path, Trainer] = {}
    for run in batch:
        try:
            trainers[run.folder] = build_trainer(run, trunk, shelf)
            begin_folder(run.folder, run.ready.recipe)
        except RunError as problem:  # a saved state that cannot be read
            results[run.folder] = problem
    started = [run for run in batch if run.folder not in results]
    for run in started:
        trainers[run.folder].state.batched = len(started)
    with ExitStack() as trackers:
        for run in started:
            trackers.enter_context(tracked(trainers[run.folder], run.ready.recipe, run.label))
        if started:
            run_all([trainers[run.folder] for run in started], BatchedRuns(shelf), watcher)
        for run in started:
            trainer = trainers[run.folder]
            answering = partial(answer_known, shelf)
            results[run.folder] = trainer.error or conclude(run.ready, trainer, watcher, answering)
    return results


def build_trainer(run: Planned, trunk: Network, shelf: Shelf) -> Trainer:
    """A run with late layers and heads of its own on the common trunk."""
    training, layout = run.ready.recipe.training, run.ready.layout
    network = Network(
        layout,
        head_dropout=training.head_dropout,
        seed=training.seed,
        trunk={owner: trunk.bank[owner] for owner in trunk_of(layout)},
    )
    rows, data = selection_rows(run.ready), {task: of.training for task, of in shelf.items()}
    objective = FeatureObjective(
        training=training,
        schedule=run.schedule,
        data=data,
        selection={task: shelf[task].some(of) for task, of in rows.items()},
        take=partial(take_rows, data),
        shelf=shelf,
        orders={task: Order.of(run.schedule, task, of) for task, of in shelf.items()},
        selected={
            task: shelf[task].numbers([row.texts for row in of]) for task, of in rows.items()
        },
    )
    return start_trainer(run.folder, run.ready, network, objective)


def answer_known(shelf: Shelf, bundle: Bundle, device: str) -> Known:
    return Known(bundle.network, shelf)


def batches(runs: Sequence[Planned]) -> Iterator[list[Planned]]:
    """As many runs as the bound allows, at least one; runs of about the same size together."""
    batch: list[Planned] = []
    for run in sorted(runs, key=lambda run: run.bytes):
        if batch and sum(one.bytes for one in (*batch, run)) > BATCH_BYTES:
            yield batch
            batch = []
        batch.append(run)
    if batch:
        yield batch


def grouped(runs: Sequence[Planned], key: Callable[[Planned], Hashable]) -> list[list[Planned]]:
    """Runs with equal keys together, in the order of their first."""
    found: dict[Hashable, list[Planned]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return list(found.values())
