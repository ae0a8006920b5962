"""The encoder: the blocks of BERT on packed tokens, and one loop over the layers.

A bank owns every weight once; each block is one owner of it (Devlin et al. 2019; Vaswani et al.
2017). The loop does not know the plan. A pack says which tokens each owner serves: a shared plan
has one span in each layer, separate encoders have one for each task, and every plan in between runs
through the same lines.

Shapes: T tokens of the pack, D width, E three widths (queries, keys, values), I the inner width of
the feed-forward, X any of them, S segments.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.model.attention import Dropout, attend, join
from mops.model.pack import Buckets, Pack, PackedAdapter, Span, Tokens
from mops.plans.layout import Layout
from mops.plans.shapes import EncoderShape

Spans = tuple[Span, ...]
Adapters = tuple[PackedAdapter, ...]
ACTIVATIONS: dict[str, nn.Module] = {
    "gelu": nn.GELU(),
    "gelu_new": nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": nn.GELU(approximate="tanh"),
    "relu": nn.ReLU(),
    "tanh": nn.Tanh(),
}
FEWEST_ROWS = 16  # of a matrix product


def product(input_RN: Tensor, weight_MN: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """x W^T + b, where the bits of a row do not depend on the other rows.

    Products of few rows run on kernels whose order of summation depends on the number of rows
    (measured with MKL: fewer than 12 rows on two threads). So few rows are padded with zeros.
    """
    rows = input_RN.shape[0]
    if rows < FEWEST_ROWS:
        input_RN = F.pad(input_RN, (0, 0, 0, FEWEST_ROWS - rows))
    return F.linear(input_RN, weight_MN, bias_M)[:rows]


class Dense(nn.Linear):
    """A linear layer with `product`; a single output is a plain sum, for the same reason."""

    def forward(self, input: Tensor) -> Tensor:
        if self.out_features == 1:
            return (input * self.weight).sum(1, keepdim=True) + self.bias
        return product(input, self.weight, self.bias)


class Embeddings(nn.Module):
    """Word + position + token type, normalised."""

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        # A text uses few of the rows, so the gradient is sparse.
        self.word = nn.Embedding(shape.words, shape.width, sparse=True)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.token_type = nn.Embedding(shape.types, shape.width) if shape.types else None
        self.norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.dropout = Dropout(dropout)
        self.first_position = shape.first_position

    def forward(self, tokens: Tokens) -> Tensor:
        positions_T = tokens.positions_T + self.first_position
        embedded_TD = self.word(tokens.ids_T) + self.position(positions_T)
        if self.token_type is not None:
            embedded_TD = embedded_TD + self.token_type(tokens.types_T)
        return self.dropout(self.norm(embedded_TD))


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V within each segment, and its output projection.

    It has two steps, `query_key_value` and the call, so that an adapter can add in between.
    """

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query_key_value = Dense(shape.width, 3 * shape.width)
        self.output = Dense(shape.width, shape.width)
        self.dropout = Dropout(dropout)

    def forward(self, qkv_TE: Tensor, buckets: Buckets) -> Tensor:
        mixed_TD = attend(qkv_TE, buckets, self.heads, self.dropout.active)
        return self.dropout(self.output(mixed_TD))


class FeedForward(nn.Module):
    """W2 GELU(W1 x), in two steps: `inner`, then the call."""

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        self.inner = Dense(shape.width, shape.inner)
        self.activation = ACTIVATIONS[shape.activation]
        self.output = Dense(shape.inner, shape.width)
        self.dropout = Dropout(dropout)

    def forward(self, inner_TI: Tensor) -> Tensor:
        return self.dropout(self.output(self.activation(inner_TI)))


class Norms(nn.Module):
    """The two normalisations of a layer: after attention and after the feed-forward."""

    def __init__(self, shape: EncoderShape, _: float) -> None:
        super().__init__()
        self.attention = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.feedforward = nn.LayerNorm(shape.width, eps=shape.epsilon)


class Pooler(nn.Module):
    """tanh(W h_first)."""

    def __init__(self, shape: EncoderShape, _: float) -> None:
        super().__init__()
        self.dense = Dense(shape.width, shape.width)

    def forward(self, first_SD: Tensor) -> Tensor:
        return torch.tanh(self.dense(first_SD))


PARTS: dict[str, type[nn.Module]] = {
    "embeddings": Embeddings,
    "attention": Attention,
    "feedforward": FeedForward,
    "norms": Norms,
    "pooler": Pooler,
}


# ------------------------------------------------------------------ the bank and the loop


def build_trunk(layout: Layout, dropout: float) -> dict[str, nn.Module]:
    """Owner -> module, once for each owner of the pretrained encoder's parts."""
    owners = {owner: part for route in layout.routes.values() for owner, part, _ in route.trunk}
    return {owner: PARTS[part](layout.encoder, dropout) for owner, part in owners.items()}


def encode(bank: nn.ModuleDict, pack: Pack) -> Tensor:
    """BERT over packed tokens: the hidden state of every token at the top of its route."""
    embedded = (bank[s.owner](pack.tokens[s.tokens]) for s in pack.embeddings)
    hidden_TD = join([*pack.cached, *embedded])
    for stage in pack.layers:
        hidden_TD = stage.fan_out(hidden_TD)
        spans, adapters = stage.spans, stage.adapters
        qkv = apply_inner(bank, spans["attention"], "query_key_value", hidden_TD)
        qkv = add_to_pieces(bank, adapters["in_attention"], hidden_TD, spans["attention"], qkv)
        attended_TD = apply_outer(bank, spans["attention"], qkv)
        attended_TD = add(bank, adapters["after_attention"], attended_TD, attended_TD)
        middle_TD = join(apply_inner(bank, spans["norms"], "attention", hidden_TD + attended_TD))
        inner = apply_inner(bank, spans["feedforward"], "inner", middle_TD)
        inner = add_to_pieces(
            bank, adapters["in_feedforward"], middle_TD, spans["feedforward"], inner
        )
        output_TD = apply_outer(bank, spans["feedforward"], inner)
        output_TD = add(bank, adapters["after_feedforward"], output_TD, output_TD)
        output_TD = add(bank, adapters["beside_layer"], hidden_TD, output_TD)
        hidden_TD = join(apply_inner(bank, spans["norms"], "feedforward", middle_TD + output_TD))
    for stage in pack.tops:
        hidden_TD = stage.fan_out(hidden_TD)
        hidden_TD = add(bank, stage.adapters["on_top"], hidden_TD, hidden_TD)
    return hidden_TD


def apply_inner(bank: nn.ModuleDict, spans: Spans, inner: str, input_TX: Tensor) -> list[Tensor]:
    """A submodule of each owner on its own span; the pieces are joined only where they must be."""
    return [bank[s.owner].get_submodule(inner)(input_TX[s.tokens]) for s in spans]


def apply_outer(bank: nn.ModuleDict, spans: Spans, pieces: list[Tensor]) -> Tensor:
    """The module of each owner on the piece that its submodule gave."""
    pairs = zip(spans, pieces, strict=True)
    return join([bank[s.owner](piece, *s.buckets) for s, piece in pairs])


def add(bank: nn.ModuleDict, adapters: Adapters, input_TX: Tensor, onto_TX: Tensor) -> Tensor:
    """Add the outputs of the adapters at one site."""
    for adapter in adapters:
        onto_TX = onto_TX + apply_adapter(bank, adapter, input_TX)
    return onto_TX


def add_to_pieces(
    bank: nn.ModuleDict, adapters: Adapters, input_TX: Tensor, spans: Spans, pieces: list[Tensor]
) -> list[Tensor]:
    """The same for pieces, which are joined only where there is an adapter."""
    for adapter in adapters:
        whole_TX = join(pieces) + apply_adapter(bank, adapter, input_TX)
        pieces = [whole_TX[s.tokens] for s in spans]
    return pieces


def apply_adapter(bank: nn.ModuleDict, adapter: PackedAdapter, input_TX: Tensor) -> Tensor:
    pieces = []
    for span in adapter.spans:
        parts = {part: bank[owner] for part, owner in span.parts.items()}
        pieces.append(adapter.equation(parts, input_TX[span.tokens], span.buckets))
    return join(pieces)
