"""The network: one bank for everything, the encoder's loop, pooling, late layers and heads.

Shapes: S segments at the top of the pack, N segments of one task, R rows, D width of one text's
vector, F fields, H hidden width. Heads carry dimensions before R along (networks that are trained
as a batch).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mops.data.batches import Words
from mops.model.adapters import build_part
from mops.model.attention import Dropout
from mops.model.blocks import ACTIVATIONS, Dense
from mops.model.encoder import build_trunk, encode
from mops.model.packing import Pack
from mops.plans.layout import Layout
from mops.plans.rows import Feed
from mops.plans.shapes import HeadInput, Reading
from mops.tasks import Task


def first_tokens(hidden_TD: Tensor, pack: Pack) -> Tensor:
    return hidden_TD.index_select(0, pack.first_S)


def summed_tokens(hidden_TD: Tensor, pack: Pack) -> Tensor:
    zeros_SD = hidden_TD.new_zeros(len(pack.length_S), hidden_TD.shape[1])
    return zeros_SD.index_add(0, pack.segment_T, hidden_TD)


POOLS: dict[str, Callable[[Tensor, Pack], Tensor]] = {
    "pooler": first_tokens,  # the pooler itself is an owner on the route
    "cls": first_tokens,
    "sum": summed_tokens,
    "mean": lambda hidden_TD, pack: summed_tokens(hidden_TD, pack) / pack.length_S[:, None],
}
Call = Callable[..., Tensor]
THRESHOLD = "threshold"  # a buffer of a head


def call_frozen(module: nn.Module, *inputs: object) -> Tensor:
    """The gradient passes through the module; its weights get none."""
    fixed = {name: weight.detach() for name, weight in module.named_parameters()}
    return functional_call(module, fixed, inputs)


# A feed's gradient -> how the source task's head is called, and what its output passes back.
FEED_GRADIENTS: dict[str | float, tuple[Call, Call]] = {
    "frozen-head": (call_frozen, lambda output: output),
    "stop": (call_frozen, Tensor.detach),
    "full": (nn.Module.__call__, lambda output: output),
}


def word_tokens(words: Words, pack: Pack, segments_N: Tensor) -> Tensor:
    """The token of each word of some segments."""
    counts, places = (
        torch.from_numpy(x).to(segments_N.device) for x in (words.counts, words.places)
    )
    return pack.first_S[segments_N].repeat_interleave(counts) + places


class Undrawn(TorchFunctionMode):
    """Leaves out normal initial weights: they are replaced by those of a file.

    For tensors without memory torch (2.13) imports its compiler to draw them: seconds and 70 MiB.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        is_draw = func in (torch.Tensor.normal_, nn.init.normal_)
        return (*args, *named.values())[0] if is_draw else func(*args, **named)


NO_WORDS: Mapping[str, Words] = {}


class Network(nn.Module):
    """Packed texts in, the outputs of every task out."""

    def __init__(
        self,
        layout: Layout,
        *,
        dropout: float = 0.0,
        head_dropout: float = 0.0,
        seed: int = 0,
        trunk: Mapping[str, nn.Module] | None = None,  # modules that another network shares
    ) -> None:
        super().__init__()
        self.layout = layout
        new = dict(new_parts(layout, dropout, head_dropout))
        self.bank = nn.ModuleDict(build_trunk(layout, dropout) if trunk is None else trunk)
        self.bank.update({owner: seeded(build, seed, owner) for owner, build in new.items()})
        self.pool = POOLS[layout.reading.pool]
        self.set_rates(layout.rates)

    def forward(self, pack: Pack, words: Mapping[str, Words] = NO_WORDS) -> dict[str, Tensor]:
        """The outputs of each task for its segments, or for their `words`."""
        hidden_TD = encode(self.bank, pack)
        pooled_SD, outputs = self.pool(hidden_TD, pack), {}
        for task, segments in pack.task_segments.items():
            own = words.get(task)
            vectors = (
                pooled_SD.index_select(0, segments)
                if own is None
                else hidden_TD[word_tokens(own, pack, segments)]
            )
            outputs[task] = self.task_outputs(task, vectors)
        return outputs

    def task_outputs(
        self, task: str, pooled_ND: Tensor, what: str = "logits", call: Call = nn.Module.__call__
    ) -> Tensor:
        """Pooled vectors of a task's segments through its pooler, late layers and head."""
        route = self.layout.routes[task]
        texts = 1 + self.layout.reading.of(task).texts_apart(self.layout.tasks[task].is_pair)
        vectors = pooled_ND
        for owner in route.pooler:
            vectors = self.bank[owner](vectors)
        for owner in route.late:
            vectors = call(self.bank[owner], vectors)
        own = vectors.view(-1, texts, vectors.shape[1]).unbind(1)
        fed = [self.feed_input(feed, pooled_ND, len(own[0])) for feed in route.feeds]
        return call(self.bank[route.head], own, fed, what)

    def decisive_outputs(self, task: str, pooled_ND: Tensor) -> Tensor:
        """The outputs that predictions are made of: less the thresholds, where a head has them."""
        outputs_RO = self.task_outputs(task, pooled_ND)
        threshold_O = self.thresholds.get(task)
        return outputs_RO if threshold_O is None else outputs_RO - threshold_O

    @property
    def thresholds(self) -> dict[str, Tensor]:
        """Of the tasks whose predictions have them; chosen with the best state, 0 in training."""
        heads = {task: self.bank[route.head] for task, route in self.layout.routes.items()}
        found = {task: getattr(head, THRESHOLD, None) for task, head in heads.items()}
        return {task: tensor for task, tensor in found.items() if tensor is not None}

    def feed_input(self, feed: Feed, pooled_ND: Tensor, rows: int) -> Tensor:
        """The source task's output for these rows; a single-text source gives one for each text."""
        factor: Any = feed.gradient  # a number leaves the output as it is and scales its gradient
        scaled = nn.Module.__call__, lambda output: factor * output + (1 - factor) * output.detach()
        call, pass_back = FEED_GRADIENTS.get(feed.gradient, scaled)
        return pass_back(self.task_outputs(feed.source, pooled_ND, feed.what, call).view(rows, -1))

    def train(self, mode: bool = True) -> Self:
        """Frozen modules stay in eval mode; only modules whose mode changes are visited."""
        self.training = self.bank.training = mode
        for owner, rate in self.rates.items():
            module, is_learning = self.bank[owner], mode and rate > 0
            if module.training != is_learning:
                module.train(is_learning)
        return self

    def owner_parameters(self) -> Iterator[tuple[str, str, nn.Parameter]]:
        """(owner, name within it, parameter) for everything in the bank."""
        for owner, module in self.bank.items():
            for name, parameter in module.named_parameters():
                yield owner, name, parameter

    def weights(self) -> Mapping[str, Tensor]:
        """The checkpoint: `owner.name` -> tensor."""
        return self.bank.state_dict()

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Set the learning-rate factor of each owner; 0 freezes it."""
        self.rates = dict(rates)
        for owner, rate in rates.items():
            self.bank[owner].requires_grad_(rate > 0)


def new_parts(
    layout: Layout, dropout: float, head_dropout: float
) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """(owner, builder) for every module that the pretrained encoder does not have."""
    for name, task in layout.tasks.items():
        route = layout.routes[name]
        for adapter in chain(*route.adapters):
            for part, owner in adapter.parts.items():
                yield owner, partial(build_part, adapter, part, dropout)
        widths = pairwise(layout.late_widths)
        for owner, row, (n_in, n_out) in zip(route.late, layout.plan.late, widths, strict=True):
            layer = partial(late_layer, n_in, n_out, row.activation)
            yield owner, partial(nn.LayerNorm, n_in, eps=1e-12) if row.norm else layer
        inputs = layout.head_input(name)
        yield route.head, partial(build_head, task, layout.reading, inputs, head_dropout)


def late_layer(n_in: int, n_out: int, activation: str) -> nn.Module:
    """A late layer that starts orthogonal with ReLU's gain, so vectors keep their distances.

    With torch's default initialisation, three such layers on a frozen MiniLM make the vectors of
    different sentences nearly equal.
    """
    layer = Dense(n_in, n_out)
    nn.init.orthogonal_(layer.weight, gain=2**0.5)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, ACTIVATIONS[activation])


def seeded(build: Callable[[], nn.Module], seed: int, owner: str) -> nn.Module:
    """A module whose initial weights depend only on the seed and its owner, not on the plan."""
    digest = hashlib.sha256(f"{seed}/{owner}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(digest[:7], "big"))
        return build()


FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda u, v: u + v,
    "concat": lambda u, v: torch.cat([u, v], dim=-1),
    "product": lambda u, v: u * v,
    "difference": lambda u, v: (u - v).abs(),
}


class FieldAttention(nn.Module):
    """A learned weight for each field: sum_j softmax_j(q . P_j x_j / sqrt(d)) P_j x_j.

    The combination of task outputs in MTRec (Bi et al. 2022), with one query for all rows.
    """

    def __init__(self, inputs: HeadInput) -> None:
        super().__init__()
        self.projections = nn.ModuleList(Dense(width, inputs.width) for width in inputs.fields)
        self.query = nn.Parameter(torch.zeros(inputs.width))  # equal weights at first

    def forward(self, fields: Sequence[Tensor]) -> Tensor:
        pairs = zip(self.projections, fields, strict=True)
        projected_RFD = torch.stack([project(field) for project, field in pairs], dim=1)
        scores_RF = (projected_RFD * self.query).sum(2) / self.query.shape[0] ** 0.5
        return (scores_RF.softmax(1)[:, :, None] * projected_RFD).sum(1)


class DenseHead(nn.Module):
    """Pair features and fed outputs of other tasks, then an MLP (`linear`: of depth 0)."""

    def __init__(self, task: Task, reading: Reading, inputs: HeadInput, dropout: float) -> None:
        super().__init__()
        shape, width = reading.head(task.name), inputs.wide
        self.norm = nn.LayerNorm(inputs.width, eps=1e-12) if shape.norm else nn.Identity()
        self.features = reading.features if reading.of(task.name).texts_apart(task.is_pair) else ()
        self.combine: Callable[..., Tensor] = partial(torch.cat, dim=-1)
        if inputs.combine == "attention":
            self.combine = FieldAttention(inputs)
        layers: list[nn.Module] = [Dropout(dropout)]
        for _ in range(shape.depth if shape.kind == "mlp" else 0):
            layers += [Dense(width, shape.width), ACTIVATIONS[shape.activation], Dropout(dropout)]
            width = shape.width
        self.layers = nn.Sequential(*layers)
        self.output = Dense(width, task.outputs)
        self.register_buffer(
            THRESHOLD, torch.zeros(task.outputs) if task.answer.has_thresholds else None
        )
        if (first := task.answer.first_output(task)) is not None:
            nn.init.constant_(self.output.bias, first)

    def forward(
        self, vectors: Sequence[Tensor], fed: Sequence[Tensor] = (), what: str = "logits"
    ) -> Tensor:
        """The outputs, or the last hidden vector before them (`hidden`)."""
        normed = [self.norm(vector_RD) for vector_RD in vectors]
        own = [FEATURES[name](*normed) for name in self.features] or normed
        hidden_RH = self.layers(self.combine([torch.cat(own, dim=-1), *fed]))
        return hidden_RH if what == "hidden" else self.output(hidden_RH)


COSINE_SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "half": lambda cosine: (cosine + 1) / 2,
    "relu": torch.relu,
    "learned": lambda cosine: cosine,
}


class CosineHead(nn.Module):
    """The cosine of the two texts' vectors, scaled to the range of the task."""

    def __init__(self, task: Task, reading: Reading, inputs: HeadInput, dropout: float) -> None:
        super().__init__()
        assert task.range is not None  # recipes allow it only for a similarity
        shape, width = reading.head(task.name), inputs.width
        self.norm = nn.LayerNorm(width, eps=1e-12) if shape.norm else nn.Identity()
        self.dropout = Dropout(dropout)
        self.project = Dense(width, width) if shape.project else nn.Identity()
        self.scale = COSINE_SCALES[shape.scale]
        self.low, self.high = task.range
        is_learned = shape.scale == "learned"
        self.line = nn.Parameter(torch.tensor([0.5, 0.5])) if is_learned else None

    def forward(
        self, vectors: Sequence[Tensor], fed: Sequence[Tensor] = (), what: str = "logits"
    ) -> Tensor:
        u_RD, v_RD = (self.project(self.dropout(self.norm(vector))) for vector in vectors)
        fraction_R = self.scale(F.cosine_similarity(u_RD, v_RD, dim=-1))
        if self.line is not None:
            fraction_R = self.line[..., 0, None] * fraction_R + self.line[..., 1, None]
        return (self.low + (self.high - self.low) * fraction_R)[..., None]


def build_head(task: Task, reading: Reading, inputs: HeadInput, dropout: float) -> nn.Module:
    """The head of a task with its initial weights."""
    kind = CosineHead if reading.head(task.name).kind == "cosine" else DenseHead
    return kind(task, reading, inputs, dropout)


def shape_network(layout: Layout) -> Network:
    """A network of shapes without memory."""
    with torch.device("meta"), Undrawn():
        return Network(layout)
