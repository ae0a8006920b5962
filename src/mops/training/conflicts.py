"""Measures where the tasks' gradients disagree, at some steps of a short training.

At its end the tasks answer the same texts: how far their outputs are correlated.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mops.config.recipe import Recipe
from mops.config.training import Training
from mops.data.batches import Batch, TaskData, make_batch, tokenise
from mops.data.compose import given_recipe
from mops.data.dataset import encode_targets
from mops.data.schedule import generator
from mops.errors import PlanError, RecipeError, UsageError
from mops.evaluate.conflicts import Answers, Conflicts, Targets, judge, read_conflicts
from mops.evaluate.metrics import Values
from mops.evaluate.statistics import LEVEL
from mops.files import to_path, write_text
from mops.kinds.answers import CLASS
from mops.kinds.classes import are_numbers
from mops.model.network import Network
from mops.plans.layout import Layout
from mops.predict.inference import Predictions, compute_outputs, decide
from mops.record import machine_info
from mops.tasks import Task
from mops.training.machine import restored_threads
from mops.training.prepare import Prepared, build_trainer, prepare
from mops.training.run import refuse_other_work
from mops.training.step import compute_losses
from mops.training.tracking import Watcher

FEWEST = 5  # measured steps, for a standard error that means something
COMMON_ROWS = 500  # of each task, that the others answer too
Halves = Mapping[str, tuple[Batch, Batch]]  # two independent batches of each task


@restored_threads()
def conflicts(
    recipe: Recipe | str | Path,
    out: str | Path | None = None,
    *,
    steps: int = 200,
    every: int = 5,
    watcher: Watcher | None = None,
) -> Conflicts:
    """Train for some steps and measure where gradients disagree; `out` gets conflicts.json."""
    recipe = given_recipe(recipe)
    check_request(recipe, steps, every)
    path = None if out is None else to_path(out, "out") / "conflicts.json"
    if path and path.parent.is_file():
        raise UsageError(f"{out} is a file; name a folder as `out`")
    watcher = watcher or Watcher()
    changes = {"max_steps": steps, "stages": (), "task_steps": {}}
    training = recipe.training.model_copy(update=changes)
    ready = prepare(recipe.model_copy(update={"training": training}), watcher.phase)
    if not shared_owners(ready.layout):
        raise PlanError(
            f"plan {ready.layout.plan.name!r}: no two tasks train the same weights, so nothing can "
            "conflict; take a plan that shares some (`mops plans` draws them)"
        )
    if path and path.exists():
        return read_same(path, ready, every)
    result = measure_run(ready, steps, every, watcher)
    if path:
        write_text(path, result.to_json())
    return result


def read_same(path: Path, ready: Prepared, every: int) -> Conflicts:
    """The result of an earlier call; refuses the result of another measurement."""
    result = read_conflicts(path)
    there = {**result.recipe, "every": result.info["every"]}
    here = {**ready.recipe.to_data(), "every": every}
    refuse_other_work(path.parent, "measurement", (there, here), result.info["key"] != ready.key)
    return result


def check_request(recipe: Recipe, steps: int, every: int) -> None:
    if len(recipe.tasks) < 2:
        raise RecipeError(
            f"conflicts are measured between tasks, and there is only {', '.join(recipe.tasks)}; "
            "name two or more as `tasks`, or add one to the recipe"
        )
    untrained = [name for name in recipe.tasks if not recipe.training.learns(name)]
    if untrained:
        raise RecipeError(
            f"{', '.join(untrained)}: not trained (training.train_tasks, loss_weights), so its "
            "gradients mean nothing; leave it out of `tasks`"
        )
    if every < 1 or steps < FEWEST * every:
        raise UsageError(
            f"{steps} steps, measured every {every}: at least {FEWEST} measured steps are needed "
            f"and `every` is 1 or more; take {FEWEST * max(every, 1)} steps or a smaller `every`"
        )


def measure_run(ready: Prepared, steps: int, every: int, watcher: Watcher) -> Conflicts:
    grams, network = train_and_measure(ready, every, watcher)
    tasks, training = list(ready.layout.tasks), ready.recipe.training
    return Conflicts(
        info={
            "plan": ready.layout.plan.name,
            "encoder": ready.source.name,
            "tasks": tasks,
            "seed": training.seed,
            "steps": steps,
            "every": every,
            "measured_steps": list(range(every, steps + 1, every)),
            "batch_sizes": {task: training.batch_size(task) for task in tasks},
            "level": LEVEL,
            "stderr": "over measured steps",
            "key": ready.key,
        },
        recipe=ready.recipe.to_data(),
        machine={**machine_info(), "device": ready.device, "threads": torch.get_num_threads()},
        **judge(grams, ready.layout.trained_by, tasks, *answer_common(ready, network)),
    )


def train_and_measure(
    ready: Prepared, every: int, watcher: Watcher
) -> tuple[dict[str, Values], Network]:
    """Take the steps of `mops train`, bit for bit: a measurement changes and draws nothing.

    Returns owner -> N T h T h, the products of gradients at N steps, and the trained network.
    """
    watcher.phase("tokenising")
    measured: list[dict[str, Values]] = []
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch:  # for the curve, which is dropped
        trainer = build_trainer(Path(scratch), ready)
        watcher.begin(len(trainer.schedule), 0)
        for step in range(1, len(trainer.schedule) + 1):
            facts = trainer.take_step(trainer.objective.make_batch(step - 1))
            trainer.note_step(facts)
            watcher.step(step, facts)
            if step % every == 0:
                halves = draw_halves(trainer.objective.data, trainer.training, step)
                measured.append(measure(trainer.network, halves))
    stacked = {owner: np.stack([grams[owner] for grams in measured]) for owner in measured[0]}
    return stacked, trainer.network


def answer_common(ready: Prepared, network: Network) -> tuple[Answers, Targets]:
    """Task -> the numbers that every task gives for some of its validation rows; their labels.

    A task of single texts answers each text of a pair, and the mean counts. A task of pairs cannot
    answer single texts.
    """
    tasks = [task for task in ready.dataset.tasks.values() if is_ordered(task)]
    answers, targets = {}, {}
    for source in tasks:
        good = ready.dataset.splits[source.name]["validation"].good
        draw = generator(ready.recipe.training.seed, "common", source.name)
        rows = [good[n] for n in draw.permutation(len(good))[:COMMON_ROWS]]
        texts, targets[source.name] = [row.texts for row in rows], encode_targets(source, rows)
        able = [task for task in tasks if task.is_pair <= source.is_pair]
        asked = {
            t.name: texts if t.is_pair else [(text,) for row in texts for text in row] for t in able
        }
        tables = {
            name: tokenise(ready.source.tokenizer, own, ready.layout.reading.of(name))
            for name, own in asked.items()
        }
        outputs = compute_outputs(network, tables, device=ready.device)
        answers[source.name] = {
            t.name: to_numbers(decide(t, outputs[t.name])).reshape(len(texts), -1).mean(1)
            for t in able
        }
    return answers, targets


def is_ordered(task: Task) -> bool:
    """Whether an answer is a number: a similarity, or the place of a class among ordered ones."""
    has_order = len(task.labels) == 2 or are_numbers(task.labels) or task.loss_name == "ordinal"
    return not task.answer.has_labels or (task.answer is CLASS and has_order)


def to_numbers(predictions: Predictions) -> Values:
    """The similarity, or the expected number of the class."""
    if not predictions.task.answer.has_labels:
        return predictions.values
    expected: Values = predictions.probabilities @ np.arange(len(predictions.task.labels))
    return expected


def draw_halves(data: Mapping[str, TaskData], training: Training, step: int) -> Halves:
    """Two batches of each task without a common row; they depend on seed, task and step alone."""
    halves = {}
    for task, rows in data.items():
        size = min(training.batch_size(task), len(rows) // 2)
        draw = generator(training.seed, "conflicts", task, str(step))
        numbers = draw.choice(len(rows), 2 * size, replace=False).tolist()
        first, second = numbers[:size], numbers[size:]
        halves[task] = make_batch(data, {task: first}), make_batch(data, {task: second})
    return halves


def measure(network: Network, halves: Halves) -> dict[str, Values]:
    """Owner -> T h T h, the dot products of the gradients of all unweighted losses on its weights.

    They are 0 for a task that does not train the owner. Dropout is off: it would add noise.
    """
    network.eval()
    weights = {o: list(network.bank[o].parameters()) for o in shared_owners(network.layout)}
    flat = [parameter for members in weights.values() for parameter in members]
    gradients: dict[str, list[list[Tensor]]] = {owner: [] for owner in weights}
    for task, batch in ((task, batch) for task, batches in halves.items() for batch in batches):
        loss = compute_losses(network, batch)[task]
        left = iter(torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True))
        for owner, members in weights.items():
            gradients[owner].append([next(left).to_dense().flatten() for _ in members])
    shape = (len(halves), 2, len(halves), 2)
    return {owner: dot_products(own).reshape(shape) for owner, own in gradients.items()}


def dot_products(gradients: Sequence[Sequence[Tensor]]) -> Values:
    """Every gradient with every other; a gradient is one tensor per parameter."""
    products = np.zeros((len(gradients), len(gradients)))
    for i, first in enumerate(gradients):
        for j, second in enumerate(gradients[: i + 1]):
            products[i, j] = products[j, i] = sum(map(float, map(torch.dot, first, second)))
    return products


def shared_owners(layout: Layout) -> list[str]:
    """Owners that learn from at least two tasks."""
    return [
        owner
        for owner, tasks in layout.trained_by.items()
        if len(tasks) > 1 and layout.rates[owner] > 0 and layout.sizes[owner]
    ]
