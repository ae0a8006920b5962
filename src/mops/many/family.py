"""A family: runs that share a frozen encoder and its vectors, trained a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from mops.data.batches import TaskData
from mops.data.schedule import Schedule, plan_steps
from mops.encoder.network import Network
from mops.encoder.packing import Packer
from mops.encoder.pretrained import load_pretrained
from mops.errors import RunError
from mops.fit.checkpoints import saved_step
from mops.fit.loop import Watcher
from mops.fit.prepare import Prepared, selection_rows
from mops.fit.run import Run, assemble, begin_folder, conclude, tracked
from mops.fit.trackers import Label
from mops.judge.evaluate import sample
from mops.judge.scores import score
from mops.many.abreast import Abreast, Order, Runner, Shelf, training_rows
from mops.many.stackable import pattern_of, top_of, trunk_of
from mops.many.vectors import Features, Ints, Known, TaskShelf, build_shelf, pooled_vectors
from mops.predict.answers import decide
from mops.predict.bundle import Bundle

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
        splits = self.ready.material.splits
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
        read = run.ready.material.splits[name]["train"]
        judged = sample(read, name, run.ready.recipe.training.seed)
        found.append(shelf.numbers([row.texts for row in judged]))
        found.append(training_rows(run.schedule, name))
    return np.unique(np.concatenate(found))


# ------------------------------------------------------------------ a few at a time


def train_batch(
    batch: Sequence[Planned], trunk: Network, shelf: Shelf, watcher: Watcher
) -> dict[Path, Run | RunError]:
    """Runs abreast to the end; each that got there is judged and written down."""
    results: dict[Path, Run | RunError] = {}
    runners: dict[Path, Runner] = {}
    for run in batch:
        try:
            runners[run.folder] = build_runner(run, trunk, shelf)
            begin_folder(run.folder, run.ready.recipe)
        except RunError as problem:  # a saved state that cannot be read
            results[run.folder] = problem
    abreast = Abreast(list(runners.values()), shelf)
    with ExitStack() as heard:
        for run in batch:
            if run.folder in runners:
                loop = runners[run.folder].loop
                heard.enter_context(tracked(loop, run.ready.recipe, run.label))
        abreast.run(watcher)
        results |= abreast.failed
        for run in batch:
            if run.folder not in results:
                answering = partial(answer_known, shelf)
                loop = runners[run.folder].loop
                results[run.folder] = conclude(run.ready, loop, watcher, answering)
    return results


def build_runner(run: Planned, trunk: Network, shelf: Shelf) -> Runner:
    """A run with late layers and heads of its own on the common trunk."""
    training, layout = run.ready.recipe.training, run.ready.layout
    network = Network(
        layout,
        head_dropout=training.head_dropout,
        seed=training.seed,
        trunk={owner: trunk.bank[owner] for owner in trunk_of(layout)},
    )
    rows = selection_rows(run.ready)
    numbers = {task: shelf[task].numbers([row.texts for row in of]) for task, of in rows.items()}
    loop = assemble(
        run.folder,
        run.ready,
        network,
        data={task: of.training for task, of in shelf.items()},
        selection={task: shelf[task].some(of) for task, of in rows.items()},
        scores=partial(known_scores, shelf, numbers),
    )
    orders = {task: Order.of(run.schedule, task, of) for task, of in shelf.items()}
    return Runner(loop, orders)


def known_scores(
    shelf: Shelf,
    numbers: Mapping[str, Ints],
    network: Network,
    selection: Mapping[str, TaskData],
    pack: Packer | None = None,
) -> dict[str, dict[str, float]]:
    """The scores on the selection rows, whose vectors are known."""
    found = {}
    for name, data in selection.items():
        outputs = shelf[name].outputs(network, numbers[name])
        found[name] = score(data.task, data.targets, decide(data.task, outputs).predictions)
    return found


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
