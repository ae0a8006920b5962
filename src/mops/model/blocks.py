"""The blocks of encoders on packed tokens; each is one owner of the bank.

Those of BERT (Devlin et al. 2019), and what ModernBERT changes in them (Warner et al. 2024).

Shapes: T tokens of the pack, D width, E three widths (queries, keys, values), I the inner width of
the feed-forward, J that of its first product (twice I where it is gated).
"""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.model.attention import Buckets, Dropout, attend
from mops.plans.shapes import EncoderShape, Layers

ACTIVATIONS: dict[str, nn.Module] = {
    "gelu": nn.GELU(),
    "gelu_new": nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": nn.GELU(approximate="tanh"),
    "relu": nn.ReLU(),
    "tanh": nn.Tanh(),
}
FEWEST_ROWS = 16  # of a matrix product
LONGEST_SUM = 512  # in a product with fewer outputs


def product(input_RN: Tensor, weight_MN: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """x W^T + b; very few rows are padded with zeros.

    Products of few rows run on kernels whose order of summation depends on the number of rows
    (measured with MKL: fewer than 12 rows on two threads).
    """
    rows = input_RN.shape[0]
    if rows < FEWEST_ROWS:
        input_RN = F.pad(input_RN, (0, 0, 0, FEWEST_ROWS - rows))
    return F.linear(input_RN, weight_MN, bias_M)[:rows]


def product_in_pieces(input_RN: Tensor, weight_MN: Tensor, bias_M: Tensor | None) -> Tensor:
    """The same with long sums in pieces: the bits of a row do not depend on the other rows.

    With several threads MKL divides a long sum among them if the rows are few (measured with 1536
    inputs and 384 outputs on two threads: fewer than 193 rows), and no sum that is shorter than
    the number of outputs.
    """
    piece = max(LONGEST_SUM, len(weight_MN))
    output_RM = product(input_RN[..., :piece], weight_MN[:, :piece], bias_M)
    for start in range(piece, weight_MN.shape[1], piece):
        part = slice(start, start + piece)
        output_RM = output_RM + product(input_RN[..., part], weight_MN[:, part])
    return output_RM


class Dense(nn.Linear):
    """A linear layer; a row has the same bits in any batch, but where its weights learn.

    A single output is a plain sum, for the same reason.

    With `has_bfloat16`, a training step rounds inputs, weights and outputs to bfloat16; the weights
    that the optimizer updates stay in float32 (Micikevicius et al. 2018). `keeps_bfloat16`: what
    follows takes such outputs as they are.
    """

    has_bfloat16 = keeps_bfloat16 = False

    def forward(self, input: Tensor) -> Tensor:
        if self.has_bfloat16 and self.training:
            bias = None if self.bias is None else self.bias.bfloat16()
            output = F.linear(input.bfloat16(), self.weight.bfloat16(), bias)
            return output if self.keeps_bfloat16 else output.float()
        if self.out_features == 1:
            return (input * self.weight).sum(1, keepdim=True) + self.bias
        is_learning = self.weight.requires_grad and torch.is_grad_enabled()
        multiply = product if is_learning else product_in_pieces
        return multiply(input, self.weight, self.bias)


class Embeddings(nn.Module):
    """Word + position + token type, normalised; where they are narrower, taken to the width."""

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        width = shape.embedded
        # A text uses few of the rows, so the gradient is sparse.
        self.word = nn.Embedding(shape.words, width, sparse=True)
        self.position = None if shape.rotary else nn.Embedding(shape.positions, width)
        self.token_type = nn.Embedding(shape.types, width) if shape.types else None
        self.norm = build_norm(shape, width)
        self.dropout = Dropout(dropout)
        self.project = Dense(width, shape.width) if shape.embedding else nn.Identity()
        self.first_position = shape.first_position

    def forward(self, ids_T: Tensor, types_T: Tensor, positions_T: Tensor) -> Tensor:
        embedded_TX = self.word(ids_T)
        if self.position is not None:
            embedded_TX = embedded_TX + self.position(positions_T + self.first_position)
        if self.token_type is not None:
            embedded_TX = embedded_TX + self.token_type(types_T)
        embedded_TD: Tensor = self.project(self.dropout(self.norm(embedded_TX)))
        return embedded_TD


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V within each segment, and its output projection.

    It has two steps, `query_key_value` and the call, so that an adapter can add in between.
    """

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query_key_value = Dense(shape.width, 3 * shape.width, shape.has_bias)
        self.query_key_value.keeps_bfloat16 = True
        self.output = Dense(shape.width, shape.width, shape.has_bias)
        self.dropout = Dropout(dropout)

    def forward(self, qkv_TE: Tensor, buckets: Buckets) -> Tensor:
        mixed_TD = attend(qkv_TE, buckets, self.heads, self.dropout.active)
        return self.dropout(self.output(mixed_TD))


class Gated(nn.Module):
    """f(a) b, with a and b the halves of the input (Shazeer 2020)."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, inner_TJ: Tensor) -> Tensor:
        input_TI, gate_TI = inner_TJ.chunk(2, dim=1)
        # A single row is contiguous, and other kernels give other bits.
        activated_TI: Tensor = self.activation(input_TI.contiguous())
        return activated_TI * gate_TI


class FeedForward(nn.Module):
    """W2 GELU(W1 x), in two steps: `inner`, then the call."""

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        self.inner = Dense(shape.width, shape.inner_vectors, shape.has_bias)
        self.inner.keeps_bfloat16 = True
        activation = ACTIVATIONS[shape.activation]
        self.activation = Gated(activation) if shape.is_gated else activation
        self.output = Dense(shape.inner, shape.width, shape.has_bias)
        self.dropout = Dropout(dropout)

    def forward(self, inner_TJ: Tensor) -> Tensor:
        return self.dropout(self.output(self.activation(inner_TJ)))


def build_norm(shape: EncoderShape, width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=shape.epsilon, bias=shape.has_bias)


def build_norms(shape: EncoderShape, layers: Layers) -> nn.Module:
    """The normalisations of some layers: of BERT, after attention and after the feed-forward."""
    return nn.ModuleDict({n: build_norm(shape, shape.width) for n in shape.norm_names(layers)})


def build_pooler(shape: EncoderShape) -> nn.Module:
    """tanh(W h_first)."""
    dense = Dense(shape.width, shape.width)
    return nn.Sequential(OrderedDict(dense=dense, activation=ACTIVATIONS["tanh"]))


PARTS: dict[str, Callable[[EncoderShape, Layers, float], nn.Module]] = {
    "embeddings": lambda shape, layers, dropout: Embeddings(shape, dropout),
    "attention": lambda shape, layers, dropout: Attention(shape, dropout),
    "feedforward": lambda shape, layers, dropout: FeedForward(shape, dropout),
    "norms": lambda shape, layers, dropout: build_norms(shape, layers),
    "pooler": lambda shape, layers, dropout: build_pooler(shape),
}
