"""The graph of a network in ONNX: padded sequences in, their vectors and every task's outputs out.

Each task's route is walked from the bottom to the top. A node that is there already is used again,
so what tasks share is in the graph once, and so are its weights.

Shapes: B sequences, L tokens of the longest, D width, E three widths, R rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from mops.model.attention import Dropout, rotary_table
from mops.model.blocks import Dense, Gated
from mops.model.network import COSINE_SCALES, CosineHead, DenseHead, FieldAttention, Network
from mops.plans.layout import Layout, Route
from mops.plans.rows import GATE, LAYER_PARTS, ON_TOP, AdapterSite
from mops.plans.shapes import GLOBAL, Scope
from mops.predict.onnx import IDS, MASK, PAIRS, TYPES, encoder_outputs, is_apart

OPSET, IR_VERSION = 20, 10  # the first opset with Gelu, and its format
HIDDEN = -1e9  # added to the score of a padded token; its weight becomes exactly zero
ENCODER, HEADS = "encoder", "heads"  # prefixes of the names of nodes


class Graph:
    """Nodes and weights as they are added; the same node twice is one node."""

    def __init__(self, bank: nn.ModuleDict) -> None:
        self.bank = bank
        self.part = ENCODER
        self.nodes: dict[object, onnx.NodeProto] = {}
        self.weights: dict[str, onnx.TensorProto] = {}

    def add(self, kind: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: Any) -> str:
        """The name of a node's first output; further ones are named by the caller."""
        key = kind, inputs, outputs, repr(attributes)
        if key not in self.nodes:
            name = f"{self.part}/{kind}.{len(self.nodes)}"
            node = helper.make_node(kind, inputs, outputs or [name], name=name, **attributes)
            self.nodes[key] = node
        return str(self.nodes[key].output[0])

    def weight(self, name: str, value: Tensor) -> str:
        if name not in self.weights:
            array = value.detach().cpu().contiguous().numpy()
            self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def constant(self, value: float | int | Sequence[int]) -> str:
        """A number as float32, or whole numbers."""
        return self.weight(f"constant/{value}", torch.tensor(value))

    def apply(self, name: str, input: str) -> str:
        """The module `owner.inner` of the bank on an input."""
        owner, _, inner = name.partition(".")
        module = self.bank[owner].get_submodule(inner)
        return MODULES[type(module)](self, name, module, input)

    def gather(self, values: str, numbers: str) -> str:
        return self.add("Gather", values, numbers, axis=0)


def dense(graph: Graph, name: str, module: Any, input: str) -> str:
    """x W^T + b."""
    output = graph.add("MatMul", input, graph.weight(f"{name}.weight", module.weight.T))
    if module.bias is None:
        return output
    return graph.add("Add", output, graph.weight(f"{name}.bias", module.bias))


def norm(graph: Graph, name: str, module: Any, input: str) -> str:
    weights = (graph.weight(f"{name}.{kind}", t) for kind, t in module.named_parameters())
    return graph.add("LayerNormalization", input, *weights, epsilon=module.eps)


def chain(graph: Graph, name: str, module: Any, input: str) -> str:
    """A `Sequential`; one module may stand in several places, as activations do."""
    inner = (f"{name}.{place}" for place in module._modules)
    return reduce(lambda x, each: graph.apply(each, x), inner, input)


def gate(graph: Graph, name: str, module: Any, input: str) -> str:
    """f(a) b, with a and b the halves of the input."""
    names = f"{input}.{name}.a", f"{input}.{name}.b"
    graph.add("Split", input, outputs=names, axis=-1, num_outputs=2)
    return graph.add("Mul", graph.apply(f"{name}.activation", names[0]), names[1])


Apply = Callable[[Graph, str, Any, str], str]
MODULES: dict[type[nn.Module], Apply] = {
    Dense: dense,
    nn.LayerNorm: norm,
    nn.Sequential: chain,
    nn.GELU: lambda graph, name, gelu, x: graph.add("Gelu", x, approximate=gelu.approximate),
    nn.ReLU: lambda graph, name, module, x: graph.add("Relu", x),
    Gated: gate,
    nn.Tanh: lambda graph, name, module, x: graph.add("Tanh", x),
    nn.Identity: lambda graph, name, module, x: x,
    Dropout: lambda graph, name, module, x: x,
}


# ------------------------------------------------------------------ encoder


def embed(graph: Graph, owner: str) -> str:
    """Word + position + token type, normalised and projected."""
    module: Any = graph.bank[owner]
    embedded = graph.gather(graph.weight(f"{owner}.word.weight", module.word.weight), IDS)
    if module.position is not None:
        positions = module.position.weight[module.first_position :]
        embedded = graph.add("Add", embedded, first_rows(graph, f"{owner}.position", positions))
    if module.token_type is not None:
        table = graph.weight(f"{owner}.token_type.weight", module.token_type.weight)
        embedded = graph.add("Add", embedded, graph.gather(table, TYPES))
    return graph.apply(f"{owner}.project", graph.apply(f"{owner}.norm", embedded))


def first_rows(graph: Graph, name: str, table: Tensor) -> str:
    """As many rows of a table by position as the longest sequence has tokens."""
    length, zero = graph.add("Shape", IDS, start=1, end=2), graph.constant([0])
    return graph.add("Slice", graph.weight(f"{name}.weight", table), zero, length, zero)


def mask_tokens(graph: Graph) -> str:
    """1 for tokens and 0 for padding, (B, 1, L)."""
    mask_BL = graph.add("Cast", MASK, to=TensorProto.FLOAT)
    return graph.add("Unsqueeze", mask_BL, graph.constant([1]))


def hide(graph: Graph, is_seen: str) -> str:
    """What to add to scores: 0 where the number is 1, and a very low score where it is 0."""
    return graph.add("Mul", graph.add("Sub", graph.constant(1.0), is_seen), graph.constant(HIDDEN))


def near_tokens(graph: Graph, reach: int) -> str:
    """1 where one token is near enough to see the other, (L, L)."""
    length = graph.add("Squeeze", graph.add("Shape", IDS, start=1, end=2))
    places = graph.add("Range", graph.constant(0), length, graph.constant(1))
    column = graph.add("Unsqueeze", places, graph.constant([1]))
    distance = graph.add("Abs", graph.add("Sub", column, places))
    near = graph.add("LessOrEqual", distance, graph.constant(reach))
    return graph.add("Cast", near, to=TensorProto.FLOAT)


def rotate(graph: Graph, values: str, base: float, width: int, positions: int) -> str:
    """Queries or keys, turned as by `mops.model.attention.rotate`; `width` of a head."""
    table = zip(("cos", "sin"), rotary_table(base, width, positions, "cpu"), strict=True)
    cos, sin = (first_rows(graph, f"{name}/{base}", turns[:, 0]) for name, turns in table)
    first, second = (f"{values}.{half}" for half in ("first", "second"))
    graph.add("Split", values, outputs=(first, second), axis=-1, num_outputs=2)
    turned = (
        graph.add(kind, graph.add("Mul", x, cos), graph.add("Mul", y, sin))
        for kind, x, y in (("Sub", first, second), ("Add", second, first))
    )
    return concat(graph, list(turned))


def attend(
    graph: Graph, qkv: str, width: int, heads: int, scope: Scope = GLOBAL, positions: int = 0
) -> str:
    """softmax(Q K^T / sqrt(d)) V within each sequence."""
    size = width // heads
    shape = graph.constant([0, 0, 3, heads, size])
    parts = graph.add("Transpose", graph.add("Reshape", qkv, shape), perm=[2, 0, 3, 1, 4])
    names = tuple(f"{parts}.{part}" for part in ("query", "key", "value"))
    graph.add("Split", parts, outputs=names, axis=0, num_outputs=3)
    query, key, value = (graph.add("Squeeze", name, graph.constant([0])) for name in names)
    if scope.rotary:
        query, key = (rotate(graph, x, scope.rotary, size, positions) for x in (query, key))
    turned = graph.add("Transpose", key, perm=[0, 1, 3, 2])
    scores = graph.add("Mul", graph.add("MatMul", query, turned), graph.constant(size**-0.5))
    hidden = graph.add("Unsqueeze", hide(graph, mask_tokens(graph)), graph.constant([1]))
    scores = graph.add("Add", scores, hidden)
    if scope.reach:
        scores = graph.add("Add", scores, hide(graph, near_tokens(graph, scope.reach)))
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    mixed = graph.add("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.add("Reshape", mixed, graph.constant([0, 0, width]))


def run_layer(graph: Graph, layout: Layout, route: Route, number: int, hidden: str) -> str:
    """The lines of `mops.model.encoder.encode` for one task."""
    encoder = layout.encoder
    attention, feedforward, norms = (route.layers[number][part] for part in LAYER_PARTS)
    add = partial(add_adapters, graph, route.adapters[number])

    def normalise(place: str, input: str) -> str:
        names = (f"{norms}.{name}" for name in encoder.norms(number)[place])
        return reduce(lambda x, name: graph.apply(name, x), names, input)

    input = normalise("before_attention", hidden)
    qkv = graph.apply(f"{attention}.query_key_value", input)
    qkv = add("in_attention", input, qkv)
    scope = encoder.scope(number)
    mixed = attend(graph, qkv, encoder.width, encoder.heads, scope, encoder.positions)
    attended = graph.apply(f"{attention}.output", mixed)
    attended = add("after_attention", attended, attended)
    middle = normalise("after_attention", graph.add("Add", hidden, attended))
    seen = normalise("before_feedforward", middle)
    inner = add("in_feedforward", seen, graph.apply(f"{feedforward}.inner", seen))
    output = graph.apply(f"{feedforward}.activation", inner)
    output = graph.apply(f"{feedforward}.output", output)
    output = add("after_feedforward", output, output)
    output = add("beside_layer", input, output)
    output = normalise("after_feedforward", graph.add("Add", middle, output))
    return add("after_layer", output, output)


def add_adapters(
    graph: Graph, adapters: Sequence[AdapterSite], site: str, input: str, onto: str
) -> str:
    """Add the outputs of the adapters at one site."""
    for adapter in adapters:
        if adapter.site == site:
            added = EQUATIONS[adapter.addition.kind](graph, adapter, input)
            added = graph.add("Gelu", added) if adapter.addition.activation else added
            onto = graph.add("Add", onto, scale(graph, adapter, added))
    return onto


def scale(graph: Graph, adapter: AdapterSite, added: str) -> str:
    """An adapter's output times its gate or its fixed factor."""
    if GATE in adapter.parts:
        owner = adapter.parts[GATE]
        return graph.add("Mul", added, graph.weight(owner, graph.bank[owner](torch.ones(()))))
    if adapter.addition.scale != 1:
        return graph.add("Mul", added, graph.constant(float(adapter.addition.scale)))
    return added


def pal(graph: Graph, adapter: AdapterSite, hidden: str) -> str:
    parts = adapter.parts
    qkv = graph.apply(f"{parts['attend']}.query_key_value", graph.apply(parts["down"], hidden))
    return graph.apply(parts["up"], attend(graph, qkv, adapter.size, adapter.heads))


def bottleneck(graph: Graph, adapter: AdapterSite, hidden: str) -> str:
    inner = graph.add("Gelu", graph.apply(adapter.parts["down"], hidden))
    return graph.apply(adapter.parts["up"], inner)


def low_rank(graph: Graph, adapter: AdapterSite, hidden: str) -> str:
    return graph.apply(adapter.parts["up"], graph.apply(adapter.parts["down"], hidden))


def experts(graph: Graph, adapter: AdapterSite, hidden: str) -> str:
    weights = graph.add("Softmax", graph.apply(adapter.parts["router"], hidden), axis=-1)
    inner = graph.add("Gelu", graph.apply(adapter.parts["down"], hidden))
    apart = graph.constant([0, 0, adapter.addition.experts, -1])
    weights = graph.add("Unsqueeze", weights, graph.constant([-1]))
    weighed = graph.add("Mul", weights, graph.add("Reshape", inner, apart))
    joined = graph.add("Reshape", weighed, graph.constant([0, 0, adapter.size]))
    return graph.apply(adapter.parts["up"], joined)


def lora(graph: Graph, adapter: AdapterSite, hidden: str) -> str:
    """Both B as one matrix, with zeros for the keys."""
    owner = adapter.parts["up"]
    up: Any = graph.bank[owner]
    width, rank = up.query.shape
    query, value = F.pad(up.query, (0, rank)), F.pad(up.value, (rank, 0))
    whole = torch.cat([query, up.query.new_zeros(width, 2 * rank), value])
    down = graph.apply(adapter.parts["down"], hidden)
    return graph.add("MatMul", down, graph.weight(owner, whole.T))


def task_embedding(graph: Graph, adapter: AdapterSite, input: str) -> str:
    owner = adapter.parts["vector"]
    module: Any = graph.bank[owner]
    return graph.weight(owner, module.vector)


def amplitude(graph: Graph, adapter: AdapterSite, input: str) -> str:
    owner = adapter.parts["vector"]
    module: Any = graph.bank[owner]
    return graph.add("Mul", input, graph.weight(owner, 2 * module.vector.sigmoid() - 1))


EQUATIONS: dict[str, Callable[[Graph, AdapterSite, str], str]] = {
    equation.__name__: equation
    for equation in (pal, bottleneck, low_rank, experts, lora, task_embedding, amplitude)
}


def run_encoder(graph: Graph, layout: Layout, route: Route) -> str:
    """The hidden states of every token at the top of a route."""
    hidden = embed(graph, route.embeddings)
    for number, adapters in enumerate(route.adapters):
        if number < len(route.layers):
            hidden = run_layer(graph, layout, route, number, hidden)
        else:
            hidden = add_adapters(graph, adapters, ON_TOP, hidden, hidden)
    return hidden


def first_tokens(graph: Graph, hidden: str) -> str:
    return graph.add("Gather", hidden, graph.constant(0), axis=1)


def sum_tokens(graph: Graph, hidden: str, weights_B1L: str) -> str:
    summed_B1D = graph.add("MatMul", weights_B1L, hidden)
    return graph.add("Squeeze", summed_B1D, graph.constant([1]))


def mean_tokens(graph: Graph, hidden: str) -> str:
    mask_B1L = mask_tokens(graph)
    length_B11 = graph.add("ReduceSum", mask_B1L, graph.constant([2]))
    return sum_tokens(graph, hidden, graph.add("Div", mask_B1L, length_B11))


POOLS: dict[str, Callable[[Graph, str], str]] = {
    "pooler": first_tokens,
    "cls": first_tokens,
    "sum": lambda graph, hidden: sum_tokens(graph, hidden, mask_tokens(graph)),
    "mean": mean_tokens,
}


# ------------------------------------------------------------------ heads


def run_head(
    graph: Graph, network: Network, tops: Mapping[str, str], task: str, what: str = "logits"
) -> str:
    """The tops of routes through a task's pooler, late layers and head: `Network.task_outputs`."""
    layout, route = network.layout, network.layout.routes[task]
    owners = *route.pooler, *route.late
    vectors = reduce(lambda x, owner: graph.apply(owner, x), owners, tops[task])
    fed = []
    for feed in route.feeds:
        output = run_head(graph, network, tops, feed.source, feed.what)
        by_text = is_apart(layout, task) and not is_apart(layout, feed.source)
        fed.append(concat(graph, take_pairs(graph, output) if by_text else [output]))
    own = take_pairs(graph, vectors) if is_apart(layout, task) else [vectors]
    head = network.bank[route.head]
    return HEAD_KINDS[type(head)](graph, route.head, head, own, fed, what)


def take_pairs(graph: Graph, values: str) -> list[str]:
    """The values of the first and of the second text of each row."""
    columns = (graph.add("Gather", PAIRS, graph.constant(n), axis=1) for n in range(2))
    return [graph.gather(values, column) for column in columns]


def concat(graph: Graph, values: Sequence[str]) -> str:
    return graph.add("Concat", *values, axis=-1) if len(values) > 1 else values[0]


FEATURES: dict[str, Callable[[Graph, str, str], str]] = {
    "sum": lambda graph, u, v: graph.add("Add", u, v),
    "concat": lambda graph, u, v: concat(graph, [u, v]),
    "product": lambda graph, u, v: graph.add("Mul", u, v),
    "difference": lambda graph, u, v: graph.add("Abs", graph.add("Sub", u, v)),
}


def dense_head(
    graph: Graph, name: str, head: Any, own: list[str], fed: list[str], what: str
) -> str:
    normed = [graph.apply(f"{name}.norm", vector) for vector in own]
    features = [FEATURES[kind](graph, *normed) for kind in head.features] or normed
    fields = [concat(graph, features), *fed]
    is_weighed = isinstance(head.combine, FieldAttention)
    combined = weigh_fields(graph, name, fields) if is_weighed else concat(graph, fields)
    hidden = graph.apply(f"{name}.layers", combined)
    return hidden if what == "hidden" else graph.apply(f"{name}.output", hidden)


def weigh_fields(graph: Graph, name: str, fields: Sequence[str]) -> str:
    """`FieldAttention`."""
    query: Tensor = graph.bank[name].get_parameter("combine.query")
    projected = (graph.apply(f"{name}.combine.projections.{n}", x) for n, x in enumerate(fields))
    one = graph.constant([1])
    rows = [graph.add("Unsqueeze", x, one) for x in projected]
    stacked_RFD = graph.add("Concat", *rows, axis=1)
    scaled = graph.weight(f"{name}.combine.query", query[:, None] / len(query) ** 0.5)
    weights_RF1 = graph.add("Softmax", graph.add("MatMul", stacked_RFD, scaled), axis=1)
    weighed_RFD = graph.add("Mul", weights_RF1, stacked_RFD)
    return graph.add("ReduceSum", weighed_RFD, one, keepdims=0)


def cosine_head(
    graph: Graph, name: str, head: Any, own: list[str], fed: list[str], what: str
) -> str:
    vectors = (graph.apply(f"{name}.norm", vector) for vector in own)
    u, v = (graph.apply(f"{name}.project", vector) for vector in vectors)
    last, least = graph.constant([-1]), graph.constant(1e-8)  # as in torch
    sizes = [graph.add("Max", graph.add("ReduceL2", x, last), least) for x in (u, v)]
    together = graph.add("ReduceSum", graph.add("Mul", u, v), last)
    cosine = graph.add("Div", together, graph.add("Mul", *sizes))
    fraction = COSINES[head.scale](graph, cosine)
    if head.line is not None:
        fraction = line(graph, fraction, *head.line.tolist())
    return line(graph, fraction, head.high - head.low, head.low)


def line(graph: Graph, input: str, slope: float, start: float) -> str:
    sloped = graph.add("Mul", input, graph.constant(float(slope)))
    return graph.add("Add", sloped, graph.constant(float(start)))


COSINES: dict[object, Callable[[Graph, str], str]] = {
    COSINE_SCALES["half"]: lambda graph, cosine: line(graph, cosine, 0.5, 0.5),
    COSINE_SCALES["relu"]: lambda graph, cosine: graph.add("Relu", cosine),
    COSINE_SCALES["learned"]: lambda graph, cosine: cosine,
}
HEAD_KINDS: dict[type[nn.Module], Callable[..., str]] = {
    DenseHead: dense_head,
    CosineHead: cosine_head,
}


# ------------------------------------------------------------------ model


@torch.no_grad()
def build_model(network: Network) -> onnx.ModelProto:
    """The graph of all tasks."""
    layout, graph, tops = network.layout, Graph(network.bank), dict[str, str]()
    for task, name in encoder_outputs(layout).items():
        tops[task] = run_encoder(graph, layout, layout.routes[task])
        if name != task:
            pooled = POOLS[layout.reading.pool](graph, tops[task])
            tops[task] = graph.add("Identity", pooled, outputs=(name,))
    graph.part = HEADS
    for task in layout.tasks:
        output, threshold = run_head(graph, network, tops, task), network.thresholds.get(task)
        cut = [] if threshold is None else [graph.weight(f"{task}/threshold", threshold)]
        graph.add("Sub" if cut else "Identity", output, *cut, outputs=(task,))
    inputs, outputs = describe_ends(network)
    nodes, weights = list(graph.nodes.values()), list(graph.weights.values())
    return helper.make_model(
        helper.make_graph(nodes, layout.plan.name, inputs, outputs, weights),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="mops",
    )


def describe_ends(network: Network) -> tuple[list[onnx.ValueInfoProto], ...]:
    """The inputs and the outputs with their shapes."""
    layout = network.layout
    sequences = (IDS, MASK, TYPES) if layout.encoder.types else (IDS, MASK)
    whole = partial(helper.make_tensor_value_info, elem_type=TensorProto.INT64)
    inputs = [whole(name, shape=["batch", "length"]) for name in sequences]
    if any(is_apart(layout, task) for task in layout.tasks):
        inputs.append(whole(PAIRS, shape=["rows", 2]))
    number = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    outputs = [
        number(name, shape=["batch", layout.encoder.width])
        for name in dict.fromkeys(encoder_outputs(layout).values())
        if name not in layout.tasks
    ]
    for name, task in layout.tasks.items():
        rows = "rows" if is_apart(layout, name) else "batch"
        tokens = ["length"] if task.answer.reads_words else []
        outputs.append(number(name, shape=[rows, *tokens, task.outputs]))
    return inputs, outputs
