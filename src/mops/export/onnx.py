"""`mops export --to onnx`: a folder with one graph for all tasks, checked against the network."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mops.data.batches import TokenTable
from mops.data.splits import Row
from mops.errors import GuardError
from mops.evaluate.evaluate import judge
from mops.export.onnx_graph import ENCODER, build_model
from mops.files import atomic_write, holds
from mops.model.network import Network
from mops.plans.layout import Layout
from mops.predict.bundle import GRAPH, Bundle, Predictor, write_facts
from mops.predict.inference import compute_outputs
from mops.predict.manifest import write_manifest
from mops.predict.onnx import IDS, MASK, PAIRS, TYPES, OnnxNetwork, is_apart, load_exported
from mops.tasks import Task

TOLERANCE = 1e-4  # of every output, against torch in float32
CHECKED_ROWS = 24  # of every task
WEIGHTS = f"{GRAPH}.data"
COPIED = ("plan.yaml", "tasks.yaml", "tokenizer.json")
SPLIT = "validation"
COUNTS = ("rows", "stderr")  # among the scores
Labelled = Mapping[str, Sequence[Row]]  # task -> validation rows


def export_bundle(bundle: Bundle, out: Path) -> list[Path]:
    """Write the folder; refused where the graph does not compute what the network computes."""
    holds(out, GRAPH, kind="exported model")
    with atomic_write(out) as draft:
        write_about(bundle, draft, write_checked(bundle.network, draft))
    return [out]


def export_int8(bundle: Bundle, out: Path, rows: Labelled, max_loss: float) -> list[Path]:
    """The same with the encoder's weights in 8 bits; refused where a score falls too much."""
    holds(out, GRAPH, kind="exported model")
    with atomic_write(out) as draft:
        facts = write_checked(bundle.network, draft)
        quantise(draft)
        facts["weights"] = "int8"
        write_about(bundle, draft, facts)
        facts["scores"] = measure_change(bundle, draft, rows)
        refuse_loss(bundle.layout, facts["scores"], max_loss)
        write_about(bundle, draft, facts)
    return [out]


def write_checked(network: Network, folder: Path) -> dict[str, Any]:
    """Write the graph in float32 and compare it with the network."""
    folder.mkdir()
    save_graph(build_model(network), folder)
    return {"weights": "float32", "difference": check_graph(network, folder)}


def quantise(folder: Path) -> None:
    """Replace a folder's graph by one whose encoder multiplies in 8 bits.

    The scale of the activations is chosen in every batch. Embeddings stay as they are: they are
    mapped from the file, and only the rows that are used take memory. Heads stay too: they are
    small, and decide.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load(folder / GRAPH)
    add_pre_process_metadata(model)  # nothing in it is left to simplify, so no advice to do so
    (folder / WEIGHTS).unlink()
    kept = [node.name for node in model.graph.node if not node.name.startswith(ENCODER)]
    quantize_dynamic(
        model,
        folder / GRAPH,
        op_types_to_quantize=["MatMul"],
        nodes_to_exclude=kept,
        per_channel=True,  # as fast as one scale per matrix
        weight_type=QuantType.QInt8,  # unsigned weights have no fast kernel
        use_external_data_format=True,
    )


def save_graph(model: onnx.ModelProto, folder: Path) -> None:
    """The graph, and beside it its weights, which programs map into memory."""
    onnx.save(model, folder / GRAPH, save_as_external_data=True, location=WEIGHTS)
    onnx.checker.check_model(folder / GRAPH)


def write_about(bundle: Bundle, folder: Path, facts: Mapping[str, Any]) -> None:
    """Everything that the folder holds beside the graph."""
    shutil.copymode(folder / GRAPH, folder / WEIGHTS)  # onnx lets only the owner read them
    for name in COPIED:
        shutil.copyfile(bundle.folder / name, folder / name)
    known = {key: value for key, value in bundle.config.items() if key != "mops_bundle"}
    write_facts(folder, bundle.layout, {**known, "onnx": facts})
    with (folder / "README.md").open("a", encoding="utf-8") as card:
        card.write(format_section(bundle.layout, facts))
    write_manifest(folder)


def format_section(layout: Layout, facts: Mapping[str, Any]) -> str:
    """What the card says about the graph."""
    lines = [
        f"\n## The graph\n\n`{GRAPH}` ({facts['weights']}) takes `{IDS}`, `{MASK}` and, where the "
        f"encoder knows types, `{TYPES}`, each batch x length. Every task has an output of its "
        "name; `vectors/...` are the pooled vectors.\n",
    ]
    lines += [f"- {name}: {describe_output(layout, task)}" for name, task in layout.tasks.items()]
    if scores := facts.get("scores"):
        lines += ["", "| task | score | float32 | int8 | change |", "|---|---|---|---|---|"]
        lines += [
            f"| {task} | {name} | {before:.4f} | {after:.4f} | {after - before:+.4f} |"
            for task, own in scores.items()
            for name, (before, after) in own.items()
        ]
    return "\n".join(lines) + "\n"


def describe_output(layout: Layout, task: Task) -> str:
    """What a task's output is, and what a row of it reads."""
    meaning = task.answer.output_meaning(task)
    if not is_apart(layout, task.name):
        return meaning
    return f"{meaning}; a row is two sequences, whose numbers in the batch are `{PAIRS}` (rows x 2)"


def check_graph(network: Network, folder: Path) -> float:
    """The largest difference from the network's outputs, on random sequences of all lengths."""
    tables = {task: random_table(network.layout, task) for task in network.layout.tasks}
    found = OnnxNetwork(folder / GRAPH, network.layout).compute_outputs(tables)
    expected = compute_outputs(network, tables)
    differences = {
        task: float(np.abs(np.concatenate(own) - np.concatenate(expected[task])).max())
        for task, own in found.items()
    }
    task = max(differences, key=differences.__getitem__)
    if not differences[task] <= TOLERANCE:
        raise GuardError(
            f"the graph differs from the network by {differences[task]:.2g} at {task!r}; "
            f"allowed {TOLERANCE:g}; nothing was written. Check the versions of onnx, onnxruntime"
        )
    return differences[task]


def random_table(layout: Layout, task: str) -> TokenTable:
    """Rows of random tokens, each of them a word; some texts occur twice."""
    draw = np.random.default_rng(len(task))
    per_row = 1 + is_apart(layout, task)
    encoder = layout.encoder
    longest = min(layout.reading.max_length, encoder.longest, 64 + 2 * encoder.reach)
    lengths = np.r_[longest, draw.integers(1, longest + 1, CHECKED_ROWS * per_row - 1)]
    ids = draw.integers(0, encoder.words, lengths.sum(), np.int32)
    types = draw.integers(0, max(1, encoder.types), len(ids), np.int32)
    starts = np.r_[0, np.cumsum(lengths)]
    places = np.arange(len(ids), dtype=np.int32) - np.repeat(starts[:-1], lengths)
    return TokenTable(ids, types, starts, per_row, words=places, word_starts=starts[::per_row])


def measure_change(bundle: Bundle, folder: Path, rows: Labelled) -> dict[str, Any]:
    """Task -> score -> its value in float32 and in 8 bits, on the same rows."""
    texts = {task: [row.texts for row in own] for task, own in rows.items()}
    before = Predictor(bundle).predict_tasks(texts)
    after = Predictor(load_exported(folder)).predict_tasks(texts)
    changes: dict[str, Any] = {}
    for task, own in rows.items():
        old, new = (judge(answers[task], own, SPLIT)[SPLIT] for answers in (before, after))
        changes[task] = {name: [old[name], new[name]] for name in old if name not in COUNTS}
    return changes


def refuse_loss(layout: Layout, scores: Mapping[str, Any], max_loss: float) -> None:
    """An error where the main score of a task falls by more than is allowed."""
    for name, own in scores.items():
        task = layout.tasks[name]
        before, after = own[task.score_name]
        if before - after > max_loss:
            raise GuardError(
                f"in 8 bits the {task.score_name} of {name!r} falls from {before:.4f} to "
                f"{after:.4f}; allowed is a loss of {max_loss:g}; nothing was written. Raise "
                "--max-loss, add --force, or export without --int8"
            )
