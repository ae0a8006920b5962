"""The blocks of BERT (Devlin et al. 2019; Vaswani et al. 2017) on packed tokens.

Shapes: T tokens of the whole pack, D width, H heads, B segments of a bucket, L its length.
Each block is one owner of the bank; none knows which task its tokens belong to.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mops.encoder.pack import Buckets, Tokens
from mops.shapes import EncoderShape

ACTIVATIONS: dict[str, nn.Module] = {
    "gelu": nn.GELU(),
    "gelu_new": nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": nn.GELU(approximate="tanh"),
    "relu": nn.ReLU(),
    "tanh": nn.Tanh(),
}


def join(pieces: Sequence[Tensor]) -> Tensor:
    """The pieces one after the other, without a copy where there is only one."""
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


class Dense(nn.Linear):
    """A linear layer that gives a row the same bits whatever other rows are beside it.

    Products of a few rows, and of a matrix with one vector, run on kernels whose order of summing
    depends on the number of rows (measured with MKL: fewer than 12 rows on two threads). So a few
    rows are computed among zeros, and a single output as a sum of its own.
    """

    fewest = 16

    def forward(self, input: Tensor) -> Tensor:
        rows = input.shape[0]
        if self.out_features == 1:
            return (input * self.weight).sum(1, keepdim=True) + self.bias
        if rows < self.fewest:
            input = F.pad(input, (0, 0, 0, self.fewest - rows))
        return super().forward(input)[:rows]


class Embeddings(nn.Module):
    """Word + position + token type, normalised."""

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.words, shape.width)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.token_type = nn.Embedding(shape.types, shape.width) if shape.types else None
        self.norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.dropout = nn.Dropout(dropout)
        self.first_position = shape.first_position

    def forward(self, tokens: Tokens) -> Tensor:
        embedded_TD = self.word(tokens.ids_T) + self.position(
            tokens.positions_T + self.first_position
        )
        if self.token_type is not None:
            embedded_TD = embedded_TD + self.token_type(tokens.types_T)
        normed_TD: Tensor = self.dropout(self.norm(embedded_TD))
        return normed_TD


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V within each segment, and its output projection."""

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query_key_value = Dense(shape.width, 3 * shape.width)
        self.output = Dense(shape.width, shape.width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden_TD: Tensor, buckets: Buckets) -> Tensor:
        mixed_TD = self.attend(self.query_key_value(hidden_TD), buckets)
        output_TD: Tensor = self.dropout(self.output(mixed_TD))
        return output_TD

    def attend(self, qkv_TE: Tensor, buckets: Buckets) -> Tensor:
        """Segments of similar length side by side; padding exists only in here."""
        padded_PE = qkv_TE.new_zeros(buckets.padded, qkv_TE.shape[1])
        padded_PE = padded_PE.index_copy(0, buckets.places_T, qkv_TE)
        mixed_PD = join([self.attend_bucket(padded_PE[b.rows], b.mask, b.length) for b in buckets])
        return mixed_PD.index_select(0, buckets.places_T)

    def attend_bucket(self, qkv_NE: Tensor, mask: Tensor | None, length: int) -> Tensor:
        split = qkv_NE.view(-1, length, 3, self.heads, qkv_NE.shape[1] // (3 * self.heads))
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each B H L d
        dropout = self.dropout.p if self.training else 0.0
        mixed_BHLd = F.scaled_dot_product_attention(query, key, value, mask, dropout)
        return mixed_BHLd.transpose(1, 2).reshape(qkv_NE.shape[0], -1)


class FeedForward(nn.Module):
    """W2 GELU(W1 x)."""

    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        self.inner = Dense(shape.width, shape.inner)
        self.activation = ACTIVATIONS[shape.activation]
        self.output = Dense(shape.inner, shape.width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        output_TD: Tensor = self.dropout(self.output(self.activation(self.inner(hidden_TD))))
        return output_TD


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
