"""Which steps are measured, and what their rounds mean."""

from __future__ import annotations

from typing import Any

import pytest

from mops.config.training import Stage, Training
from mops.data.schedule import Schedule, plan_steps
from mops.surveys.benchmark.measures import middle_pairs, typical_steps
from mops.surveys.benchmark.timing import settle

SIZES = {"a": 40, "b": 20, "c": 20}


def schedule(**settings: Any) -> Schedule:
    return plan_steps(SIZES, Training(**{"per_task_batch_size": 4, **settings}))


def entry(*steps: float, beside: list[float] | None = None, **more: Any) -> dict[str, Any]:
    """Rounds in which everything takes as long as a step."""
    whole = ("step", "encode", "latency", "batch")
    found = {"planned_steps": 10, "rounds": {what: list(steps) for what in whole}}
    found["rounds"]["encode"] = [0.0] * len(steps)
    if beside:
        found["baseline_rounds"] = dict.fromkeys(whole, beside)
    return found | more


def test_a_machine_that_slows_down_changes_no_ratio() -> None:
    """The candidate takes twice the baseline's time in each round, however long that is."""
    machine = [1.0, 1.1, 3.0, 1.0, 2.0]
    base, other = entry(*machine), entry(*(2 * of for of in machine), beside=machine)
    found = settle({"base": base, "other": other}, "base")
    assert found["base"]["step_seconds"] == pytest.approx(1.1)
    assert found["other"]["step_seconds"] == pytest.approx(2.2)
    assert found["other"]["step_seconds_spread"] == pytest.approx(0.0)
    assert found["base"]["step_seconds_spread"] == pytest.approx(1.0)  # 2.0 - 1.0
    assert found["other"]["noise"] == pytest.approx(1.0 / 1.1)


def test_groups_at_different_times_meet_on_the_baseline_over_all() -> None:
    """The second group met a machine of half the speed."""
    base = entry(1.0, 1.0, 2.0, 2.0, 2.0)
    early, late = entry(3.0, 3.0, beside=[1.0, 1.0]), entry(6.0, 6.0, 6.0, beside=[2.0] * 3)
    found = settle({"base": base, "early": early, "late": late}, "base")
    assert found["early"]["step_seconds"] == found["late"]["step_seconds"] == pytest.approx(6.0)
    assert found["early"]["latency_seconds"] == pytest.approx(6.0)
    assert found["early"]["throughput"] == pytest.approx(32 / 6.0)


def test_training_takes_its_steps_and_what_is_encoded_once() -> None:
    frozen = entry(0.5, 0.5, beside=[1.0, 2.0])
    frozen["rounds"]["encode"] = [4.0, 8.0]  # the machine was half as quick
    found = settle({"base": entry(1.0, 2.0, 1.0), "frozen": frozen}, "base")["frozen"]
    assert found["encode_seconds"] == pytest.approx(4.0)
    assert found["step_seconds"] == pytest.approx((0.5 + 0.25) / 2)
    assert found["train_seconds"] == pytest.approx(10 * 0.375 + 4.0)


def test_without_the_baseline_times_are_as_measured() -> None:
    failed = {"warnings": ["broken"]}
    found = settle({"base": failed, "other": entry(1.0, 3.0, 2.0)}, "base")
    assert found["base"] == failed
    assert found["other"]["step_seconds"] == 2.0
    assert found["other"]["noise"] is None


# ------------------------------------------------------------------ typical steps


def test_pairs_are_as_large_as_two_mean_steps() -> None:
    """The mean is 50; from outside in the pairs have 140, 100 and 60."""
    pairs = middle_pairs({1: 5, 2: 10, 3: 20, 4: 40, 5: 90, 6: 135})
    assert set(pairs[0]) == {2, 5}
    assert middle_pairs({7: 5}) == [(7,)]


def test_steps_of_all_tasks_are_one_kind() -> None:
    (typical,) = typical_steps(schedule(max_steps=30), lambda step: 10 + step)
    assert typical.largest == 29
    assert len(typical.rounds) == 7
    assert len(typical.steps) >= 14  # others in each round
    for weights in typical.rounds:
        assert sum(weights.values()) == pytest.approx(1.0)
        assert sum(10 + step for step in weights) / 2 == pytest.approx(10 + 14.5)


def test_tasks_in_turn_count_as_often_as_they_come() -> None:
    planned = schedule(max_steps=12, schedule="proportional", seed=1)
    (typical,) = typical_steps(planned, lambda step: 10)
    expected = {task: batches / 12 for task, batches in planned.batches_before(12).items()}
    for weights in typical.rounds:
        parts = dict.fromkeys(SIZES, 0.0)
        for step, weight in weights.items():
            (task,) = planned.steps[step]
            parts[task] += weight
        assert parts == pytest.approx(expected)


def test_every_stage_is_measured() -> None:
    stages = (Stage(steps=3, frozen=True), Stage(steps=9))
    found = typical_steps(schedule(stages=stages), lambda step: 10)
    assert [typical.stage.first for typical in found] == [0, 3]
    assert [sum(typical.rounds[0].values()) for typical in found] == pytest.approx([0.25, 0.75])
