"""The encoder against transformers with the same weights, and properties of packs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from building import (
    DEPTH,
    FAMILIES,
    LENGTHS,
    LONGEST,
    NAMES,
    build_network,
    check_batch_invariance,
    check_fan_out,
    hidden_of,
    mixed_batch,
    mixed_segments,
    outputs_of,
    segment,
    tiny_shape,
)
from mops.data.batches import Segment
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.sources import find_encoder
from mops.plans.shapes import Reading
from mops.training.losses import loss_of

SPLITTING = ("shared", "hybrid:2", "separate", "layers:SISI")


def their_outputs(model: Any, segments: Sequence[Segment], types: bool) -> list[Any]:
    """transformers on each sequence alone, so that nothing is padded."""
    found = []
    with torch.inference_mode():
        for each in segments:
            given = {"input_ids": torch.tensor(each.ids).long()[None]}
            if types:
                given["token_type_ids"] = torch.tensor(each.types).long()[None]
            found.append(model(**given))
    return found


def sequences(family: str, lengths: Sequence[int] = LENGTHS) -> list[Segment]:
    types = tiny_shape(family).types
    return [segment(n, i, ("sentiment",), types=types) for i, n in enumerate(lengths)]


def assert_hidden_states_equal(network: Network, model: Any, segments: list[Segment]) -> None:
    theirs = their_outputs(model, segments, network.layout.encoder.types > 0)
    for ours, output in zip(hidden_of(network, segments, "sentiment"), theirs, strict=True):
        torch.testing.assert_close(ours, output.last_hidden_state[0], rtol=0, atol=1e-5)


def pooled_of(network: Network, segments: list[Segment]) -> Tensor:
    """What the pooler makes of each segment."""
    pack = pack_segments(segments, network.layout)
    with torch.inference_mode():
        first = encode(network.bank, pack)[pack.first_S[pack.task_segments["sentiment"]]]
        return network.bank["pooler"](first)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_token_of_a_random_model(family: str, encoder_folder: Any) -> None:
    from transformers import AutoModel

    folder = encoder_folder(family)
    model = AutoModel.from_pretrained(folder).eval()
    assert_hidden_states_equal(build_network("shared", folder), model, sequences(family))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pooled_vector(family: str, encoder_folder: Any) -> None:
    from transformers import AutoModel

    folder = encoder_folder(family)
    network = build_network("shared", folder, reading=Reading(pool="pooler"))
    segments = sequences(family)
    theirs = their_outputs(AutoModel.from_pretrained(folder).eval(), segments, True)
    expected = torch.cat([output.pooler_output for output in theirs])
    torch.testing.assert_close(pooled_of(network, segments), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "model_class", "pooler"),
    [
        ("bert", "BertForSequenceClassification", True),
        ("bert", "BertForPreTraining", True),
        ("bert", "BertForMaskedLM", True),
        ("roberta", "RobertaForSequenceClassification", True),
        ("distilbert", "DistilBertForSequenceClassification", True),
        ("bert", "BertModel", False),
    ],
)
def test_prefixes_foreign_heads_and_no_pooler(
    family: str, model_class: str, pooler: bool, encoder_folder: Any
) -> None:
    import transformers

    folder = encoder_folder(family, model_class, pooler)
    model = getattr(transformers, model_class).from_pretrained(folder).eval()
    trunk = getattr(model, model.base_model_prefix, model)
    assert_hidden_states_equal(build_network("shared", folder), trunk, sequences(family))


@pytest.mark.slow
def test_minilm() -> None:
    from transformers import BertModel

    source = find_encoder("minilm")
    model = BertModel.from_pretrained(source.folder).eval()
    reading = Reading(pool="pooler", max_length=512)
    network = build_network("shared", source.folder, reading=reading)
    segments = []
    for seed, length in enumerate((512, 1, 5, 64, 130)):
        draw = np.random.default_rng(seed)
        ids = draw.integers(999, source.shape.words, length).astype(np.int32)
        segments.append(Segment(ids, np.sort(draw.integers(0, 2, length)), ("sentiment",)))
    theirs = their_outputs(model, segments, True)
    for ours, output in zip(hidden_of(network, segments, "sentiment"), theirs, strict=True):
        torch.testing.assert_close(ours, output.last_hidden_state[0], rtol=0, atol=1e-5)
    expected = torch.cat([output.pooler_output for output in theirs])
    torch.testing.assert_close(pooled_of(network, segments), expected, rtol=0, atol=1e-5)


# ------------------------------------------------------------------ the pack


@pytest.mark.parametrize("pool", ["pooler", "mean", "sum"])
@pytest.mark.parametrize("plan", SPLITTING)
def test_the_bits_of_a_segment_do_not_depend_on_the_others(
    plan: str, pool: str, encoder_folder: Any
) -> None:
    """The outputs of a segment alone = its outputs among any others, bit by bit."""
    network = build_network(plan, encoder_folder("bert"), reading=Reading(pool=pool))
    check_batch_invariance(network)


@pytest.mark.parametrize("plan", SPLITTING)
def test_fan_out_gives_what_separate_segments_give(plan: str, encoder_folder: Any) -> None:
    network = build_network(plan, encoder_folder("bert"))
    check_fan_out(network)


@pytest.mark.parametrize(
    ("plan", "times"),
    [
        ("shared", [1, 1, 1, 1]),
        ("hybrid:2", [1, 1, 3, 3]),
        ("separate", [3, 3, 3, 3]),
        ("layers:SSSI", [1, 1, 1, 3]),
        ("layers:SISS", [1, 3, 3, 3]),
        ("late:II", [1, 1, 1, 1]),
    ],
)
def test_shared_layers_see_each_token_once(plan: str, times: list[int]) -> None:
    network = build_network(plan)
    pack = pack_segments([segment(n, n, NAMES) for n in (4, 11, 25)], network.layout)
    embedded = sum(len(ids_T) for _, (ids_T, *_) in pack.embeddings)
    assert embedded == 40 * (3 if plan == "separate" else 1)
    assert len(pack.layers) == DEPTH
    for stage, factor in zip(pack.layers, times, strict=True):
        for spans in stage.spans.values():
            ends = [(span.tokens.start, span.tokens.stop) for span in spans]
            assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
            assert ends[-1][1] == 40 * factor


def test_an_owner_has_one_span_where_branches_lie_side_by_side() -> None:
    """Separate layers: one matrix product per task; a layer that all share again: one for all."""
    layout = build_network("layers:SISS").layout
    crowd = [segment(n, n, (NAMES[n % 3],)) for n in range(2, 20)]
    pack = pack_segments(crowd, layout)
    assert [len(stage.spans["attention"]) for stage in pack.layers] == [1, 3, 1, 1]
    assert all(stage.gather_T is None for stage in pack.layers)  # in training nothing is copied


def test_attention_pads_by_less_than_a_quarter() -> None:
    """Padding exists only inside attention and is bounded for every length above 16."""
    layout = build_network("shared", shape=tiny_shape()).layout
    for length in range(17, LONGEST + 1):
        pack = pack_segments([segment(length, 0, ("sentiment",))], layout)
        (span,) = pack.layers[0].spans["attention"]
        assert length <= len(span.buckets[0].sources_P) < 1.25 * length


# ------------------------------------------------------------------ devices and types


@pytest.mark.parametrize(("plan", "pair"), [("shared", "bi"), ("layers:SSIS", "cross")])
def test_meta_device_forward_and_backward(plan: str, pair: str) -> None:
    reading = Reading(pair=pair, pool="pooler")
    network = build_network(plan, reading=reading, dropout=0.1).to("meta").train()
    batch = mixed_batch(network)
    outputs = network(pack_segments(batch.segments, network.layout, "meta"))
    for name, task in network.layout.tasks.items():
        assert outputs[name].device.type == "meta"
        assert outputs[name].shape == (len(batch.targets[name]), task.outputs)
        targets = torch.zeros(len(batch.targets[name]), device="meta")
        loss_of(task, outputs[name], targets).backward(retain_graph=True)
    assert all(p.grad is not None and p.grad.is_meta for p in network.parameters())


@pytest.mark.parametrize("plan", ["shared", "hybrid:2"])
def test_float64_refines_float32(plan: str, encoder_folder: Any) -> None:
    network = build_network(plan, encoder_folder("bert"), reading=Reading(pair="bi"))
    segments = mixed_segments(network)
    single = outputs_of(network, segments)
    double = outputs_of(network.double(), segments)
    for task in NAMES:
        assert double[task].dtype == torch.float64
        assert not torch.equal(double[task], single[task].double())
        torch.testing.assert_close(double[task], single[task].double(), rtol=0, atol=1e-4)


def test_a_folder_is_read_the_same_under_any_plan(encoder_folder: Any) -> None:
    """Every copy of a layer starts with the same bits."""
    folder: Path = encoder_folder("bert")
    plain, separate = build_network("shared", folder), build_network("separate", folder)
    weights = dict(plain.weights())
    for key, tensor in separate.weights().items():
        owner, name = key.split(".", 1)
        if not owner.startswith("head/"):
            assert torch.equal(tensor, weights[f"{owner.rsplit('/', 1)[0]}.{name}"])
