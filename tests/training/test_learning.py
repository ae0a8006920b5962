"""Everything a recipe can name lowers the losses on one fixed batch of the sample."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from building import DEPTH, build_network, tiny_shape
from mops.config.training import AGGREGATORS, LOSS_WEIGHTS, SUM, Training, check_solver_installed
from mops.data.batches import Batch, Segment, TaskData, make_batch, tokenise
from mops.data.compose import compose_recipe
from mops.data.dataset import encode_targets, read_dataset
from mops.data.samplers import SAMPLERS
from mops.data.schedule import plan_steps
from mops.errors import RecipeError
from mops.model.network import Network
from mops.model.sources import find_encoder
from mops.plans.catalog import every_plan, parse_plan
from mops.plans.rows import SharingPlan
from mops.plans.shapes import EncoderShape, Reading
from mops.tasks import Task
from mops.training.losses import LOSSES, build_gradients, build_weighting
from mops.training.optim import build_optimizer
from mops.training.step import compute_losses
from stepping import take_step

STEPS = 28
ROWS = 6
WORDS = 997
READING = Reading(max_length=48)
HOW: dict[str, Any] = {
    "max_steps": STEPS,
    "learning_rate": 1e-3,
    "head_learning_rate": 5e-3,
    "per_task_batch_size": ROWS,
    "warmup_steps": 0,
    "lr_scheduler_type": "none",
}


@cache
def sample() -> dict[str, TaskData]:
    """The first training rows of the embedded sample; its many words folded onto a few."""
    dataset = read_dataset(compose_recipe(data="sample"), wanted=())
    tokenizer = find_encoder("minilm").tokenizer
    found = {}
    for name, task in dataset.tasks.items():
        rows = dataset.splits[name]["train"].good[:ROWS]
        table = tokenise(tokenizer, [row.texts for row in rows], READING)
        table = replace(table, ids=table.ids % WORDS)
        found[name] = TaskData(task, table, encode_targets(task, rows))
    return found


def shape() -> EncoderShape:
    return replace(tiny_shape(), words=WORDS, positions=64)


def batch_of(tasks: tuple[str, ...]) -> Batch:
    return make_batch(sample(), {task: range(ROWS) for task in tasks})


def tasks_with(**changes: Any) -> list[Task]:
    return [replace(data.task, **changes.get(name, {})) for name, data in sample().items()]


def mean_losses(network: Network) -> dict[str, float]:
    network.eval()
    with torch.no_grad():
        losses = compute_losses(network, batch_of(tuple(network.layout.tasks)))
    return {task: float(loss) for task, loss in losses.items()}


def train_on_one_batch(
    plan: str | SharingPlan = "shared", tasks: list[Task] | None = None, **settings: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """The losses on the batch before and after; each step takes the tasks that the order says."""
    training = Training(**{**HOW, **settings})
    network = build_network(plan, shape=shape(), reading=READING, tasks=tasks or tasks_with())
    schedule = plan_steps(dict.fromkeys(network.layout.tasks, ROWS), training)
    weighting = build_weighting(training, network.layout.tasks, schedule, torch.device("cpu"))
    optimizer = build_optimizer(network, training, weighting.parameters())
    gradients = build_gradients(training.gradients)
    before = mean_losses(network)
    for step in range(len(schedule)):
        here = tuple(schedule.batches_before(step + 1).items())
        earlier = schedule.batches_before(step)
        batch = batch_of(tuple(task for task, count in here if count > earlier[task]))
        take_step(
            network,
            optimizer,
            batch,
            training,
            step=step,
            total=len(schedule),
            weighting=weighting,
            gradients=gradients,
        )
    return before, mean_losses(network)


def assert_all_fall(losses: tuple[dict[str, float], dict[str, float]]) -> None:
    before, after = losses
    assert all(after[task] < 0.9 * before[task] for task in before), losses


PLANS = every_plan(DEPTH, ("sentiment", "paraphrase", "similarity"))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_plan(plan: SharingPlan) -> None:
    assert_all_fall(train_on_one_batch(plan))


@pytest.mark.parametrize("schedule", SAMPLERS)
def test_schedule(schedule: str) -> None:
    """With one task a step three times as many steps give each task as many."""
    assert_all_fall(train_on_one_batch(schedule=schedule, max_steps=2 * STEPS))


@pytest.mark.parametrize("rule", [SUM, *AGGREGATORS])
def test_gradient_rule(rule: str) -> None:
    try:
        check_solver_installed(rule)
    except RecipeError as missing:
        pytest.skip(str(missing))
    assert_all_fall(train_on_one_batch(gradients=rule))


@pytest.mark.parametrize("weights", [*LOSS_WEIGHTS, {"sentiment": 0.4, "similarity": 0.2}])
def test_loss_weights(weights: Any) -> None:
    assert_all_fall(train_on_one_batch(loss_weights=weights))


@pytest.mark.parametrize("loss", LOSSES)
def test_loss(loss: str) -> None:
    """Each loss on the task whose answers it fits."""
    of_values = dict.fromkeys(("mse", "mae", "huber"), "similarity")
    task = {**of_values, "binary_cross_entropy": "paraphrase"}.get(loss, "sentiment")
    changes: dict[str, Any] = {task: {"loss": loss}}
    if task == "similarity":
        changes[task]["type"] = "regression"
    if task == "sentiment":
        changes[task]["labels"] = ("0", "1", "2", "3", "4")
    assert_all_fall(train_on_one_batch(tasks=tasks_with(**changes)))


def test_feeds_of_every_kind() -> None:
    plan = parse_plan("progressive")
    for gradient in ("frozen-head", "stop", "full", 0.5):
        for combine in ("concat", "attention"):
            feeds = tuple(replace(f, gradient=gradient, combine=combine) for f in plan.feeds)
            assert_all_fall(train_on_one_batch(replace(plan, feeds=feeds)))


def test_the_batch_is_of_the_sample() -> None:
    segments: tuple[Segment, ...] = batch_of(("sentiment",)).segments
    assert len(segments) == ROWS and all(len(segment.ids) > 4 for segment in segments)
