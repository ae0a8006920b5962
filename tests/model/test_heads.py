"""Poolings, pair features and heads against their definitions in plain padded torch."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from building import (
    LONGEST,
    NAMES,
    THREE_TASKS,
    WIDTH,
    build_network,
    hidden_of,
    mixed_segments,
    outputs_of,
    segment,
    shake,
)
from mops.errors import RecipeError
from mops.model.attention import Dropout
from mops.model.network import Network, build_head
from mops.model.packing import pack_segments
from mops.plans.shapes import (
    FEATURES,
    Activation,
    CosineScale,
    HeadInput,
    HeadShape,
    Pool,
    Reading,
    head_size,
)
from mops.yaml_io import to_value

TASKS = {task.name: task for task in THREE_TASKS}
U, V = torch.randn(2, 7, WIDTH, generator=torch.Generator().manual_seed(0)).unbind()


def seen(task: str, how: Reading, width: int = WIDTH) -> HeadInput:
    return HeadInput(width, (how.vectors(TASKS[task].is_pair) * width,))


def head_of(task: str, reading: Reading, dropout: float = 0.0) -> Any:
    """A head in eval mode with changed weights."""
    head = build_head(TASKS[task], reading, seen(task, reading), dropout)
    shake(head, seed=3, size=0.3)
    return head.eval()


def reading(task: str, features: tuple[str, ...] = ("sum",), **shape: Any) -> Reading:
    return Reading(pair="bi", features=features, heads={task: HeadShape(**shape)})


# ------------------------------------------------------------------ pooling


def padded(states: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Segments x the longest length x width, with zeros, and the mask of their tokens."""
    lengths = torch.tensor([len(state) for state in states])
    hidden = nn.utils.rnn.pad_sequence(states, batch_first=True)
    return hidden, torch.arange(hidden.shape[1]) < lengths[:, None]


def pool_padded(pool: str, states: list[Tensor], network: Network) -> Tensor:
    hidden, is_token = padded(states)
    if pool == "pooler":
        dense = network.bank["pooler"].dense
        return torch.tanh(hidden[:, 0] @ dense.weight.T + dense.bias)
    if pool == "cls":
        return hidden[:, 0]
    summed = (hidden * is_token[..., None]).sum(dim=1)
    return summed if pool == "sum" else summed / is_token.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("pool", get_args(Pool))
def test_pooling_is_within_the_segment(pool: str) -> None:
    network = build_network("shared", reading=Reading(pool=pool))
    crowd = [segment(n, n, ("sentiment",)) for n in (1, LONGEST, 5, 17, 2)]
    crowd.insert(2, segment(30, 99, ("paraphrase",)))
    with torch.inference_mode():
        vectors = pool_padded(pool, hidden_of(network, crowd, "sentiment"), network)
        linear = network.bank["head/sentiment"].output
        expected = vectors @ linear.weight.T + linear.bias
    ours = outputs_of(network, crowd)["sentiment"]
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_late_layers_act_on_each_text_before_the_pair_features() -> None:
    """late: ReLU(W2 ReLU(W1 x)) on u and on v, then u + v, then the linear head."""
    network = build_network("late:IS", reading=Reading(pair="bi", features=("sum",)))
    segments = mixed_segments(network)
    states = hidden_of(network, segments, "paraphrase")
    with torch.inference_mode():
        vectors = torch.stack([state.mean(dim=0) for state in states])
        for owner in ("late1/paraphrase", "late2"):
            dense = network.bank[owner][0]
            vectors = torch.relu(vectors @ dense.weight.T + dense.bias)
        linear = network.bank["head/paraphrase"].output
        expected = (vectors[0::2] + vectors[1::2]) @ linear.weight.T + linear.bias
    ours = outputs_of(network, segments)["paraphrase"]
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_a_shared_norm_is_applied_before_all_heads() -> None:
    """late:N: the same gain and bias for every task, on each text's vector."""
    network = build_network("late:N", reading=Reading(pair="bi", features=("sum",)))
    norm = network.bank["late1"]
    shake(norm, seed=1)
    segments = mixed_segments(network)
    ours = outputs_of(network, segments)
    for task, texts in (("sentiment", 1), ("paraphrase", 2)):
        head = network.bank[f"head/{task}"].output
        with torch.inference_mode():
            vectors = torch.stack([s.mean(dim=0) for s in hidden_of(network, segments, task)])
            normed = F.layer_norm(vectors, vectors.shape[1:], norm.weight, norm.bias, 1e-12)
            expected = normed.view(-1, texts, normed.shape[1]).sum(1) @ head.weight.T + head.bias
        torch.testing.assert_close(ours[task], expected, rtol=0, atol=1e-5)


# ------------------------------------------------------------------ pair features

DEFINITIONS = {
    "sum": [[u + v for u, v in zip(a, b, strict=True)] for a, b in zip(U, V, strict=True)],
    "product": [[u * v for u, v in zip(a, b, strict=True)] for a, b in zip(U, V, strict=True)],
    "difference": [
        [abs(u - v) for u, v in zip(a, b, strict=True)] for a, b in zip(U, V, strict=True)
    ],
    "concat": [[*a, *b] for a, b in zip(U, V, strict=True)],
}


@pytest.mark.parametrize(
    "features", [*((name,) for name in FEATURES), ("concat", "difference", "product")]
)
def test_pair_features(features: tuple[str, ...]) -> None:
    head = head_of("paraphrase", reading("paraphrase", features))
    seen = torch.cat([torch.tensor(DEFINITIONS[name]) for name in features], dim=1)
    assert seen.shape[1] == reading("paraphrase", features).vectors(True) * WIDTH
    expected = seen @ head.output.weight.T + head.output.bias
    torch.testing.assert_close(head((U, V)), expected, rtol=0, atol=1e-5)


def test_a_cross_pair_and_a_single_text_have_no_features() -> None:
    for task, pair in (("paraphrase", "cross"), ("sentiment", "bi")):
        head = head_of(task, Reading(pair=pair, features=("concat",)))
        expected = U @ head.output.weight.T + head.output.bias
        torch.testing.assert_close(head((U,)), expected, rtol=0, atol=1e-5)


# ------------------------------------------------------------------ mlp

FUNCTIONS = {"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh}


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("depth", [1, 3])
def test_mlp_ends_in_a_linear_layer(depth: int, activation: str) -> None:
    shape = {"kind": "mlp", "depth": depth, "width": 11, "activation": activation, "norm": True}
    head = head_of("sentiment", reading("sentiment", **shape))
    hidden = F.layer_norm(U, (WIDTH,), head.norm.weight, head.norm.bias, eps=1e-12)
    dense = [module for module in head.layers if isinstance(module, nn.Linear)]
    assert [layer.out_features for layer in dense] == [11] * depth
    for layer in dense:
        hidden = FUNCTIONS[activation](hidden @ layer.weight.T + layer.bias)
    expected = hidden @ head.output.weight.T + head.output.bias
    torch.testing.assert_close(head((U,)), expected, rtol=0, atol=1e-5)
    assert head.output.out_features == 5


def test_dropout_before_every_linear_layer_of_a_head() -> None:
    shape = HeadShape(kind="mlp", depth=2, width=11)
    head = build_head(
        TASKS["sentiment"], Reading(heads={"sentiment": shape}), HeadInput(WIDTH, (WIDTH,)), 0.3
    )
    kinds = [type(module).__name__ for module in (*head.layers, head.output)]
    layer = ["Dropout", "Dense", "ReLU"]
    assert kinds == [*layer, *layer, "Dropout", "Dense"]
    assert {m.probability for m in head.modules() if isinstance(m, Dropout)} == {0.3}


def test_a_similarity_starts_in_the_middle_of_its_range() -> None:
    head = build_head(TASKS["similarity"], Reading(), HeadInput(WIDTH, (WIDTH,)), 0.0)
    assert head.output.bias.tolist() == [2.5]


# ------------------------------------------------------------------ cosine


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("scale", get_args(CosineScale))
def test_cosine_on_the_range(scale: str, project: bool, norm: bool) -> None:
    """5 (cos + 1) / 2, 5 ReLU(cos) or 5 (a cos + b), after a normalisation and a projection."""
    shape = {"kind": "cosine", "scale": scale, "project": project, "norm": norm}
    head = head_of("similarity", reading("similarity", **shape))
    u, v = U, V
    if norm:
        u, v = (F.layer_norm(x, (WIDTH,), head.norm.weight, head.norm.bias, 1e-12) for x in (u, v))
    if project:
        u, v = (x @ head.project.weight.T + head.project.bias for x in (u, v))
    cosine = (u * v).sum(dim=1) / (u.square().sum(dim=1) * v.square().sum(dim=1)).sqrt()
    expected = {
        "half": lambda: (cosine + 1) * 2.5,
        "relu": lambda: 5 * cosine.clamp(min=0),
        "learned": lambda: 5 * (head.line[0] * cosine + head.line[1]),
    }[scale]()
    torch.testing.assert_close(head((U, V)), expected[:, None], rtol=0, atol=1e-5)


def test_a_learned_line_starts_as_half() -> None:
    learned = build_head(
        TASKS["similarity"],
        reading("similarity", kind="cosine", scale="learned"),
        HeadInput(WIDTH, (WIDTH,)),
        0.0,
    )
    half = build_head(
        TASKS["similarity"], reading("similarity", kind="cosine"), HeadInput(WIDTH, (WIDTH,)), 0.0
    )
    torch.testing.assert_close(learned((U, V)), half((U, V)), rtol=0, atol=1e-6)
    assert half((U, U)).allclose(torch.tensor(5.0))
    assert half((U, -U)).allclose(torch.tensor(0.0), atol=1e-5)


# ------------------------------------------------------------------ sizes and first weights

SHAPES = (
    HeadShape(),
    HeadShape(norm=True),
    HeadShape(kind="mlp", depth=3, width=7, norm=True),
    HeadShape(kind="cosine"),
    HeadShape(kind="cosine", project=True, norm=True, scale="learned"),
)


ANSWERABLE = [(n, s) for n in NAMES for s in SHAPES if s.kind != "cosine" or n == "similarity"]


@pytest.mark.parametrize("pair", ["cross", "bi"])
@pytest.mark.parametrize(("name", "shape"), ANSWERABLE)
def test_head_size(name: str, pair: str, shape: HeadShape) -> None:
    how = Reading(pair=pair, features=("concat", "product"), heads={name: shape})
    sees = seen(name, how, 19)
    built = sum(p.numel() for p in build_head(TASKS[name], how, sees, 0.0).parameters())
    assert head_size(TASKS[name], how, sees) == built


@pytest.mark.parametrize(
    "shape", [{"kind": "tree"}, {"activation": "swish"}, {"scale": "log"}, {"depth": 0}]
)
def test_an_invalid_head_is_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        to_value(HeadShape, shape, where="training.head", error=RecipeError)


def test_initial_weights_depend_on_seed_and_name_alone() -> None:
    """An owner has the same initial bits in every plan; another name or seed has others."""
    plans = ("shared", "separate", "hybrid:2", "late:SI", "frozen+late:SI", "late:II")
    networks = [build_network(plan, seed=4) for plan in plans]
    first = networks[0].bank["head/similarity"].output.weight
    for network in networks:
        assert torch.equal(network.bank["head/similarity"].output.weight, first)
    late = [network.bank["late2/sentiment"][0].weight for network in networks[3:]]
    assert all(torch.equal(late[0], other) for other in late)
    paraphrase = networks[0].bank["head/paraphrase"].output.weight
    assert paraphrase.shape == first.shape
    assert not torch.equal(paraphrase, first)
    other_seed = build_network("shared", seed=5).bank["head/similarity"].output.weight
    assert not torch.equal(other_seed, first)


def test_initial_weights_do_not_depend_on_earlier_draws() -> None:
    torch.manual_seed(1)
    one = build_network("late:I").weights()
    torch.randn(5)
    two = build_network("late:I").weights()
    new = [key for key in one if key.startswith(("late", "head"))]
    assert len(new) == 2 * 6
    assert all(torch.equal(one[key], two[key]) for key in new)


def test_rows_come_back_in_given_order() -> None:
    """Packing sorts by length; the outputs are in the given order."""
    network = build_network("hybrid:1")
    crowd = [segment(n, n, ("sentiment",)) for n in (9, 3, 30, 1, 12)]
    found = pack_segments(crowd, network.layout).task_segments["sentiment"]
    assert found.tolist() == [2, 1, 4, 0, 3]
    straight, reverse = outputs_of(network, crowd), outputs_of(network, crowd[::-1])
    assert torch.equal(straight["sentiment"], reverse["sentiment"].flip(0))
