"""The exported graph gives the network's outputs, and has what tasks share once."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("onnx", reason="onnx is not installed: pip install 'mops-nlp[onnx]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
import onnx
from onnxruntime import InferenceSession

import mops
from building import (
    DEPTH,
    FAMILIES,
    NAMES,
    THREE_TASKS,
    build_network,
    hidden_of,
    outputs_of,
    segment,
    shake,
    tiny_shape,
)
from mops.data.batches import Segment
from mops.errors import EncoderError, GuardError, UsageError
from mops.export import onnx as export
from mops.export.onnx_graph import EQUATIONS, FEATURES, POOLS, build_model
from mops.model import network as networks
from mops.model.network import Network
from mops.plans.catalog import every_plan
from mops.plans.rows import KINDS, Addition, Feed, SharingPlan
from mops.plans.shapes import HeadShape, Reading
from mops.predict.bundle import GRAPH, load_bundle
from mops.predict.inference import compute_outputs
from mops.predict.onnx import IDS, MASK, PAIRS, TYPES, OnnxNetwork, is_apart, pad_segments
from mops.tasks import Task
from running import World, run_cli_with, world

SENTIMENT, PARAPHRASE, SIMILARITY = NAMES
GATED = SharingPlan(
    name="gated",
    additions=(
        Addition(
            name="top",
            kind="pal",
            sites=("on_top",),
            depth=2,
            per={"down": (), "attend": ("layer", "task"), "up": (), "gate": ("task",)},
            scale=0.1,
            bound=0.5,
            groups=((SENTIMENT, PARAPHRASE),),
        ),
    ),
)
WEIGHED = SharingPlan(name="weighed", feeds=(Feed(source="*", target="*", combine="attention"),))
SPANS = Task(name="spans", type="tagging", text=("text",), label="tags", labels=("B", "I", "O"))
PLANS = (*every_plan(DEPTH, NAMES), GATED, WEIGHED)
LENGTHS = (3, 17, 1, 40, 9, 9)
over_pairs = pytest.mark.parametrize("pair", ["bi", "cross"])


def shaken(plan: Any, **options: Any) -> Network:
    """Adapters and heads start near zero; here every weight has an effect."""
    network = build_network(plan, **options)
    shake(network, seed=3, size=0.05)
    return network


def some_segments(network: Network) -> list[Segment]:
    types = network.layout.encoder.types
    return [segment(n, seed, NAMES, types=types) for seed, n in enumerate(LENGTHS)]


def run_whole(model: onnx.ModelProto, segments: Sequence[Segment]) -> dict[str, Any]:
    """All outputs of the graph, as a program without mops would ask for them."""
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {**pad_segments(segments), PAIRS: np.arange(len(segments)).reshape(-1, 2)}
    known = {each.name for each in session.get_inputs()}
    outputs = [each.name for each in session.get_outputs()]
    found = session.run(outputs, {name: feed[name] for name in known})
    return dict(zip(outputs, found, strict=True))


def assert_same(network: Network) -> None:
    segments = some_segments(network)
    found, expected = run_whole(build_model(network), segments), outputs_of(network, segments)
    for task in network.layout.tasks:
        assert len(found[task]) == len(segments) // (1 + is_apart(network.layout, task))
        np.testing.assert_allclose(found[task], expected[task].numpy(), atol=1e-4, rtol=0)
        assert np.ptp(found[task][:, 0]) > 1e-2  # not the same for all


@over_pairs
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_graph_gives_the_network_s_outputs(plan: Any, pair: str) -> None:
    assert_same(shaken(plan, reading=Reading(pair=pair)))


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families(family: str) -> None:
    assert_same(shaken("hybrid:2", shape=tiny_shape(family), reading=Reading(pair="bi")))


@pytest.mark.parametrize(
    "plan", ["lora:3", "bitfit", "adapters:8", "pals:both-different", "embert"]
)
def test_additions_to_layers_whose_norms_come_first(plan: str) -> None:
    assert_same(shaken(plan, shape=tiny_shape("modernbert")))


@pytest.mark.parametrize("pool", sorted(networks.POOLS))
def test_pools_features_and_heads(pool: str) -> None:
    heads = {
        SENTIMENT: HeadShape(kind="mlp", depth=2, width=24, activation="tanh", norm=True),
        SIMILARITY: HeadShape(kind="cosine", norm=True, project=True, scale="learned"),
    }
    reading = Reading(pair="bi", pool=pool, features=tuple(FEATURES), heads=heads)
    assert_same(shaken("late:SIS", reading=reading))


@pytest.mark.parametrize("scale", ["half", "relu", "learned"])
def test_cosines(scale: Any) -> None:
    reading = Reading(pair="bi", heads={SIMILARITY: HeadShape(kind="cosine", scale=scale)})
    assert_same(shaken("shared", reading=reading))


@over_pairs
def test_hidden_vectors_are_fed(pair: str) -> None:
    plan = SharingPlan(name="fed", feeds=(Feed(source="*", target="*", what="hidden"),))
    heads = dict.fromkeys(NAMES, HeadShape(kind="mlp", width=12))
    assert_same(shaken(plan, reading=Reading(pair=pair, heads=heads)))


@pytest.mark.parametrize("pool", ["pooler", "mean"])
@pytest.mark.parametrize("plan", ["shared", "hybrid:2", "separate", "late:SIS"])
def test_a_tagging_task_has_outputs_for_each_token(plan: str, pool: str, tmp_path: Path) -> None:
    heads = {"spans": HeadShape(kind="mlp", width=12, norm=True)}
    tasks, reading = (*THREE_TASKS, SPANS), Reading(pair="bi", pool=pool, heads=heads)
    network = shaken(plan, tasks=tasks, reading=reading)
    segments = [segment(n, seed, ("spans",)) for seed, n in enumerate(LENGTHS)]
    found = run_whole(build_model(network), segments)["spans"]
    assert found.shape == (len(LENGTHS), max(LENGTHS), 3)
    hidden = hidden_of(network, segments, "spans")
    for own, hidden_TD in zip(found, hidden, strict=True):
        with torch.inference_mode():
            expected = network.task_outputs("spans", hidden_TD).numpy()
        np.testing.assert_allclose(own[: len(hidden_TD)], expected, atol=1e-4, rtol=0)
    export.save_graph(build_model(network), tmp_path)
    assert export.check_graph(network, tmp_path) < 1e-5
    with torch.no_grad():
        network.bank["head/spans"].output.bias[2].add_(1e-2)
    with pytest.raises(GuardError, match=r"differs from the network by 0\.01 at 'spans'"):
        export.check_graph(network, tmp_path)


def test_pairs_by_task() -> None:
    assert_same(shaken("hybrid:2", reading=Reading(pair={SIMILARITY: "bi"})))


def test_every_equation_pool_and_feature_is_known() -> None:
    assert set(EQUATIONS) == set(KINDS)
    assert set(POOLS) == set(networks.POOLS)
    assert set(FEATURES) == set(networks.FEATURES)


# ------------------------------------------------------------------ shared once


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_every_owner_is_in_the_graph_once(plan: Any) -> None:
    """Its weights have its name, and there are as many numbers as the plan says."""
    layout = (network := shaken(plan)).layout
    found: dict[str, int] = {}
    for weight in build_model(network).graph.initializer:
        owner = weight.name.partition(".")[0]
        if not owner.startswith("constant/"):
            found[owner] = found.get(owner, 0) + int(np.prod(weight.dims))
    sizes = dict(layout.sizes)
    for owner in found:
        if owner.startswith("lora_up"):  # with zeros for the keys, as one matrix
            sizes[owner] *= 3
    assert found == sizes


@pytest.mark.parametrize(
    ("plan", "layers"),
    [("shared", DEPTH), ("hybrid:2", 2 + 2 * 3), ("separate", 3 * DEPTH), ("late:ISS", DEPTH),
     ("layers:SSSI", 3 + 3), ("progressive", DEPTH)],
)  # fmt: skip
def test_shared_layers_are_computed_once(plan: str, layers: int) -> None:
    nodes = build_model(shaken(plan)).graph.node
    assert sum(node.op_type == "Softmax" for node in nodes) == layers
    dense = [
        node.input[1]
        for node in nodes
        if node.op_type == "MatMul" and node.input[1].startswith(("attention", "feedforward"))
    ]
    assert len(dense) == len(set(dense)) == 4 * layers


# ------------------------------------------------------------------ backend


@over_pairs
@pytest.mark.parametrize("plan", ["shared", "hybrid:2", "late:ISS/paraphrase+similarity"])
def test_the_backend_agrees_with_torch(
    plan: str, pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many batches and windows, and sequences that only some tasks need."""
    network = shaken(plan, reading=Reading(pair=pair))
    export.save_graph(build_model(network), tmp_path)
    monkeypatch.setattr("mops.predict.onnx.BATCH_TOKENS", 60)
    monkeypatch.setattr("mops.predict.inference.WINDOW", 5)
    tables = {task: export.random_table(network.layout, task) for task in NAMES}
    backend = OnnxNetwork(tmp_path / GRAPH, network.layout)
    assert set(backend.compute_outputs({SENTIMENT: tables[SENTIMENT]})) == {SENTIMENT}
    sets = len(backend.sessions)
    found = backend.compute_outputs(tables)
    for task, expected in compute_outputs(network, tables).items():
        np.testing.assert_allclose(found[task], expected, atol=1e-4, rtol=0)
    assert sets == 2 and len(backend.sessions) >= 4


def test_a_session_has_only_the_layers_that_are_needed(tmp_path: Path) -> None:
    network = shaken("separate")
    export.save_graph(build_model(network), tmp_path)
    backend = OnnxNetwork(tmp_path / GRAPH, network.layout)
    seen: list[Any] = []
    table = {SENTIMENT: export.random_table(network.layout, SENTIMENT)}
    backend.session = lambda inputs, outputs: seen.append(outputs) or open_real(inputs, outputs)  # type: ignore[method-assign]
    open_real = OnnxNetwork(tmp_path / GRAPH, network.layout).session
    backend.compute_outputs(table)
    assert set(seen) == {("vectors/sentiment",), (SENTIMENT,)}


# ------------------------------------------------------------------ export


@pytest.fixture(scope="module")
def made() -> World:
    return world()


@pytest.fixture(scope="module")
def exported(made: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "model"
    assert export.export_bundle(load_bundle(made.run / "model"), out) == [out]
    return out


@pytest.fixture
def run_cli(monkeypatch: Any, capsys: Any) -> Any:
    return run_cli_with(monkeypatch, capsys)


def answers(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_folder_is_complete_and_describes_itself(made: World, exported: Path) -> None:
    names = {path.name for path in exported.iterdir()}
    copied = "README.md manifest.json plan.yaml tasks.yaml tokenizer.json"
    assert names == {"config.json", "model.onnx", "model.onnx.data", *copied.split()}
    facts = json.loads((exported / "config.json").read_text())["onnx"]
    assert facts["weights"] == "float32" and 0 <= facts["difference"] <= 1e-4
    card = (exported / "README.md").read_text()
    assert all(word in card for word in (IDS, MASK, TYPES, "float32"))
    onnx.checker.check_model(exported / GRAPH)


def truncate(file: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / file, size)


def link_weights(folder: Path) -> None:
    weights = folder / "model.onnx.data"
    weights.rename(folder.parent / "elsewhere")
    weights.symlink_to(folder.parent / "elsewhere")


def change_graph(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        model = onnx.load(folder / GRAPH, load_external_data=False)
        change(model.graph)
        onnx.save(model, folder / GRAPH)

    return do


@pytest.mark.parametrize(
    "harm",
    [
        truncate(GRAPH, 5000),
        truncate(GRAPH, 0),
        truncate("model.onnx.data", 2000),
        link_weights,
        change_graph(lambda graph: graph.node[3].MergeFrom(onnx.NodeProto(op_type="Evil"))),
        change_graph(lambda graph: graph.node[3].input.insert(0, "nowhere")),
        change_graph(lambda graph: graph.ClearField("output")),
    ],
)
def test_a_damaged_graph_is_one_line(
    exported: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    (folder / "manifest.json").unlink()
    harm(folder)
    model = mops.load(folder)
    with pytest.raises(EncoderError, match=r"model\.onnx cannot be run: .*again") as caught:
        model.predict("sentiment", ["ban bat"])
    assert "\n" not in str(caught.value)


def test_a_graph_that_differs_is_refused(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head with another bias is noticed, and nothing is left behind."""
    bundle = load_bundle(made.run / "model")
    other = load_bundle(made.run / "model").network
    with torch.no_grad():
        other.bank["head/similarity"].output.bias.add_(1e-2)
    monkeypatch.setattr(export, "build_model", lambda _: build_model(other))
    with pytest.raises(GuardError, match=r"differs from the network by 0\.01 at 'similarity'"):
        export.export_bundle(bundle, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def validation(made: World) -> Any:
    from mops.cli.export import read_validation

    return read_validation(load_bundle(made.run / "model"), None)


def test_int8_reports_the_change_of_every_score(made: World, tmp_path: Path) -> None:
    rows = validation(made)
    assert {task: len(own) for task, own in rows.items()} == dict.fromkeys(NAMES, 20)
    export.export_int8(load_bundle(made.run / "model"), tmp_path / "out", rows, 2.0)
    facts = json.loads((tmp_path / "out" / "config.json").read_text())["onnx"]
    stored = json.loads((made.run / "model" / "config.json").read_text())["scores"]
    assert facts["weights"] == "int8" and set(facts["scores"]) == set(NAMES)
    card = (tmp_path / "out" / "README.md").read_text()
    for task, scores in facts["scores"].items():
        for name, (before, after) in scores.items():
            assert before == pytest.approx(stored[task]["validation"][name], abs=1e-6)
            assert f"| {task} | {name} | {before:.4f} | {after:.4f} |" in card
    kinds = [node.op_type for node in onnx.load(tmp_path / "out" / GRAPH).graph.node]
    depth = load_bundle(made.run / "model").layout.encoder.depth
    assert kinds.count("MatMulInteger") == 4 * (1 + 3 * (depth - 1))  # hybrid:1


def test_int8_is_near_and_not_equal(made: World, tmp_path: Path) -> None:
    bundle = load_bundle(made.run / "model")
    export.export_int8(bundle, tmp_path / "out", {}, 0.0)
    tables = {task: export.random_table(bundle.layout, task) for task in NAMES}
    found = OnnxNetwork(tmp_path / "out" / GRAPH, bundle.layout).compute_outputs(tables)
    for task, expected in compute_outputs(bundle.network, tables).items():
        difference = np.abs(found[task] - expected)
        assert 0 < difference.max() < 0.2 * np.ptp(expected)


def test_int8_with_a_larger_loss_is_refused(made: World, tmp_path: Path) -> None:
    """No model gains 2, so a loss of at most -2 is never reached."""
    rows = {SENTIMENT: validation(made)[SENTIMENT]}
    with pytest.raises(GuardError, match=r"'sentiment' falls from .* allowed is a loss of -2"):
        export.export_int8(load_bundle(made.run / "model"), tmp_path / "out", rows, -2.0)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ commands


def test_predict_with_an_exported_folder(run_cli: Any, made: World, exported: Path) -> None:
    source, bundle = str(made.data / "sts-dev.csv"), str(made.run / "model")
    expected = answers(run_cli("predict", bundle, source)[1])
    for words in ((str(exported), source), (bundle, source, "--backend", "onnx")):
        code, out, _ = run_cli("predict", *words)
        found = answers(out)
        assert code == 0 and len(found) == len(expected) == 20
        for ours, theirs in zip(found, expected, strict=True):
            assert ours[PARAPHRASE] == theirs[PARAPHRASE]
            near = pytest.approx(float(theirs[SIMILARITY]), abs=1e-4)
            assert float(ours[SIMILARITY]) == near


def test_eval_reproduces_the_stored_scores(run_cli: Any, exported: Path) -> None:
    code, out, _ = run_cli("eval", str(exported), "--verify")
    assert code == 0 and "verified" in out


def test_serve_answers_with_the_graph(
    run_cli: Any, made: World, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    apps: list[Any] = []
    monkeypatch.setattr("mops.serve.workers.serve", lambda app, **_: apps.append(app))
    assert run_cli("serve", str(exported), "--port", "0")[0] == 0
    with TestClient(apps[0]) as client:
        item = {"text": "ban bat", "text_pair": "bet ben"}
        answer = client.post("/predict", json={"items": [item]}).json()["answers"][0]
    expected = mops.load(made.run / "model").predict(SIMILARITY, [("ban bat", "bet ben")])
    assert answer[SIMILARITY]["prediction"] == pytest.approx(expected[0], abs=1e-4)


def test_export_command(run_cli: Any, made: World, tmp_path: Path) -> None:
    bundle, out = str(made.run / "model"), str(tmp_path / "out")
    code, text, _ = run_cli("export", bundle, "--to", "onnx", "--out", out, "--int8", "--force")
    assert code == 0 and text.strip() == out
    assert json.loads(Path(out, "config.json").read_text())["onnx"]["weights"] == "int8"
    code, _, err = run_cli("eval", out, "--verify")
    assert code == 2 and "has weights in 8 bits" in err
    code, _, err = run_cli("export", bundle, "--to", "onnx", "--out", str(made.data))
    assert code == 2 and "is not empty and holds no exported model" in err


def test_wrong_backends_and_devices_are_refused(run_cli: Any, made: World, exported: Path) -> None:
    source = str(made.data / "sts-dev.csv")
    code, _, err = run_cli("predict", str(exported), source, "--backend", "torch")
    assert code == 2 and "without weights for torch" in err
    with pytest.raises(UsageError, match="runs on the cpu, not on meta"):
        mops.load(exported, "meta")


def test_a_missing_library_is_named(
    run_cli: Any, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mops.predict.onnx.find_spec", lambda name: None)
    code, _, err = run_cli("eval", str(exported))
    assert code == 2 and "pip install 'mops-nlp[onnx]'" in err
