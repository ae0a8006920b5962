"""Energy: the counters of the processors, and what a run and a cost pass say of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import mops
from mops.surveys.benchmark import settle
from mops.surveys.benchmark_worker import CandidateBenchmark
from mops.training import meters
from mops.training.meters import read_energy, start_energy
from running import world

RANGE = 262_143_328_850  # microjoules of a usual counter


def write_counters(folder: Path, **counts: int) -> None:
    """`p0=5` is the counter of processor 0; `p0_0=3` that of a part of it."""
    for name, count in counts.items():
        own = folder / f"intel-rapl:{name[1:].replace('_', ':')}"
        own.mkdir(exist_ok=True)
        (own / "energy_uj").write_text(f"{count}\n", "utf-8")
        (own / "max_energy_range_uj").write_text(f"{RANGE}\n", "utf-8")


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    world()
    folder = tmp_path / "powercap"
    folder.mkdir()
    (folder / "intel-rapl").mkdir()
    monkeypatch.setattr(meters, "COUNTERS", folder)
    return folder


def test_energy_is_that_of_all_processors_and_not_of_their_parts(counters: Path) -> None:
    write_counters(counters, p0=1_000_000, p1=5_000_000, p0_0=0)
    joules = start_energy()
    assert joules() == 0
    write_counters(counters, p0=3_500_000, p1=6_000_000, p0_0=2_000_000)
    assert joules() == pytest.approx(3.5)


def test_a_counter_that_wraps_around_goes_on(counters: Path) -> None:
    write_counters(counters, p0=RANGE - 1_000_000)
    joules = start_energy()
    write_counters(counters, p0=500_000)
    assert joules() == pytest.approx(1.5)


def test_what_cannot_be_read_is_unknown(counters: Path) -> None:
    assert math.isnan(start_energy()()) and read_energy() == {}
    write_counters(counters, p0=1)
    joules = start_energy()
    (counters / "intel-rapl:0" / "energy_uj").write_text("no number", "utf-8")
    assert math.isnan(joules())


def test_a_run_adds_up_its_steps(
    counters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that grows by a joule at every reading: one for each step."""
    write_counters(counters, p0=0)
    readings = iter(range(10**6))
    known = {counters / "intel-rapl:0": 0}
    monkeypatch.setattr(
        meters, "read_energy", lambda: {own: 10**6 * next(readings) for own in known}
    )
    run = mops.train(world().recipe(), tmp_path / "run")
    assert run.record.costs.train_joules == run.record.train_info.steps == 8
    assert mops.read_record(run.folder / "record.json") == run.record


def test_without_counters_nothing_is_claimed(counters: Path, tmp_path: Path) -> None:
    run = mops.train(world().recipe(training__max_steps=2), tmp_path / "run")
    stored = json.loads((run.folder / "record.json").read_text("utf-8"))
    assert "train_joules" not in stored["costs"]
    assert run.record.costs.train_joules is None
    assert mops.read_record(run.folder / "record.json") == run.record
    benchmark = CandidateBenchmark(world().recipe(), tmp_path)
    benchmark.warm()
    assert "watts" not in benchmark.round()


def test_a_cost_pass_measures_the_power_of_training(
    counters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_counters(counters, p0=0)
    benchmark = CandidateBenchmark(world().recipe(), tmp_path)
    benchmark.warm()
    assert benchmark.round()["watts"] == 0
    plain = {"step": 2.0, "encode": 0.0, "latency": 1.0, "batch": 1.0, "peak": 1, "clock": 1.0}
    rounds = [plain | {"group": 0, "round": n, "waited": 0.0, "watts": 10.0 + n} for n in range(3)]
    entry = {"planned_steps": 5, "rounds": rounds, "warnings": []}
    assert settle({"one": entry}, "one")["one"]["train_joules"] == pytest.approx(11.0 * 5 * 2.0)
    del rounds[1]["watts"]
    assert "train_joules" not in settle({"one": entry}, "one")["one"]
