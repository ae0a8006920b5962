"""The schedule: frequencies, passes and order, all known before the first step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mops.config.training import Stage, Training
from mops.data.samplers import SAMPLERS
from mops.data.schedule import Place, Schedule, plan_steps
from mops.errors import RecipeError

SIZES = {"sentiment": 70, "paraphrase": 230, "similarity": 33}
DRAWN = ("random", "proportional", "sqrt", "temperature", "mixed", "annealed")


def schedule(sizes: dict[str, int] = SIZES, **values: Any) -> Schedule:
    return plan_steps(sizes, Training(**{"per_task_batch_size": 10} | values))


def counts(found: Schedule) -> Counter[str]:
    return Counter(task for step in found.steps for task in step)


def walk(found: Schedule) -> Iterator[dict[str, list[Place]]]:
    """What a run takes, step by step."""
    seen = dict.fromkeys(found.sizes, 0)
    for step in found.steps:
        yield {task: found.places(task, seen[task], rows) for task, rows in step.items()}
        for task, rows in step.items():
            seen[task] += rows


def passes_of(found: Schedule, task: str) -> list[list[int]]:
    """The rows of a task in the order of the run, cut into whole passes."""
    flat = [place.row for chosen in walk(found) for place in chosen.get(task, [])]
    size = found.sizes[task]
    return [flat[n * size : (n + 1) * size] for n in range(len(flat) // size)]


@settings(deadline=None, database=None, max_examples=25)
@given(size=st.integers(1, 40), batch=st.integers(1, 50), seed=st.integers(0, 5))
def test_every_row_exactly_once_per_pass(size: int, batch: int, seed: int) -> None:
    """Also where batches do not divide the rows: a batch may hold the end of one pass and the
    start of the next."""
    found = schedule(
        {"t": size}, per_task_batch_size=batch, seed=seed, max_steps=-(-3 * size // batch)
    )
    seen = passes_of(found, "t")
    assert len(seen) >= 3
    assert all(sorted(one) == list(range(size)) for one in seen)
    assert all(len(chosen["t"]) == batch for chosen in walk(found))
    flat = [place.number for chosen in walk(found) for place in chosen["t"]]
    assert flat == [place // size for place in range(len(flat))]


@pytest.mark.parametrize("order", SAMPLERS)
def test_passes_are_whole_and_shuffled_anew_in_every_order(order: str) -> None:
    found = schedule(schedule=order, max_steps=300)
    for task, size in SIZES.items():
        seen = passes_of(found, task)
        assert len(seen) >= 2, order
        assert all(sorted(one) == list(range(size)) for one in seen)
        assert len(set(map(tuple, seen))) == len(seen) and sorted(seen[0]) != seen[0]


def test_tasks_of_the_same_size_have_orders_of_their_own() -> None:
    found = schedule({"one": 50, "other": 50}, num_train_epochs=1)
    assert passes_of(found, "one") != passes_of(found, "other")


def test_together_has_every_task_in_every_step() -> None:
    found = schedule(schedule="together", num_train_epochs=2)
    assert found.steps_per_epoch == 23  # the largest task's pass
    assert found.steps == (dict.fromkeys(SIZES, 10),) * 46
    assert found.rows_before(46) == dict.fromkeys(SIZES, 460)
    assert found.rows_before(3) == dict.fromkeys(SIZES, 30)


def test_in_turn_gives_whole_passes_one_after_the_other() -> None:
    found = schedule(schedule="in-turn", num_train_epochs=2)
    epoch = ["sentiment"] * 7 + ["paraphrase"] * 23 + ["similarity"] * 4
    assert [task for (task,) in found.steps] == epoch * 2


def test_in_turn_shares_a_shorter_epoch() -> None:
    found = schedule(schedule="in-turn", steps_per_epoch=17, max_steps=40)
    assert len(found) == 40
    first = [task for (task,) in found.steps[:17]]
    assert first == sorted(first, key=list(SIZES).index)  # blocks, never back and forth
    assert [first.count(task) for task in SIZES] == [4, 11, 2]
    assert found.steps[17:34] == found.steps[:17]


@pytest.mark.parametrize("order", SAMPLERS)
def test_length_of_a_run(order: str) -> None:
    assert len(schedule(schedule=order, max_steps=13)) == 13
    whole = schedule(schedule=order, num_train_epochs=1)
    assert len(schedule(schedule=order, num_train_epochs=0.5)) == round(len(whole) / 2)
    assert len(schedule(schedule=order, num_train_epochs=3, steps_per_epoch=5)) == 15
    assert len(schedule(schedule=order, num_train_epochs=1e-6)) == 1


def test_batch_sizes_per_task() -> None:
    sizes = {"sentiment": 7, "paraphrase": 23, "similarity": 33}
    found = schedule(per_task_batch_size=sizes)
    assert found.steps[3] == sizes
    assert {task: len(places) for task, places in next(walk(found)).items()} == sizes
    assert found.steps_per_epoch == 10


@pytest.mark.parametrize("order", SAMPLERS)
def test_same_seed_same_order(order: str) -> None:
    one, two = (schedule(schedule=order, max_steps=60, seed=3) for _ in range(2))
    other = schedule(schedule=order, max_steps=60, seed=4)
    assert one == two
    assert list(walk(one)) == list(walk(two)) != list(walk(other))
    assert (one.steps != other.steps) == (order in DRAWN)


@pytest.mark.parametrize("order", SAMPLERS)
def test_resume_needs_only_the_number_of_the_step(order: str) -> None:
    """Walking from the start and jumping to a step give the same rows there."""
    found = schedule(schedule=order, max_steps=50)
    seen = list(walk(found))
    for step in (0, 1, 17, 49):
        before = found.rows_before(step)
        resumed = {t: found.places(t, before[t], n) for t, n in found.steps[step].items()}
        assert resumed == seen[step]
    assert found.batches_before(50) == {task: counts(found)[task] for task in SIZES}
    for task in SIZES:
        assert found.rows_before(50)[task] == sum(len(chosen.get(task, [])) for chosen in seen)


def test_a_step_is_scaled_by_its_rows() -> None:
    """A whole batch counts 1; in `mixed` every row of a task counts 1 / its batch size."""
    found = schedule(schedule="mixed", max_steps=5)
    assert found.scale(2) == {task: rows / 10 for task, rows in found.steps[2].items()}
    for order in set(SAMPLERS) - {"mixed"}:
        assert set(schedule(schedule=order, max_steps=5).scale(4).values()) == {1.0}


def test_the_third_batches_are_counted_from_the_start_of_a_stage() -> None:
    found = schedule(
        schedule="round-robin", stages=[{"steps": 12}, {"steps": 7, "tasks": ["similarity"]}]
    )
    assert found.nth_batches(found.stages[0], 3) == {
        6: ("sentiment",), 7: ("paraphrase",), 8: ("similarity",)
    }  # fmt: skip
    assert found.nth_batches(found.stages[1], 3) == {14: ("similarity",)}
    together = schedule(max_steps=5)
    assert together.nth_batches(together.stages[0], 3) == {2: tuple(SIZES)}


def test_more_steps_than_can_be_planned_are_refused() -> None:
    with pytest.raises(RecipeError, match="has 200,000,000 steps or more; allowed: 2,000,000"):
        plan_steps({"a": 3200}, Training(num_train_epochs=1e6))
    stages = tuple(Stage(steps=count) for count in (3, 2_000_000))
    with pytest.raises(RecipeError, match="has 2,000,003 steps or more"):
        plan_steps({"a": 3200}, Training(stages=stages))
