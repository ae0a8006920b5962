"""The schedule: frequencies, passes and order, all known before the first step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mops.data.schedule import Schedule, plan_steps
from mops.settings import Training

SIZES = {"sentiment": 70, "paraphrase": 230, "similarity": 33}
ORDERS = ("together", "proportional", "in-turn")


def schedule(sizes: dict[str, int] = SIZES, **values: Any) -> Schedule:
    return plan_steps(sizes, Training(**{"per_task_batch_size": 10} | values))


def counts(found: Schedule) -> Counter[str]:
    return Counter(task for step in found.steps for task in step)


def rows_of(found: Schedule, task: str, passes: int) -> list[list[int]]:
    """The rows of a task, pass by pass."""
    size, batch = found.sizes[task], found.batch_sizes[task]
    flat = [row for k in range(-(-passes * size // batch)) for row in found.rows(task, k)]
    return [flat[n * size : (n + 1) * size] for n in range(passes)]


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(size=st.integers(1, 40), batch=st.integers(1, 50), seed=st.integers(0, 5))
def test_every_row_exactly_once_per_pass(size: int, batch: int, seed: int) -> None:
    """Also where batches do not divide the rows: a batch may hold the end of one pass and the
    start of the next."""
    found = schedule({"t": size}, per_task_batch_size=batch, seed=seed)
    for one in rows_of(found, "t", 3):
        assert sorted(one) == list(range(size))
    assert all(len(found.rows("t", k)) == batch for k in range(4))


def test_passes_are_shuffled_anew() -> None:
    found = schedule()
    one, two, three = rows_of(found, "paraphrase", 3)
    assert one != two != three != one
    assert one != sorted(one)
    other_task = schedule({"other": 230}).rows("other", 0)
    assert found.rows("paraphrase", 0) != other_task


def test_together_has_every_task_in_every_step() -> None:
    found = schedule(schedule="together", num_train_epochs=2)
    assert found.steps_per_epoch == 23  # the largest task's pass
    assert found.steps == (tuple(SIZES),) * 46
    assert found.passes("paraphrase", 46) == 2.0
    assert found.passes("similarity", 46) == pytest.approx(460 / 33)


def test_proportional_draws_by_size() -> None:
    """Over many steps a task's share of them is its share of the batches, within 4 sigma."""
    total = 20_000
    found = schedule(schedule="proportional", max_steps=total)
    assert found.steps_per_epoch == 7 + 23 + 4
    for task, batches in {"sentiment": 7, "paraphrase": 23, "similarity": 4}.items():
        share = batches / 34
        sigma = (total * share * (1 - share)) ** 0.5
        assert abs(counts(found)[task] - total * share) < 4 * sigma
    assert all(len(step) == 1 for step in found.steps)


def test_in_turn_gives_whole_passes_one_after_the_other() -> None:
    found = schedule(schedule="in-turn", num_train_epochs=2)
    epoch = [("sentiment",)] * 7 + [("paraphrase",)] * 23 + [("similarity",)] * 4
    assert list(found.steps) == epoch * 2


def test_in_turn_shares_a_shorter_epoch() -> None:
    found = schedule(schedule="in-turn", steps_per_epoch=17, max_steps=40)
    assert len(found) == 40
    first = [task for (task,) in found.steps[:17]]
    assert first == sorted(first, key=list(SIZES).index)  # blocks, never back and forth
    assert [first.count(task) for task in SIZES] == [4, 11, 2]
    assert found.steps[17:34] == found.steps[:17]


@pytest.mark.parametrize("order", ORDERS)
def test_length_of_a_run(order: str) -> None:
    assert len(schedule(schedule=order, max_steps=13)) == 13
    whole = schedule(schedule=order, num_train_epochs=1)
    assert len(schedule(schedule=order, num_train_epochs=0.5)) == round(len(whole) / 2)
    assert len(schedule(schedule=order, num_train_epochs=3, steps_per_epoch=5)) == 15
    assert len(schedule(schedule=order, num_train_epochs=1e-6)) == 1


def test_an_epoch_covers_the_largest_task() -> None:
    """Whatever the order, one epoch without chance gives its every row at least once."""
    for order in ("together", "in-turn"):
        found = schedule(schedule=order, num_train_epochs=1)
        assert found.passes("paraphrase", counts(found)["paraphrase"]) >= 1.0


def test_batch_sizes_per_task() -> None:
    sizes = {"sentiment": 7, "paraphrase": 23, "similarity": 33}
    found = schedule(per_task_batch_size=sizes)
    assert {task: len(found.rows(task, 3)) for task in SIZES} == sizes
    assert found.steps_per_epoch == 10


@pytest.mark.parametrize("order", ORDERS)
def test_same_seed_same_order(order: str) -> None:
    one, two = (schedule(schedule=order, max_steps=60, seed=3) for _ in range(2))
    other = schedule(schedule=order, max_steps=60, seed=4)
    assert one == two
    for task in SIZES:
        assert [one.rows(task, k) for k in range(30)] == [two.rows(task, k) for k in range(30)]
        assert [one.rows(task, k) for k in range(30)] != [other.rows(task, k) for k in range(30)]
    assert (one.steps != other.steps) == (order == "proportional")


@pytest.mark.parametrize("order", ORDERS)
def test_resume_needs_only_the_number_of_the_step(order: str) -> None:
    """Walking from the start and jumping to a step give the same rows there."""
    found = schedule(schedule=order, max_steps=50)
    walked: Counter[str] = Counter()
    seen = []
    for tasks in found.steps:
        seen.append({task: found.rows(task, walked[task]) for task in tasks})
        walked.update(tasks)
    for step in (0, 1, 17, 49):
        before = found.batches_before(step)
        resumed = {task: found.rows(task, before[task]) for task in found.steps[step]}
        assert resumed == seen[step]
    assert found.batches_before(50) == {task: walked[task] for task in SIZES}
