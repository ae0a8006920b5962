"""The benchmarks: their arithmetic, and that each of them runs, on a tiny encoder."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import __main__ as runner
from benchmarks import harness, memory, profile, training_step
from benchmarks.harness import Comparison, Timing, compare
from benchmarks.resident import MIB, peak
from benchmarks.training_step import Case

from building import NAMES, build_network, forward_flops, mixed_batch, tiny_shape
from mops.data.batches import Batch
from running import run_python, write_long_encoder, write_toy_data

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The data and the encoder of a quick run."""
    folder = tmp_path_factory.mktemp("benchmarks")
    data = write_toy_data(folder / "data")
    encoder = write_long_encoder(folder / "encoder", depth=4)
    return ["--data", str(data), "--encoder", str(encoder)]


@pytest.fixture
def run_quick(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], dict[str, Any]]:
    """`run_quick(name)`: the result of a benchmark, run in this process without children."""
    monkeypatch.setattr(harness, "PEAK_SHAPES", ((8, 8, 8),))
    monkeypatch.setattr(memory, "measure_apart", memory.measure_here)

    def run(name: str) -> dict[str, Any]:
        quick = ["--quick", "--rounds", "1", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", [name, *words, *quick])
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(module, "compare_apart", compare_here, raising=False)
        module.main()
        return dict(json.loads((tmp_path / f"{name}.json").read_text("utf-8")))

    return run


def compare_here(builders: Mapping[str, Callable[[], Any]], **options: Any) -> Comparison:
    return compare({name: build() for name, build in builders.items()}, **options)


# ------------------------------------------------------------------ arithmetic


def test_a_ratio_is_the_median_over_rounds_not_the_ratio_of_medians() -> None:
    """A round in which the machine was slow slows both, and counts like any other."""
    theirs, ours = Timing([2.0, 30.0, 3.0]), Timing([1.0, 10.0, 2.0])
    found = Comparison({"theirs": theirs, "ours": ours}, [1.0, 1.0, 1.0])
    assert found.speedup("ours") == 2.0  # of 2, 3 and 1.5
    assert found.speedup("theirs") == 1.0
    assert found.to_data()["alternatives"]["ours"]["seconds"] == 2.0


def test_share_of_peak_is_the_rate_beside_the_peak_of_the_same_round() -> None:
    timing = Timing([2.0, 4.0, 1.0], flops=8.0)
    found = Comparison({"ours": timing, "uncounted": Timing([1.0] * 3)}, [8.0, 16.0, 16.0])
    assert found.share_of_peak("ours") == 0.5  # of 4/8, 2/16 and 8/16
    assert found.share_of_peak("uncounted") is None


def test_alternatives_run_in_turn_and_the_first_round_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    clock = iter(range(1000))
    monkeypatch.setattr(harness, "matrix_peak", lambda: 1.0)
    monkeypatch.setattr(harness, "processor_time", lambda run: (run(), float(next(clock)))[1])
    found = compare({n: lambda n=n: order.append(n) for n in "ab"}, rounds=2, warmup=1)
    assert "".join(order) == "ababab"
    assert found.timings["a"].seconds == [2.0, 4.0]
    assert found.timings["b"].seconds == [3.0, 5.0]
    assert len(found.peak) == 2


def test_flops_of_linear_layers_are_counted_by_hand() -> None:
    """Two for each weight of the six matrices of a layer, for each token; no attention."""
    network = build_network("shared")
    batch, shape = mixed_batch(network), tiny_shape()
    tokens = sum(len(segment.ids) for segment in batch.segments)
    qkv_and_output, feedforward = 4 * 32 * 32, 2 * 32 * 48
    by_hand = tokens * 2 * 4 * (qkv_and_output + feedforward)
    ready: Any = SimpleNamespace(layout=network.layout)
    assert training_step.linear_flops(ready, batch) == by_hand
    route = network.layout.routes[NAMES[0]]
    for length in (1, 7, 33):
        attention = 2 * shape.depth * 2 * length * length * shape.width  # scores, weighted sum
        matrices = length * by_hand / tokens
        assert forward_flops(route, shape, length) == matrices + attention


def test_the_stored_command_has_no_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--data", "/home/me/cs224n", "--out", "/tmp/there", "--rounds", "9"]
    monkeypatch.setattr(sys, "argv", ["/x/y.py", *given])
    assert harness.command("lengths") == "python -m benchmarks.lengths --data cs224n --rounds 9"


# ------------------------------------------------------------------ each one runs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
@pytest.mark.parametrize("name", sorted({*runner.known()} - {"profile"}))
def test_a_benchmark_runs(name: str, run_quick: Callable[[str], dict[str, Any]]) -> None:
    """Its result names the benchmark and the machine, but no folder."""
    before = sorted(harness.RESULTS.glob("*"))
    result = run_quick(name)
    assert result["name"] == name
    assert result["machine"]["packages"]["transformers"][0].isdigit()
    assert str(Path.home()) not in json.dumps(result)
    for _, each in runner.comparisons(result):
        speeds = [facts["speedup"] for facts in each["alternatives"].values()]
        assert speeds[0] == 1.0
        assert all(speed > 0 for speed in speeds)
    assert sorted(harness.RESULTS.glob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("work", memory.WORKS)
def test_memory_is_measured(
    work: str, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every alternative takes more memory than the libraries alone."""
    monkeypatch.setattr(memory, "STEPS", 1)
    kinds = memory.builders(Case(words[1], words[3], "bi", 2), tmp_path)[work]
    assert len(kinds) == 2 + len(memory.PLANS) + (work == "prediction")  # and one in 8 bits
    for build in kinds.values():
        found = memory.measure_here(build)
        assert 50 < found["libraries_mib"] < found["peak_mib"] + 1


def test_a_model_per_task_sees_the_rows_of_its_task() -> None:
    batch, seen = mixed_batch(build_network("shared")), {}

    def build(folder: str, tasks: Mapping[str, Any], pair: str, part: Batch) -> Callable[[], None]:
        (name,) = tasks
        return lambda: seen.update({name: part})

    memory.one_per_task(build, "", dict.fromkeys(NAMES), "bi", batch)()
    assert list(seen) == list(NAMES)
    assert [segment for part in seen.values() for segment in part.segments] == list(batch.segments)
    assert all(seen[name].targets[name] is batch.targets[name] for name in NAMES)


@pytest.mark.slow
def test_an_alternative_in_its_own_process_is_timed_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "matrix_peak", lambda: 1.0)
    found = harness.compare_apart({"a": partial(partial, sum, range(1000))}, rounds=2)
    assert all(seconds > 0 for seconds in found.timings["a"].seconds)
    assert len(found.timings["a"].seconds) == 2


@pytest.mark.slow
def test_the_end_of_a_process_is_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    """A child that cannot build ends with its error; its parent does not wait for ever."""
    with pytest.raises((EOFError, ConnectionError)):
        harness.compare_apart({"a": partial(int, "no number")}, rounds=1)


@pytest.mark.slow
def test_memory_of_a_child_is_its_own() -> None:
    """What the parent holds is not counted."""
    held = bytearray(200 * MIB)
    done = run_python("-c", "from benchmarks.resident import peak; print(peak())", cwd=ROOT)
    assert MIB < int(done.stdout) < len(held) < peak()


@pytest.mark.slow
def test_the_profile_finds_every_group(run_quick: Callable[[str], dict[str, Any]]) -> None:
    """Fractions sum to one; a training step has all groups."""
    result = run_quick("profile")
    for side in result["works"]["training step"].values():
        shares = side["shares"]
        assert sum(shares.values()) == pytest.approx(1)
        assert [group for group in profile.GROUPS if shares[group] < 1e-4] == []


def test_operations_belong_to_the_nearest_name_that_is_known() -> None:
    whole, outer = profile.WHOLE, "autograd::engine::evaluate_function: AddmmBackward0"
    groups = {
        ("aten::addmm", "aten::linear", whole): "linear layers, forward",
        ("aten::mm", "AddmmBackward0", outer, whole): "linear layers, backward",
        ("aten::bernoulli_", "aten::dropout", "aten::scaled_dot_product_x", whole): "dropout",
        ("aten::sub_", "Drop", whole): "dropout",
        ("aten::cat", "DropoutAttentionBackward", whole): "attention",
        ("aten::add_", "Optimizer.step#AdamW.step", whole): "optimiser",
        ("aten::mul", "mops::clipping", whole): "clipping",
        ("aten::cat", whole): "adding and copying",
        (whole,): "Python and calls",
    }
    assert {path: profile.group_of(path) for path in groups} == groups


# ------------------------------------------------------------------ all of them


def test_a_failed_benchmark_is_named_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is really run: one leaves a result, one fails, one leaves nothing."""
    result = {"cases": {"bi 8": {"reference": "a", "alternatives": {"a": {}, "b": {"speedup": 2}}}}}
    codes = {"good": 0, "bad": 3, "silent": 0, "plain": 0}

    def run(words: list[str], **_: Any) -> SimpleNamespace:
        name, folder = words[2].removeprefix("benchmarks."), Path(words[words.index("--out") + 1])
        texts = {"good": json.dumps(result), "plain": "{}"}
        if name in texts:
            (folder / f"{name}.json").write_text(texts[name], "utf-8")
        return SimpleNamespace(returncode=codes[name])

    monkeypatch.setattr(runner, "known", lambda: list(codes))
    monkeypatch.setattr(runner.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick"])
    with pytest.raises(SystemExit, match="failed: bad, silent"):
        runner.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split() == ["good", "bi", "8", "b", "2.00", "x", "a"]
    assert lines[-1].split() == ["plain", "see", "benchmarks/results/plain.json"]


@pytest.mark.slow
def test_an_unknown_benchmark_is_refused() -> None:
    done = run_python("-m", "benchmarks", "lenghts", cwd=ROOT)
    assert done.returncode == 2
    assert "no benchmark lenghts; there are" in done.stderr
