"""Feeds: the inputs of fed heads, recomputed from the bank's weights, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from building import THREE_TASKS, build_network, hidden_of, segment, shake
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.plans.shapes import HeadShape, Reading

CHAIN = "progressive:sentiment>paraphrase>similarity"
CROSS, BI = Reading(), Reading(pair="bi")
MLP = HeadShape(kind="mlp", depth=2, width=12)


def feeding(*edges: tuple[str, str], **more: Any) -> dict[str, Any]:
    feeds = [{"source": source, "target": target, **more} for source, target in edges]
    return {"name": "fed", "feeds": feeds}


def build(plan: Any, folder: Any, reading: Reading) -> Network:
    network = build_network(plan, folder("bert"), reading=reading).double()
    for n, name in enumerate(network.layout.tasks):
        shake(network.bank[f"head/{name}"], seed=n, size=0.3)
    return network


def output(network: Network, task: str, *fields: Tensor) -> Tensor:
    """A linear head on its fields side by side."""
    head: Any = network.bank[f"head/{task}"]
    return linear(torch.cat(fields, dim=1), head.output.weight, head.output.bias)


def hidden(network: Network, task: str, *fields: Tensor) -> Tensor:
    """The two hidden layers of MLP, whose numbers in a head are 1 and 4."""
    layers: Any = network.bank[f"head/{task}"].layers
    x = torch.cat(fields, dim=1)
    for layer in (layers[1], layers[4]):
        x = linear(x, layer.weight, layer.bias).relu()
    return x


def rows_of(network: Network, task: str) -> tuple[list[Any], list[Tensor]]:
    """Segments of three rows, and the pooled vectors of their texts; two lists where apart."""
    apart = network.layout.reading.texts_apart(network.layout.tasks[task].is_pair)
    segments = [segment(n, n, (task,)) for n in ((5, 2, 9, 3, 1, 14) if apart else (5, 9, 1))]
    pooled = torch.stack([state.mean(0) for state in hidden_of(network, segments, task)])
    return segments, [pooled[0::2], pooled[1::2]] if apart else [pooled]


def assert_outputs(network: Network, task: str, expected: Tensor, segments: list[Any]) -> None:
    with torch.inference_mode():
        ours = network(pack_segments(segments, network.layout))[task]
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


# ------------------------------------------------------------------ inputs


@torch.inference_mode()
def test_a_chain_over_cross_encoded_pairs(encoder_folder: Any) -> None:
    """The second task feeds the last one its output, which depends on the first task's."""
    network = build(CHAIN, encoder_folder, CROSS)
    segments, (x,) = rows_of(network, "similarity")
    first = output(network, "sentiment", x)
    second = output(network, "paraphrase", x, first)
    assert first.shape == (3, 5) and second.shape == (3, 1)
    assert_outputs(network, "similarity", output(network, "similarity", x, first, second), segments)
    segments, (x,) = rows_of(network, "sentiment")
    assert_outputs(network, "sentiment", output(network, "sentiment", x), segments)


@torch.inference_mode()
def test_a_chain_over_separately_encoded_pairs(encoder_folder: Any) -> None:
    """A single-text task feeds one output for each text, a pair task one for the pair."""
    network = build(CHAIN, encoder_folder, BI)
    segments, (u, v) = rows_of(network, "similarity")
    own = torch.cat([(u - v).abs(), u * v], dim=1)
    first = torch.cat([output(network, "sentiment", u), output(network, "sentiment", v)], dim=1)
    second = output(network, "paraphrase", own, first)
    assert first.shape == (3, 10) and second.shape == (3, 1)
    expected = output(network, "similarity", own, first, second)
    assert_outputs(network, "similarity", expected, segments)


@torch.inference_mode()
def test_the_branches_of_a_fork_do_not_feed_each_other(encoder_folder: Any) -> None:
    network = build("progressive:sentiment>paraphrase,sentiment>similarity", encoder_folder, CROSS)
    segments, (x,) = rows_of(network, "similarity")
    expected = output(network, "similarity", x, output(network, "sentiment", x))
    assert_outputs(network, "similarity", expected, segments)


@pytest.mark.parametrize("reading", [CROSS, BI], ids=["cross", "bi"])
@torch.inference_mode()
def test_the_hidden_vector_of_an_earlier_head(reading: Reading, encoder_folder: Any) -> None:
    heads = {"sentiment": MLP, "paraphrase": MLP}
    reading = Reading(pair=reading.pair, heads=heads)
    plan = feeding(
        ("sentiment", "paraphrase"),
        ("sentiment", "similarity"),
        ("paraphrase", "similarity"),
        what="hidden",
    )
    network = build(plan, encoder_folder, reading)
    segments, texts = rows_of(network, "similarity")
    own = (
        torch.cat([(texts[0] - texts[1]).abs(), texts[0] * texts[1]], 1) if texts[1:] else texts[0]
    )
    first = torch.cat([hidden(network, "sentiment", x) for x in texts], dim=1)
    second = hidden(network, "paraphrase", own, first)
    expected = output(network, "similarity", own, first, second)
    assert_outputs(network, "similarity", expected, segments)


@pytest.mark.parametrize("reading", [CROSS, BI], ids=["cross", "bi"])
@torch.inference_mode()
def test_attention_over_the_fields(reading: Reading, encoder_folder: Any) -> None:
    """sum_j softmax_j(q . P_j x_j / sqrt(d)) P_j x_j, with d the width of a text's vector."""
    plan = feeding(("sentiment", "similarity"), ("paraphrase", "similarity"), combine="attention")
    network = build(plan, encoder_folder, reading)
    segments, texts = rows_of(network, "similarity")
    own = (
        torch.cat([(texts[0] - texts[1]).abs(), texts[0] * texts[1]], 1) if texts[1:] else texts[0]
    )
    first = torch.cat([output(network, "sentiment", x) for x in texts], dim=1)
    fields = [own, first, output(network, "paraphrase", own)]
    combine: Any = network.bank["head/similarity"].combine
    projected = [
        linear(field, layer.weight, layer.bias)
        for field, layer in zip(fields, combine.projections, strict=True)
    ]
    rows = []
    for row in zip(*projected, strict=True):
        scores = torch.stack([combine.query @ x / len(x) ** 0.5 for x in row])
        shares = scores.exp() / scores.exp().sum()
        assert shares.max() - shares.min() > 0.01  # the query was moved: no longer all the same
        rows.append(sum(share * x for share, x in zip(shares, row, strict=True)))
    assert_outputs(
        network, "similarity", output(network, "similarity", torch.stack(rows)), segments
    )


@torch.inference_mode()
def test_the_source_task_uses_its_own_late_layers(encoder_folder: Any) -> None:
    plan = feeding(("sentiment", "similarity")) | {
        "late": [{"per": ["task"], "activation": "tanh"}]
    }
    network = build(plan, encoder_folder, CROSS)
    segments, (x,) = rows_of(network, "similarity")

    def late(task: str) -> Tensor:
        layer: Any = network.bank[f"late1/{task}"]
        return linear(x, layer[0].weight, layer[0].bias).tanh()

    first = output(network, "sentiment", late("sentiment"))
    expected = output(network, "similarity", late("similarity"), first)
    assert_outputs(network, "similarity", expected, segments)


# ------------------------------------------------------------------ gradients


def gradients(plan: Any, folder: Any, reading: Reading = CROSS) -> dict[str, Tensor]:
    """Gradients of the fed task's loss with respect to all weights; zeros where there is none."""
    network = build(plan, folder, reading)
    segments, _ = rows_of(network, "similarity")
    network(pack_segments(segments, network.layout))["similarity"].square().sum().backward()
    return {
        f"{owner}.{name}": torch.zeros_like(p) if p.grad is None else p.grad.to_dense()
        for owner, name, p in network.owner_parameters()
    }


def edge(gradient: str | float) -> dict[str, Any]:
    return feeding(("sentiment", "similarity"), gradient=gradient)


def assert_same(one: Mapping[str, Tensor], other: Mapping[str, Tensor], but: str = "-") -> None:
    for key in one:
        if not key.startswith(but):
            torch.testing.assert_close(one[key], other[key], rtol=1e-9, atol=1e-9, msg=key)


def largest(found: Mapping[str, Tensor], start: str) -> float:
    return max(value.abs().max().item() for key, value in found.items() if key.startswith(start))


@pytest.mark.parametrize("reading", [CROSS, BI], ids=["cross", "bi"])
def test_a_frozen_head_lets_the_gradient_through_and_keeps_its_weights(
    reading: Reading, encoder_folder: Any
) -> None:
    full = gradients(edge("full"), encoder_folder, reading)
    fixed = gradients(edge("frozen-head"), encoder_folder, reading)
    assert largest(full, "head/sentiment") > 1e-3
    assert largest(fixed, "head/sentiment") == 0
    assert_same(fixed, full, but="head/sentiment")


def test_stop_makes_the_fed_output_a_constant(encoder_folder: Any) -> None:
    stop, full = (gradients(edge(how), encoder_folder) for how in ("stop", "full"))
    network = build(edge("full"), encoder_folder, CROSS)
    segments, _ = rows_of(network, "similarity")
    pack = pack_segments(segments, network.layout)
    summed = torch.zeros(3, network.layout.encoder.width).double()
    summed = summed.index_add(0, pack.segment_T, encode(network.bank, pack))
    x = (summed / pack.length_S[:, None])[pack.task_segments["similarity"]]
    constant = output(network, "sentiment", x).detach()
    output(network, "similarity", x, constant).square().sum().backward()
    expected = {
        f"{owner}.{name}": torch.zeros_like(p) if p.grad is None else p.grad.to_dense()
        for owner, name, p in network.owner_parameters()
    }
    assert_same(stop, expected)
    assert largest(stop, "head/sentiment") == 0
    assert largest({key: stop[key] - full[key] for key in stop}, "attention") > 1e-3


@pytest.mark.parametrize("factor", [0.25, -1.0, 3.0])
def test_a_factor_scales_the_gradient_of_a_feed(factor: float, encoder_folder: Any) -> None:
    """g(f) = g(stop) + f (g(full) - g(stop)), for the encoder and for the source head."""
    stop, full, ours = (gradients(edge(how), encoder_folder) for how in ("stop", "full", factor))
    assert_same(ours, {key: stop[key] + factor * (full[key] - stop[key]) for key in ours})
    assert largest(ours, "head/sentiment") > 1e-3


def test_the_gradient_setting_changes_no_output(encoder_folder: Any) -> None:
    found = []
    for how in ("frozen-head", "stop", "full", 0.25):
        network = build(edge(how), encoder_folder, CROSS)
        segments, _ = rows_of(network, "similarity")
        found.append(network(pack_segments(segments, network.layout))["similarity"].detach())
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-12)


def test_single_texts_come_before_pairs_in_any_order(encoder_folder: Any) -> None:
    """The default order is that of the recipe, with single-text tasks first."""
    tasks = (THREE_TASKS[2], THREE_TASKS[0], THREE_TASKS[1])
    network = build_network("progressive", encoder_folder("bert"), tasks=tasks)
    sources = {
        name: tuple(feed.source for feed in route.feeds)
        for name, route in network.layout.routes.items()
    }
    assert sources == {
        "similarity": ("sentiment",),
        "sentiment": (),
        "paraphrase": ("sentiment", "similarity"),
    }
