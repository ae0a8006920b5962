"""The budget of each task, counted by hand, and the warnings about it."""

from __future__ import annotations

from typing import Any

import pytest

from mops.config.training import Training
from mops.data.schedule import Schedule, plan_steps, schedule_warnings, task_budgets
from mops.record import TaskBudget

SIZES = {"small": 20, "large": 10_000}


def planned(**values: Any) -> tuple[Schedule, Training]:
    how = Training(**{"per_task_batch_size": 10} | values)
    return plan_steps(SIZES, how), how


def test_budgets_of_steps_and_of_a_whole_run() -> None:
    found, _ = planned(max_steps=8, per_task_batch_size={"small": 5, "large": 40})
    assert task_budgets(found) == {
        "small": TaskBudget(20, 8, 40, 2.0),
        "large": TaskBudget(10_000, 8, 320, 0.032),
    }
    assert task_budgets(found, 3)["small"] == TaskBudget(20, 3, 15, 0.75)
    assert task_budgets(found, 0)["large"] == TaskBudget(10_000, 0, 0, 0.0)


def test_budgets_with_varying_numbers_of_rows() -> None:
    """In one pass over the union every task has one pass: 501 steps of 20 rows."""
    found, _ = planned(schedule="mixed", max_steps=501)
    assert {task: share.passes for task, share in task_budgets(found).items()} == dict.fromkeys(
        SIZES, 1
    )
    assert task_budgets(found)["small"].examples == 20
    assert (
        task_budgets(found)["small"].batches == sum("small" in step for step in found.steps) <= 20
    )


@pytest.mark.parametrize(
    ("values", "task", "words"),
    [
        ({"max_steps": 49}, "large", "49 batches planned, 0.05 passes over its 10,000 rows"),
        # As a course report trained similarities: annealed sampling, 460 batches of 8 of 6,040.
        (
            {"max_steps": 460, "per_task_batch_size": 13},
            "large",
            "460 batches planned, 0.60 passes",
        ),
        ({"max_steps": 40, "per_task_batch_size": 190}, "large", "40 batches planned, 0.76"),
        ({"max_steps": 1}, "large", "1 batch planned, 0.00 passes"),
        ({"max_steps": 41}, "small", "20.5 passes planned over its 20 rows, more than 20"),
        ({"max_steps": 1, "schedule": "in-turn"}, "large", "no step is planned"),
    ],
)
def test_warns_about_too_few_and_too_many_passes(
    values: dict[str, Any], task: str, words: str
) -> None:
    assert words in schedule_warnings(*planned(**values))[task]


@pytest.mark.parametrize(
    ("values", "doubtful"),
    [
        ({"max_steps": 800, "task_steps": {"small": 30}}, []),  # 0.8 passes
        ({"max_steps": 799, "task_steps": {"small": 30}}, ["large"]),
        ({"max_steps": 40}, ["large"]),  # twenty passes are not too many
        ({"max_steps": 10, "train_tasks": ["small"]}, []),  # left out on purpose
        ({"max_steps": 10, "loss_weights": {"large": 0}}, []),
        ({"max_steps": 1, "per_task_batch_size": 8000}, ["small"]),  # one batch, 0.8 of the rows
    ],
)
def test_does_not_warn_about_enough_passes(values: dict[str, Any], doubtful: list[str]) -> None:
    assert list(schedule_warnings(*planned(**values))) == doubtful


@pytest.mark.parametrize(
    ("steps", "batch", "is_starved"),
    [(1000, 10, False), (999, 10, True), (50, 200, False), (49, 5000, True)],
)
def test_a_large_set_needs_no_whole_pass(steps: int, batch: int, is_starved: bool) -> None:
    """10,000 rows in 50 batches or more are enough, however many rows there are."""
    how = Training(max_steps=steps, per_task_batch_size=batch)
    assert bool(schedule_warnings(plan_steps({"huge": 10**6}, how), how)) is is_starved
