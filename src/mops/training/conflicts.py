"""Where do the tasks' gradients disagree? Measured now and then during a short training."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.config.recipe import Recipe, differing_key
from mops.config.training import Training
from mops.data.batches import Batch, TaskData, make_batch
from mops.data.schedule import generator
from mops.errors import PlanError, RecipeError, UsageError
from mops.evaluate.agreement import Measured, averages_of, cells_of, owner_series, place_series
from mops.evaluate.conflicts import Conflicts, advise, read_conflicts, write_conflicts
from mops.evaluate.statistics import LEVEL
from mops.model.network import Network
from mops.plans.layout import Layout
from mops.record import machine_info
from mops.training.machine import restored_threads
from mops.training.prepare import Prepared, prepare
from mops.training.run import build_trainer
from mops.training.step import compute_losses
from mops.training.trainer import Silent, Watcher

STEPS, EVERY = 200, 5
FEWEST = 5  # measured steps: with fewer a standard error says little
Halves = Mapping[str, tuple[Batch, Batch]]  # two independent batches of each task


@restored_threads()
def conflicts(
    recipe: Recipe,
    out: str | Path | None = None,
    *,
    steps: int = STEPS,
    every: int = EVERY,
    watcher: Watcher | None = None,
) -> Conflicts:
    """Train for some steps and measure where gradients disagree; `out` gets conflicts.json."""
    check_request(recipe, steps, every)
    if out is not None and Path(out).is_file():
        raise UsageError(f"{out} is a file; name a folder with --out")
    watcher = watcher or Silent()
    training = recipe.training.model_copy(
        update={"max_steps": steps, "stages": (), "task_steps": {}}
    )
    ready = prepare(recipe.model_copy(update={"training": training}), watcher.phase)
    check_sharing(ready.layout)
    path = Path(out) / "conflicts.json" if out is not None else None
    if path is not None and path.exists():
        return same_measurement(path, ready, every)
    measured = train_and_measure(ready, every, watcher)
    found = conclude(ready, every, measured)
    if path is not None:
        write_conflicts(path, found)
    return found


# ------------------------------------------------------------------ measuring


def train_and_measure(ready: Prepared, every: int, watcher: Watcher) -> Measured:
    """The steps of `mops train`, bit for bit: measuring moves nothing and draws nothing."""
    watcher.phase("tokenising")
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch:  # the loop's curve: not kept
        trainer = build_trainer(Path(scratch), ready)
        watcher.begin(len(trainer.schedule), 0)
        found: list[dict[str, NDArray[np.float64]]] = []
        for step in range(1, len(trainer.schedule) + 1):
            facts = trainer.take_step(trainer.objective.make_batch(step - 1))
            trainer.note_step(facts)
            watcher.step(step, facts)
            if step % every == 0:
                halves = draw_halves(trainer.objective.data, trainer.training, step)
                found.append(measure(trainer.network, halves))
    teachers = {owner: ready.layout.trained_by[owner] for owner in found[0]}
    grams = {owner: np.stack([grams[owner] for grams in found]) for owner in teachers}
    return Measured(tuple(ready.layout.tasks), teachers, grams)


def draw_halves(data: Mapping[str, TaskData], training: Training, step: int) -> Halves:
    """Two batches of each task without a row in common; a function of seed, task and step."""
    found = {}
    for task, rows_of_task in data.items():
        size = min(training.batch_size(task), len(rows_of_task) // 2)
        draw = generator(training.seed, "conflicts", task, str(step))
        rows = draw.choice(len(rows_of_task), 2 * size, replace=False).tolist()
        found[task] = (
            make_batch(data, {task: rows[:size]}),
            make_batch(data, {task: rows[size:]}),
        )
    return found


def measure(network: Network, halves: Halves) -> dict[str, NDArray[np.float64]]:
    """Owner -> T h T h, the products of all gradients on its weights; 0 for who does not pass.

    Without dropout, which would add noise that both tasks do not have in common.
    """
    network.eval()
    owners = shared_owners(network.layout)
    gradients = [
        gradient(network, task, batch, [o for o in owners if task in network.layout.trained_by[o]])
        for task, batches in halves.items()
        for batch in batches
    ]
    shape = (len(halves), 2, len(halves), 2)
    return {
        owner: products([g.get(owner, ()) for g in gradients]).reshape(shape) for owner in owners
    }


def gradient(
    network: Network, task: str, batch: Batch, owners: Sequence[str]
) -> dict[str, tuple[Tensor, ...]]:
    """Of the task's own loss, without its weight, with respect to each owner."""
    members = {owner: learning_parameters(network, owner) for owner in owners}
    flat = [parameter for parameters in members.values() for parameter in parameters]
    if not flat:
        return {}
    loss = compute_losses(network, batch)[task]
    found = iter(torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True))
    return {
        owner: tuple(next(found).to_dense() for _ in parameters)
        for owner, parameters in members.items()
    }


def learning_parameters(network: Network, owner: str) -> list[torch.nn.Parameter]:
    return [p for p in network.bank[owner].parameters() if p.requires_grad]


def products(gradients: Sequence[tuple[Tensor, ...]]) -> NDArray[np.float64]:
    """Every gradient with every other; an empty one gives 0."""
    found = np.zeros((len(gradients), len(gradients)))
    for i, one in enumerate(gradients):
        for j, other in enumerate(gradients[: i + 1]):
            pairs = zip(one, other, strict=False)
            found[i, j] = sum(float(torch.dot(a.flatten(), b.flatten())) for a, b in pairs)
            found[j, i] = found[i, j]
    return found


def shared_owners(layout: Layout) -> list[str]:
    """What at least two tasks teach."""
    return [
        owner
        for owner, tasks in layout.trained_by.items()
        if len(tasks) > 1 and layout.rates[owner] > 0 and layout.sizes[owner]
    ]


# ------------------------------------------------------------------ results


def conclude(ready: Prepared, every: int, measured: Measured) -> Conflicts:
    by_owner, by_place = owner_series(measured), place_series(measured)
    owners, places = cells_of(by_owner), cells_of(by_place)
    return Conflicts(
        info=info_of(ready, every),
        recipe=ready.recipe.to_data(),
        machine={**machine_info(), "device": ready.device, "threads": torch.get_num_threads()},
        owners=owners,
        places=places,
        averages=(*averages_of(by_owner), *averages_of(by_place)),
        advice=advise(owners, places),
    )


def info_of(ready: Prepared, every: int) -> dict[str, Any]:
    training = ready.recipe.training
    steps = training.max_steps or 0
    return {
        "plan": ready.layout.plan.name,
        "encoder": ready.source.name,
        "tasks": list(ready.layout.tasks),
        "seed": training.seed,
        "steps": steps,
        "every": every,
        "measured_steps": list(range(every, steps + 1, every)),
        "batch_sizes": {task: training.batch_size(task) for task in ready.layout.tasks},
        "level": LEVEL,
        "stderr": "over measured steps",
        "key": ready.key,
    }


def same_measurement(path: Path, ready: Prepared, every: int) -> Conflicts:
    """What is there already; refuses a folder that holds another measurement."""
    found = read_conflicts(path)
    difference = differing_key(
        {**found.recipe, "every": found.info["every"]}, {**ready.recipe.to_data(), "every": every}
    )
    if difference or found.info["key"] != ready.key:
        reason = difference or "the data or the encoder's weights have changed"
        raise RecipeError(
            f"{path.parent} holds another measurement ({reason}); "
            "name another folder with --out, or delete this one"
        )
    return found


# ------------------------------------------------------------------ wrong use


def check_request(recipe: Recipe, steps: int, every: int) -> None:
    if len(recipe.tasks) < 2:
        raise RecipeError(
            f"conflicts are between tasks, and there is only {', '.join(recipe.tasks)}; "
            "name two or more with --tasks, or add one under `tasks`"
        )
    idle = [name for name in recipe.tasks if not recipe.training.learns(name)]
    if idle:
        raise RecipeError(
            f"{', '.join(idle)}: not trained (training.train_tasks, loss_weights), so its "
            "gradients say nothing; leave it out with --tasks"
        )
    if every < 1 or steps < FEWEST * every:
        raise UsageError(
            f"{steps} steps, measured every {every}: at least {FEWEST} measured steps are needed "
            f"and `every` is 1 or more; take --steps {FEWEST * max(every, 1)} or a smaller --every"
        )


def check_sharing(layout: Layout) -> None:
    if not shared_owners(layout):
        raise PlanError(
            f"plan {layout.plan.name!r}: no weights that learn are passed by two tasks, so nothing "
            "can conflict; take a plan that shares some (`mops plans` draws them)"
        )
