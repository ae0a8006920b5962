"""The cost pass: in turns, resumable, and nothing of it is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mops.errors import RunError, UsageError
from mops.surveys.benchmark import timing
from mops.surveys.benchmark.pool import Child
from mops.surveys.benchmark.timing import measure_costs
from mops.surveys.ledger import Candidate
from mops.training.prepare import peak_memory
from running import SOURCE, run_python, world

MEASURED = ("step_seconds", "latency_seconds", "throughput", "train_seconds", "peak_memory_bytes")


def candidate(plan: str, **settings: Any) -> Candidate:
    return Candidate(plan, {"plan": plan}, world().recipe(plan, **settings))


class Noted:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)


# ------------------------------------------------------------------ with real children


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A survey's folder and its costs: three plans and one that fits no encoder."""
    folder = tmp_path_factory.mktemp("survey")
    large = np.ones(400 * 2**17)  # 400 MiB that are not the children's
    assert peak_memory() > large.nbytes
    plans = ("shared", "hybrid:99", "separate", "frozen+late:SIS")
    return folder, measure_costs([candidate(plan) for plan in plans], folder, "shared", Noted())


def test_every_candidate_is_measured(measured: tuple[Path, dict[str, Any]]) -> None:
    folder, costs = measured
    assert json.loads((folder / "costs.json").read_text("utf-8")) == costs
    assert sorted(path.name for path in folder.iterdir()) == ["costs.json", "locks"]
    for name in ("shared", "separate", "frozen+late:SIS"):
        assert all(costs[name][key] > 0 for key in MEASURED)
        assert costs[name]["warnings"] == []
        assert len(costs[name]["rounds"]["step"]) == 7
        steps = 8 * costs[name]["step_seconds"]
        assert costs[name]["train_seconds"] == steps + costs[name]["encode_seconds"]
    assert costs["separate"]["parameters"] > 2.5 * costs["shared"]["parameters"]


def test_memory_is_that_of_the_child_alone(measured: tuple[Path, dict[str, Any]]) -> None:
    """Not of the process that started it, as ru_maxrss would have it on Linux."""
    peaks = [measured[1][plan]["peak_memory_bytes"] for plan in ("shared", "separate")]
    assert all(50 * 2**20 < peak < peak_memory() - 200 * 2**20 for peak in peaks)


def test_costs_agree_with_a_run(measured: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """What follows from the plan is what a run writes down; the bundle is as large as a bundle."""
    import mops

    run = mops.train(world().recipe("separate"), tmp_path / "run")
    costs = measured[1]["separate"]
    for key in ("parameters", "parameters_by_owner", "weight_bytes", "flops_per_example"):
        assert costs[key] == getattr(run.record.costs, key)
    assert costs["disk_bytes"] == pytest.approx(run.record.costs.bundle_bytes, rel=0.2)


def test_only_what_is_frozen_is_encoded(measured: tuple[Path, dict[str, Any]]) -> None:
    """All different sequences that eight steps of four rows a task take."""
    shared, frozen = measured[1]["shared"], measured[1]["frozen+late:SIS"]
    assert shared["encode_seconds"] == shared["encode_sequences"] == 0
    assert frozen["encode_seconds"] > 0
    assert 8 < frozen["encode_measured"] < frozen["encode_sequences"] <= 32 + 30 + 20
    assert frozen["trained_parameters"] < frozen["parameters"] / 2


def test_a_broken_candidate_is_a_warning(measured: tuple[Path, dict[str, Any]]) -> None:
    costs = measured[1]["hybrid:99"]
    assert "step_seconds" not in costs
    assert "99" in costs["warnings"][0] and "not measured" in costs["warnings"][0]


def test_children_end_with_who_started_them(tmp_path: Path) -> None:
    """The parent is killed while a child prepares; the child is gone soon after."""
    code = (
        "import sys, time; from pathlib import Path; from mops.surveys.benchmark.pool import Child;"
        f"child = Child(None, Path({str(tmp_path / 'scratch')!r}));"
        "print(child.process.pid, flush=True); time.sleep(60)"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.send_signal(signal.SIGKILL)
    assert soon(lambda: not is_alive(child))


def is_alive(number: int) -> bool:
    """Neither gone nor a zombie that nobody has waited for."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text("utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def soon(is_so: Callable[[], bool]) -> bool:
    stop = time.monotonic() + 20
    while time.monotonic() < stop and not is_so():
        time.sleep(0.05)
    return is_so()


# ------------------------------------------------------------------ with children that only say so


class Tame:
    """Answers as a child does; its plan says when it fails."""

    started: list[str] = []
    alive: set[str] = set()
    most = 0
    fails: dict[str, int] = {}  # plan -> after how many rounds
    interrupt: str = ""

    def __init__(self, one: Candidate, scratch: Path) -> None:
        self.name, self.rounds = one.name, 0
        Tame.started.append(self.name)
        Tame.alive.add(self.name)
        Tame.most = max(Tame.most, len(Tame.alive))

    def begin(self) -> dict[str, Any]:
        return {"planned_steps": 10}

    def ask(self, word: str) -> dict[str, Any]:
        if word == "warm":
            return {"peak_memory_bytes": 1000}
        if Tame.interrupt == self.name:
            raise KeyboardInterrupt
        self.rounds += 1
        if self.rounds > Tame.fails.get(self.name, 1000):
            raise RunError("out of breath")
        peak = 2000 + self.rounds
        return {"step": 1.0, "encode": 0.0, "latency": 0.1, "batch": 0.2, "peak": peak}

    def stop(self) -> None:
        Tame.alive.discard(self.name)


@pytest.fixture
def tame(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Tame]]:
    Tame.started, Tame.alive, Tame.most, Tame.fails, Tame.interrupt = [], set(), 0, {}, ""
    monkeypatch.setattr(timing, "Child", Tame)
    yield Tame
    assert not Tame.alive


PLANS = ("shared", "separate", "hybrid:1", "hybrid:2", "late:S", "late:I")


def test_at_most_four_are_alive_and_the_baseline_is_in_every_group(
    tame: type[Tame], tmp_path: Path
) -> None:
    costs = measure_costs([candidate(plan) for plan in PLANS], tmp_path, "hybrid:1", Noted())
    assert tame.started[0] == "hybrid:1"
    assert sorted(tame.started) == sorted(PLANS)
    assert tame.most == 4
    assert len(costs["hybrid:1"]["rounds"]["step"]) == 14
    assert {costs[plan]["peak_memory_bytes"] for plan in PLANS} == {2007}


def test_where_memory_is_short_two_are_alive(
    tame: type[Tame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "free_memory", lambda: 1400.0)
    measure_costs([candidate(plan) for plan in PLANS], tmp_path, "shared", Noted())
    assert tame.most == 2


def test_what_is_known_is_not_measured_again(tame: type[Tame], tmp_path: Path) -> None:
    some = [candidate(plan) for plan in PLANS[:3]]
    first = measure_costs(some, tmp_path, "shared", Noted())
    tame.started = []
    told = Noted()
    assert measure_costs(some, tmp_path, "shared", told) == first
    assert tame.started == told.phases == []


def test_what_is_new_or_changed_is_measured_beside_the_baseline(
    tame: type[Tame], tmp_path: Path
) -> None:
    measure_costs([candidate(plan) for plan in PLANS[:3]], tmp_path, "shared", Noted())
    tame.started = []
    changed = candidate("separate", training__per_task_batch_size=2)
    now = [candidate("shared"), changed, candidate("hybrid:1"), candidate("late:S")]
    costs = measure_costs(now, tmp_path, "shared", Noted())
    assert tame.started == ["shared", "separate", "late:S"]
    assert len(costs["shared"]["rounds"]["step"]) == 14
    assert costs["shared"]["peak_memory_bytes"] == 2007  # as before: the others have as few steps


def test_another_baseline_or_another_machine_makes_all_new(
    tame: type[Tame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [candidate(plan) for plan in PLANS[:2]]
    measure_costs(some, tmp_path, "shared", Noted())
    measure_costs(some, tmp_path, "separate", Noted())
    assert tame.started == ["shared", "separate", "separate", "shared"]
    monkeypatch.setattr(timing, "processor_name", lambda: "an abacus")
    measure_costs(some, tmp_path, "separate", Noted())
    assert tame.started[4:] == ["separate", "shared"]


def test_a_child_that_dies_in_its_turn_does_not_stop_the_others(
    tame: type[Tame], tmp_path: Path
) -> None:
    tame.fails = {"separate": 3}
    costs = measure_costs([candidate(plan) for plan in PLANS[:3]], tmp_path, "shared", Noted())
    assert costs["separate"]["warnings"] == ["its cost was not measured: out of breath"]
    assert costs["hybrid:1"]["step_seconds"] == 1.0
    tame.fails, tame.started = {}, []  # a second call tries it again
    again = measure_costs([candidate(plan) for plan in PLANS[:3]], tmp_path, "shared", Noted())
    assert tame.started == ["shared", "separate"]
    assert again["separate"]["step_seconds"] == 1.0 and not again["separate"]["warnings"]


def test_without_its_baseline_the_pass_goes_on(tame: type[Tame], tmp_path: Path) -> None:
    tame.fails = {"shared": 2}
    costs = measure_costs([candidate(plan) for plan in PLANS], tmp_path, "shared", Noted())
    assert "out of breath" in costs["shared"]["warnings"][0]
    assert costs["late:I"]["step_seconds"] == 1.0
    assert "baseline was not measured" in costs["late:I"]["warnings"][0]
    tame.fails, tame.started = {}, []  # such times are no comparison: a second call takes all
    again = measure_costs([candidate(plan) for plan in PLANS], tmp_path, "shared", Noted())
    assert sorted(tame.started) == sorted(PLANS)
    assert all(again[plan]["warnings"] == [] for plan in PLANS)


def test_after_ctrl_c_nobody_is_left_and_known_groups_are_kept(
    tame: type[Tame], tmp_path: Path
) -> None:
    tame.interrupt = "late:I"
    with pytest.raises(KeyboardInterrupt):
        measure_costs([candidate(plan) for plan in PLANS], tmp_path, "shared", Noted())
    assert not tame.alive
    tame.interrupt, tame.started = "", []
    measure_costs([candidate(plan) for plan in PLANS], tmp_path, "shared", Noted())
    assert tame.started == ["shared", "late:S", "late:I"]


def test_the_baseline_must_be_a_candidate(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no candidate; there are shared"):
        measure_costs([candidate("shared")], tmp_path, "share", Noted())


def test_who_asks_needs_no_torch() -> None:
    code = "import sys, mops.surveys.benchmark.timing; print('torch' in sys.modules)"
    assert run_python("-c", code).stdout == "False\n"


def test_a_child_says_why_it_ended(tmp_path: Path) -> None:
    child = Child(candidate("shared"), tmp_path / "scratch")
    child.process.kill()
    with pytest.raises(RunError, match="signal 9"):
        child.begin()
