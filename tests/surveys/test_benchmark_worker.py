"""One candidate is measured as a run trains it: alone in this process, and in a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executing import RecordingWatcher, candidate, wait_until

import mops
from mops.data.dataset import read_dataset
from mops.errors import RunError
from mops.surveys.benchmark import BenchmarkWorker, measure_costs
from mops.surveys.benchmark_worker import CandidateBenchmark, StageBenchmark
from mops.training.machine import peak_memory
from mops.training.meters import make_request, start_stopwatch
from running import SOURCE, world

FROZEN = "frozen+late:SIS"
STAGES = [{"steps": 3, "frozen": True}, {"steps": 9, "schedule": "round-robin"}]


def prepared(folder: Path, plan: Any = "shared", **settings: Any) -> CandidateBenchmark:
    benchmark = CandidateBenchmark(world().recipe(plan, **settings), folder)
    benchmark.warm()
    return benchmark


# ------------------------------------------------------------------ which steps are measured


def test_sampled_steps_represent_the_sizes_of_all_steps(tmp_path: Path) -> None:
    (stage,) = CandidateBenchmark(world().recipe(training__max_steps=30), tmp_path).stages
    sizes = [stage.count_tokens(step) for step in range(30)]
    assert sizes[stage.largest] == max(sizes)
    sampled = [sizes[step] for step in stage.steps]
    assert len(sampled) == 4 and np.mean(sampled) == pytest.approx(np.mean(sizes), rel=0.1)


def test_a_stage_counts_by_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the steps takes one second each, the others three."""
    here = prepared(tmp_path, training__stages=STAGES, training__max_steps=None)
    seconds = {here.stages[0]: 1.0, here.stages[1]: 3.0}
    monkeypatch.setattr(StageBenchmark, "time_step", lambda stage, step: seconds[stage])
    assert here.round()["step"] == pytest.approx(0.25 * 1.0 + 0.75 * 3.0)


# ------------------------------------------------------------------ in this process


def test_weights_do_not_change(tmp_path: Path) -> None:
    """Also with a learning rate at which a training would diverge."""
    here = CandidateBenchmark(world().recipe("hybrid:1", training__learning_rate=1e6), tmp_path)
    before = {name: weight.clone() for name, weight in here.trainer.network.weights().items()}
    here.warm()
    measured = here.round()
    by_task = [f"latency/{task}" for task in here.ready.dataset.tasks]
    assert all(measured[what] > 0 for what in ("step", "latency", "batch", "peak", *by_task))
    assert 0 <= measured["waited"] <= measured["clock"]
    after = here.trainer.network.weights()
    assert all(torch.equal(before[name], after[name]) for name in before)
    moments = [of["exp_avg"] for of in here.trainer.learner.optimizer.state.values()]
    assert any(bool(moment.any()) for moment in moments)  # a whole step was taken


def test_frozen_steps_begin_above_the_encoder(tmp_path: Path, monkeypatch: Any) -> None:
    """Once warm, a step does not encode; all distinct sequences of the training are counted."""
    here = prepared(tmp_path, FROZEN)
    (stage,) = here.stages
    trainer, splits = here.trainer, here.ready.dataset.splits
    taken = {
        splits[task]["train"].good[place.row].texts
        for task, rows in trainer.schedule.rows_before(len(trainer.schedule)).items()
        for place in trainer.schedule.places(task, 0, rows)
    }
    assert len(stage.sequences) == len(taken)
    assert stage.time_encoding() > 0
    monkeypatch.setattr(stage.cache, "compute", None)
    assert all(stage.time_step(step) > 0 for step in stage.steps)


@pytest.mark.parametrize(
    "settings", [{"training__augment": {"word_dropout": 0.5}}, {"plan": "hybrid:1"}, {"off": True}]
)
def test_nothing_is_encoded_before_the_steps_where_a_run_would_not(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.pop("off", False):
        monkeypatch.setenv("MOPS_CACHE", "off")
    here = prepared(tmp_path, settings.pop("plan", FROZEN), **settings)
    assert here.round()["encode"] == 0
    assert [stage.sequences for stage in here.stages] == [{}]


def test_every_stage_is_measured_as_it_is_trained(tmp_path: Path) -> None:
    """First the head alone, on cached features; then everything."""
    here = prepared(tmp_path, training__stages=STAGES, training__max_steps=None)
    assert here.round()["step"] > 0
    first, second = here.stages
    assert first.sequences and not second.sequences
    learning = {
        id(p) for group in here.trainer.learner.optimizer.param_groups for p in group["params"]
    }
    assert learning == {id(p) for p in here.trainer.network.parameters()}


def test_a_request_is_a_pair_for_all_tasks() -> None:
    dataset = read_dataset(world().recipe())
    pairs = [row.texts for row in dataset.splits["paraphrase"]["validation"].good]
    one, many = make_request(dataset, 1), make_request(dataset, 32)
    (pair,) = one["paraphrase"]
    assert one["similarity"] == [pair] and one["sentiment"] == [pair[:1]]
    lengths = [len("".join(texts)) for texts in pairs]
    assert abs(np.median(lengths) - len("".join(pair))) <= 4
    assert {len(rows) for rows in many.values()} == {32}
    assert set(many["paraphrase"]) == set(pairs)  # all lengths


def test_waiting_is_not_counted_on_the_processor() -> None:
    processor, other = start_stopwatch("cpu"), start_stopwatch("cuda")
    time.sleep(0.1)
    assert processor() < 0.05
    assert other() >= 0.1


# ------------------------------------------------------------------ in processes


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The costs of three plans and one that fits no encoder."""
    large = np.ones(400 * 2**17)  # 400 MiB that are not the children's
    assert peak_memory() > large.nbytes
    plans = ("shared", "hybrid:99", "separate", FROZEN)
    folder = tmp_path_factory.mktemp("survey")
    return measure_costs([candidate(p) for p in plans], folder, "shared", RecordingWatcher())


@pytest.mark.slow
def test_every_candidate_is_measured(measured: dict[str, Any]) -> None:
    for name in ("shared", "separate", FROZEN):
        costs = measured[name]
        keys = ("step_seconds", "latency_seconds", "throughput", "peak_memory_bytes")
        assert all(costs[key] > 0 for key in keys) and costs["warnings"] == []
        groups = Counter(facts["group"] for facts in costs["rounds"])
        assert all(3 <= rounds <= 7 for rounds in groups.values())
        assert len(groups) == (2 if name == "shared" else 1)  # the baseline is in every group
        assert costs["train_seconds"] == 8 * costs["step_seconds"] + costs["encode_seconds"]
    assert measured["separate"]["parameters"] > 2.5 * measured["shared"]["parameters"]
    broken = measured["hybrid:99"]
    assert "step_seconds" not in broken
    assert "99" in broken["warnings"][0] and "not measured" in broken["warnings"][0]


@pytest.mark.slow
def test_memory_is_that_of_the_worker_alone(measured: dict[str, Any]) -> None:
    """Not of the process that started it, as ru_maxrss would have it on Linux."""
    peaks = [measured[plan]["peak_memory_bytes"] for plan in ("shared", "separate")]
    assert all(50 * 2**20 < peak < peak_memory() - 200 * 2**20 for peak in peaks)


@pytest.mark.slow
def test_costs_agree_with_a_run(measured: dict[str, Any], tmp_path: Path) -> None:
    """Analytic costs are those of the record; the bundle is as large as expected."""
    costs, record = measured["separate"], mops.train(world().recipe("separate"), tmp_path).record
    for key in ("parameters", "parameters_by_owner", "weight_bytes", "flops_per_example"):
        assert costs[key] == getattr(record.costs, key)
    assert costs["disk_bytes"] == pytest.approx(record.costs.bundle_bytes, rel=0.2)


@pytest.mark.slow
def test_only_frozen_parts_are_encoded(measured: dict[str, Any]) -> None:
    shared, frozen = measured["shared"], measured[FROZEN]
    assert shared["encode_seconds"] == 0
    assert frozen["encode_seconds"] > 0
    assert frozen["trained_parameters"] < frozen["parameters"] / 2


@pytest.mark.slow
def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed while the worker starts; the worker is gone soon after."""
    code = (
        "import sys, time; from pathlib import Path; "
        "from mops.surveys.benchmark import BenchmarkWorker; "
        f"worker = BenchmarkWorker(None, Path({str(tmp_path)!r}));"
        "print(worker.process.pid, flush=True); time.sleep(60)"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_alive(worker)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(worker))


def is_alive(number: int) -> bool:
    """Neither gone nor a zombie that nobody has waited for."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text("utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_worker_says_why_it_ended(tmp_path: Path) -> None:
    worker = BenchmarkWorker(candidate("shared"), tmp_path)
    worker.process.kill()
    with pytest.raises(RunError, match="signal 9"):
        worker.measure()
