"""The cost pass: rounds become times, groups are resumable, nothing is left behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from executing import RecordingWatcher, candidate

from mops.errors import RunError
from mops.surveys import benchmark
from mops.surveys.benchmark import measure_costs, settle
from mops.surveys.ledger import Candidate
from running import run_python

WHOLE = ("step", "encode", "latency", "batch")


def entry(*steps: float, group: int = 0, **more: float) -> dict[str, Any]:
    """Rounds in which everything but encoding takes as long as a step."""
    rest = {"encode": 0.0, "peak": 1, "clock": 1.0, "waited": 0.0, **more}
    rounds = [
        {"group": group, "round": n, **dict.fromkeys(WHOLE, step), **rest}
        for n, step in enumerate(steps)
    ]
    return {"planned_steps": 10, "rounds": rounds}


# ------------------------------------------------------------------ from rounds to times


def test_a_machine_that_slows_down_changes_no_ratio() -> None:
    """The candidate takes twice the baseline's time in each round, however long that is."""
    machine = [1.0, 1.1, 3.0, 1.0, 2.0]
    costs = settle({"base": entry(*machine), "other": entry(*(2 * x for x in machine))}, "base")
    assert costs["base"]["step_seconds"] == pytest.approx(1.1)
    assert costs["other"]["step_seconds"] == pytest.approx(2.2)
    assert costs["other"]["noise"] == pytest.approx(1.0 / 1.1)  # (2.0 - 1.0) / median


def test_groups_at_different_times_are_scaled_to_the_baseline_of_all_groups() -> None:
    """The second group met a machine of half the speed."""
    base = entry(1.0, 1.0)
    base["rounds"] += entry(2.0, 2.0, 2.0, group=1)["rounds"]
    early, late = entry(3.0, 3.0), entry(6.0, 6.0, 6.0, group=1)
    costs = settle({"base": base, "early": early, "late": late}, "base")
    assert costs["early"]["step_seconds"] == costs["late"]["step_seconds"] == pytest.approx(6.0)
    assert costs["early"]["latency_seconds"] == pytest.approx(6.0)
    assert costs["early"]["throughput"] == pytest.approx(32 / 6.0)


def test_latencies_of_single_tasks_are_scaled_like_that_of_all() -> None:
    """The machine was half as fast in the candidate's second round."""
    base, other = entry(1.0, 2.0, 1.0), entry(3.0, 6.0, 3.0)
    for one, seconds in zip(other["rounds"], (0.5, 1.0, 0.5), strict=True):
        one["latency/a"] = seconds
    costs = settle({"base": base, "other": other}, "base")
    assert costs["other"]["latency_by_task"] == pytest.approx({"a": 0.5})
    assert costs["base"]["latency_by_task"] == {}


def test_training_takes_its_steps_and_one_encoding() -> None:
    frozen = entry(0.5, 0.5)
    for one, seconds in zip(frozen["rounds"], (4.0, 8.0), strict=True):
        one["encode"] = seconds  # the machine was half as fast
    costs = settle({"base": entry(1.0, 2.0, 1.0), "frozen": frozen}, "base")["frozen"]
    assert costs["encode_seconds"] == pytest.approx(4.0)
    assert costs["step_seconds"] == pytest.approx((0.5 + 0.25) / 2)
    assert costs["train_seconds"] == pytest.approx(10 * 0.375 + 4.0)


def test_without_the_baseline_times_are_as_measured() -> None:
    failed: dict[str, Any] = {"warnings": ["broken"], "rounds": []}
    costs = settle({"base": failed, "other": entry(1.0, 3.0, 2.0)}, "base")
    assert costs["base"] == failed
    assert costs["other"]["step_seconds"] == 2.0
    assert costs["other"]["noise"] is None


# ------------------------------------------------------------------ a pass of fake workers


class FakeWorker:
    """Answers like a worker; class attributes say when it fails."""

    started: list[str] = []
    alive: set[str] = set()
    most = 0
    fails: dict[str, int] = {}  # plan -> after how many rounds
    interrupt = ""
    waited = 0.0  # of each second

    def __init__(self, one: Candidate, scratch: Path) -> None:
        self.candidate, self.rounds = one, -1  # the first answer is no round
        FakeWorker.started.append(one.name)
        FakeWorker.alive.add(one.name)
        FakeWorker.most = max(FakeWorker.most, len(FakeWorker.alive))

    def measure(self) -> dict[str, Any]:
        name = self.candidate.name
        self.rounds += 1
        if self.rounds == 0:
            return {"planned_steps": 10, "peak_memory_bytes": 1000}
        if FakeWorker.interrupt == name:
            raise KeyboardInterrupt
        if self.rounds > FakeWorker.fails.get(name, 1000):
            raise RunError("out of memory")
        times = {"step": 1.0, "encode": 0.0, "latency": 0.1, "batch": 0.2}
        return times | {"peak": 2000 + self.rounds, "clock": 1.0, "waited": FakeWorker.waited}

    def stop(self) -> None:
        FakeWorker.alive.discard(self.candidate.name)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeWorker]]:
    fresh = {"started": [], "alive": set(), "most": 0, "fails": {}, "interrupt": "", "waited": 0.0}
    for name, value in fresh.items():
        setattr(FakeWorker, name, value)
    monkeypatch.setattr(benchmark, "BenchmarkWorker", FakeWorker)
    yield FakeWorker
    assert not FakeWorker.alive


PLANS = ("shared", "separate", "hybrid:1", "hybrid:2", "late:S", "late:I")


def measure(
    folder: Path, *plans: str, baseline: str = "shared", watcher: RecordingWatcher | None = None
) -> dict[str, Any]:
    candidates = [candidate(plan) for plan in plans]
    return measure_costs(candidates, folder, baseline, watcher or RecordingWatcher())


def test_at_most_three_are_alive_and_the_baseline_is_in_every_group(
    fake: type[FakeWorker], tmp_path: Path
) -> None:
    watcher = RecordingWatcher()
    costs = measure(tmp_path, *PLANS, baseline="hybrid:1", watcher=watcher)
    assert fake.started[0] == "hybrid:1"
    assert sorted(fake.started) == sorted(PLANS)
    assert fake.most == 3
    assert len(costs["hybrid:1"]["rounds"]) == 21
    assert {costs[plan]["peak_memory_bytes"] for plan in PLANS} == {2007}
    assert watcher.phases[1].endswith("2 of 5 candidates done")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["costs.json", "locks"]


def test_only_new_and_changed_candidates_are_measured(
    fake: type[FakeWorker], tmp_path: Path
) -> None:
    first = measure(tmp_path, *PLANS[:3])
    fake.started, watcher = [], RecordingWatcher()
    assert measure(tmp_path, *PLANS[:3], watcher=watcher) == first
    assert fake.started == watcher.phases == []
    changed = candidate("separate", training__per_task_batch_size=2)
    now = [candidate("shared"), changed, candidate("hybrid:1"), candidate("late:S")]
    costs = measure_costs(now, tmp_path, "shared", RecordingWatcher())
    assert fake.started == ["shared", "separate", "late:S"]
    assert len(costs["shared"]["rounds"]) == 14
    assert costs["shared"]["peak_memory_bytes"] == 2007  # after as few steps as the others


def test_another_baseline_or_machine_invalidates_all(
    fake: type[FakeWorker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(tmp_path, *PLANS[:2])
    measure(tmp_path, *PLANS[:2], baseline="separate")
    assert fake.started == ["shared", "separate", "separate", "shared"]
    monkeypatch.setattr(benchmark, "processor_name", lambda: "an abacus")
    measure(tmp_path, *PLANS[:2], baseline="separate")
    assert fake.started[4:] == ["separate", "shared"]


def test_a_worker_that_dies_in_a_round_does_not_stop_the_others(
    fake: type[FakeWorker], tmp_path: Path
) -> None:
    fake.fails = {"separate": 3}
    costs = measure(tmp_path, *PLANS[:3])
    assert costs["separate"]["warnings"] == ["its cost was not measured: out of memory"]
    assert "step_seconds" not in costs["separate"]
    assert costs["hybrid:1"]["step_seconds"] == 1.0
    fake.fails, fake.started = {}, []  # a second call tries it again
    again = measure(tmp_path, *PLANS[:3])
    assert fake.started == ["shared", "separate"]
    assert again["separate"]["step_seconds"] == 1.0 and not again["separate"]["warnings"]


def test_without_its_baseline_the_pass_goes_on(fake: type[FakeWorker], tmp_path: Path) -> None:
    fake.fails = {"shared": 2}
    costs = measure(tmp_path, *PLANS)
    assert "out of memory" in costs["shared"]["warnings"][0]
    assert costs["late:I"]["step_seconds"] == 1.0
    assert "baseline was not measured" in costs["late:I"]["warnings"][0]
    fake.fails, fake.started = {}, []  # such times are no comparison: a second call takes all
    again = measure(tmp_path, *PLANS)
    assert sorted(fake.started) == sorted(PLANS)
    assert all(again[plan]["warnings"] == [] for plan in PLANS)


def test_after_ctrl_c_no_process_is_left_and_finished_groups_are_kept(
    fake: type[FakeWorker], tmp_path: Path
) -> None:
    fake.interrupt = "late:I"
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, *PLANS)
    assert not fake.alive
    fake.interrupt, fake.started = "", []
    measure(tmp_path, *PLANS)
    assert fake.started == ["shared", "late:I"]


@pytest.mark.parametrize(("waited", "rounds"), [(0.1, 7), (0.5, 5), (0.7, 3)])
def test_on_a_busy_machine_there_are_fewer_rounds(
    fake: type[FakeWorker], tmp_path: Path, waited: float, rounds: int
) -> None:
    """The pass takes at most about a third longer than on an idle machine, or three rounds."""
    fake.waited, watcher = waited, RecordingWatcher()
    costs = measure(tmp_path, "shared", "separate", watcher=watcher)
    assert len(costs["separate"]["rounds"]) == rounds
    assert costs["separate"]["waited"] == pytest.approx(waited)
    assert any(f"after {rounds} of 7 rounds" in note for note in watcher.notes) == (rounds < 7)


def test_the_pass_itself_needs_no_torch() -> None:
    code = "import sys, mops.surveys.benchmark; print('torch' in sys.modules)"
    assert run_python("-c", code).stdout == "False\n"


def test_the_caller_s_environment_and_program_come_back() -> None:
    before = dict(os.environ), sys.modules["__main__"]
    with benchmark.apart_from_caller():
        assert (dict(os.environ), sys.modules["__main__"]) != before
    assert (dict(os.environ), sys.modules["__main__"]) == before


def test_costs_are_written_as_returned(fake: type[FakeWorker], tmp_path: Path) -> None:
    costs = measure(tmp_path, *PLANS[:2])
    assert json.loads((tmp_path / "costs.json").read_text("utf-8")) == costs
