"""Task samplers: frequencies against their formulas, and the steps of the deterministic ones."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from mops.config.training import Training
from mops.data.samplers import SAMPLERS
from mops.data.schedule import Schedule, plan_steps

SIZES = {"sentiment": 70, "paraphrase": 230, "similarity": 33}


def schedule(sizes: dict[str, int] = SIZES, **values: Any) -> Schedule:
    return plan_steps(sizes, Training(**{"per_task_batch_size": 10} | values))


def names(found: Schedule) -> list[str]:
    return [task for step in found.steps for task in step]


def is_drawn_by(seen: list[str], weights: dict[str, float]) -> bool:
    """Pearson's chi-square test of frequencies; a right drawing passes in 999 of 1000 seeds."""
    counts, whole = Counter(seen), sum(weights.values())
    expected = {task: len(seen) * weight / whole for task, weight in weights.items()}
    distance = sum((counts[task] - e) ** 2 / e for task, e in expected.items())
    return bool(distance < chi2.ppf(0.999, len(weights) - 1)) and set(counts) <= set(weights)


POWERS = {
    "random": ({}, 0.0),
    "proportional": ({}, 1.0),
    "sqrt": ({}, 0.5),
    "temperature": ({"temperature": 5.0}, 0.2),
}


@pytest.mark.parametrize("order", POWERS)
def test_tasks_are_drawn_by_a_power_of_their_rows(order: str) -> None:
    """By rows, whatever the batch sizes; the same draws do not pass for another power."""
    values, power = POWERS[order]
    sizes = {"sentiment": 3, "paraphrase": 20, "similarity": 7}
    found = schedule(schedule=order, max_steps=20_000, per_task_batch_size=sizes, **values)
    assert all(len(step) == 1 for step in found.steps)
    seen = names(found)
    for other in (0.0, 0.2, 0.5, 1.0):
        weights = {task: n**other for task, n in SIZES.items()}
        assert is_drawn_by(seen, weights) == (other == power)


def test_draws_do_not_depend_on_the_one_before() -> None:
    """The task after each task is drawn by the same chances."""
    seen = names(schedule(schedule="sqrt", max_steps=20_000))
    for task in SIZES:
        after = [b for a, b in pairwise(seen) if a == task]
        assert is_drawn_by(after, {name: n**0.5 for name, n in SIZES.items()})


# ------------------------------------------------------------------ annealed


@pytest.mark.parametrize(
    ("epochs", "powers"),
    [(1, [1.0]), (2, [1.0, 0.2]), (5, [1.0, 0.8, 0.6, 0.4, 0.2]), (1.5, [1.0, 0.2])],
)
def test_annealed_power_per_epoch(epochs: float, powers: list[float]) -> None:
    """1 - 0.8 (e - 1) / (E - 1); a last epoch that is cut short is one of the E."""
    total = round(epochs * 4000)
    found = schedule(schedule="annealed", steps_per_epoch=4000, max_steps=total)
    seen = names(found)
    for n, power in enumerate(powers):
        one = seen[n * 4000 : (n + 1) * 4000]
        assert is_drawn_by(one, {task: size**power for task, size in SIZES.items()})


# ------------------------------------------------------------------ without chance


def test_round_robin_goes_round() -> None:
    found = schedule(schedule="round-robin", max_steps=7)
    assert names(found) == [*SIZES, *SIZES, "sentiment"]


@pytest.mark.parametrize(("share", "alone"), [(0.25, 10), (0.0, 0), (0.9, 36)])
def test_staggered_begins_with_the_largest_alone(share: float, alone: int) -> None:
    found = schedule(schedule="staggered", staggered_share=share, max_steps=40)
    seen = names(found)
    assert seen[:alone] == ["paraphrase"] * alone
    assert seen[alone:] == (list(SIZES) * 14)[: 40 - alone]


# ------------------------------------------------------------------ mixed


def test_mixed_takes_every_row_of_the_union_once_per_pass() -> None:
    """40 rows a step in all; after every pass of 333 rows each task had exactly its own."""
    sizes = {"sentiment": 5, "paraphrase": 25, "similarity": 10}
    found = schedule(schedule="mixed", max_steps=333, per_task_batch_size=sizes)
    assert all(sum(step.values()) == 40 for step in found.steps)
    assert found.rows_before(333) == {task: 40 * size for task, size in SIZES.items()}
    assert found.steps_per_epoch == 9  # 333 / 40


def test_mixed_counts_are_those_of_draws_without_replacement() -> None:
    """The variance of a task's rows in a step is the hypergeometric one."""
    sizes = {"a": 300, "b": 100}
    found = schedule(sizes, schedule="mixed", max_steps=8000, per_task_batch_size=20)
    counts = np.array([step.get("b", 0) for step in found.steps])
    assert counts.mean() == pytest.approx(10.0)
    variance = 40 * 0.25 * 0.75 * (400 - 40) / 399
    assert counts.var() == pytest.approx(variance, rel=0.06)
    assert len(set(counts[:10].tolist())) > 1


# ------------------------------------------------------------------ lengths

EPOCHS = {
    "together": 23,  # a pass over the largest, 230 rows by 10
    "in-turn": 7 + 23 + 4,
    "round-robin": 3 * 23,
    "staggered": 3 * 23,
    "random": 3 * 23,
    "proportional": 34,  # 333 rows by 10
    "annealed": 34,
    "sqrt": 45,  # 23 / (230^.5 / (70^.5 + 230^.5 + 33^.5)) = 44.4
    "temperature": 45,  # the same at T = 2
    "mixed": 12,  # 333 rows by 30
}


@pytest.mark.parametrize("order", SAMPLERS)
def test_length_of_an_epoch_and_of_a_run(order: str) -> None:
    whole = schedule(schedule=order, num_train_epochs=1)
    assert len(whole) == whole.steps_per_epoch == EPOCHS[order]
    assert len(schedule(schedule=order, num_train_epochs=0.5)) == round(len(whole) / 2)
    assert len(schedule(schedule=order, num_train_epochs=3, steps_per_epoch=5)) == 15
    assert len(schedule(schedule=order, num_train_epochs=1e-6)) == 1
    assert len(schedule(schedule=order, max_steps=13)) == 13


# ------------------------------------------------------------------ budgets of tasks


@pytest.mark.parametrize("order", SAMPLERS)
def test_a_task_with_a_budget_has_no_more(order: str) -> None:
    budget = {"sentiment": 4, "paraphrase": 9}
    found = schedule(schedule=order, max_steps=200, task_steps=budget)
    counts = Counter(names(found))
    assert {task: counts[task] for task in budget} == budget
    assert len(found) == 200 and counts["similarity"] > 180 - 4 - 9


# paraphrase to similarity once sentiment has spent its budget
RATIOS = {
    "in-turn": 23 / 4,
    "round-robin": 1.0,
    "staggered": 1.0,
    "random": 1.0,
    "proportional": 230 / 33,
    "sqrt": (230 / 33) ** 0.5,
    "temperature": (230 / 33) ** 0.5,
}


@pytest.mark.parametrize("order", RATIOS)
def test_the_others_go_on_as_if_the_spent_task_were_not_there(order: str) -> None:
    found = schedule(schedule=order, max_steps=6000, task_steps={"sentiment": 5})
    seen = names(found)
    rest = seen[6000 - seen[::-1].index("sentiment") :]
    assert len(rest) > 4000
    assert is_drawn_by(rest, {"paraphrase": RATIOS[order], "similarity": 1.0})


@pytest.mark.parametrize("order", SAMPLERS)
def test_a_run_ends_when_every_budget_is_spent(order: str) -> None:
    found = schedule(schedule=order, max_steps=500, task_steps=dict.fromkeys(SIZES, 6))
    assert Counter(names(found)) == dict.fromkeys(SIZES, 6)


@pytest.mark.parametrize("order", SAMPLERS)
def test_only_named_tasks_are_trained(order: str) -> None:
    found = schedule(schedule=order, train_tasks=["similarity", "sentiment"], max_steps=60)
    assert set(names(found)) == {"sentiment", "similarity"}
    assert found.batches_before(60)["paraphrase"] == 0
    alone = schedule(schedule=order, train_tasks=["similarity"], num_train_epochs=1)
    assert alone.steps == ({"similarity": 10},) * 4
