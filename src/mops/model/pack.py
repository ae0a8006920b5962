"""A pack: the tokens of many segments in one flat tensor, and the owners that serve them.

Segments (token sequences) lie one after the other without padding. A stage is the embeddings, a
layer, or a place on top of the layers. At every stage the tokens are cut into spans, one for each
owner. With the plan `hybrid:1`, two sentiment segments (a, b) and one paraphrase segment (c):

    tokens       a a a  b b b b b  c c c c
    embeddings   |----- embeddings ------|
    layer 0      |-- attention/layer00 --|
    layer 1      |- .../sentiment -|- .../paraphrase -|

Where several tasks need one segment and their routes part, a stage repeats its tokens. Here a is
needed by both tasks:

    layer 0      a a a  c c c c             computed once
    layer 1      a a a  a a a  c c c c      gather_T repeats a: sentiment reads the first copy

Training gives each segment one task, so nothing is ever repeated there. A pack may also start
above the embeddings, from cached hidden states. From cached pooled vectors it has no stages at
all, and each segment is one token: its vector.

Shapes: T tokens, P padded tokens, S segments at the top, B segments of a bucket, L its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Ints = NDArray[np.int64]
Device = str | torch.device
FINEST_STEP = 4  # padded lengths are multiples of at least this


@dataclass(frozen=True)
class Tokens:
    """The flat tokens of a pack."""

    ids_T: Tensor
    types_T: Tensor
    positions_T: Tensor

    def __getitem__(self, span: slice) -> Tokens:
        return Tokens(self.ids_T[span], self.types_T[span], self.positions_T[span])


class Span(NamedTuple):  # a pack has many of them, and a tuple is quick to make
    """A range of tokens, the owner that serves them and, for attention, their buckets."""

    owner: str
    tokens: slice
    buckets: tuple[Buckets, ...] = ()


@dataclass(frozen=True)
class AdapterSpan:
    """A range of tokens and the owners of an adapter's parts that serve them."""

    parts: Mapping[str, str]  # part -> owner
    tokens: slice
    buckets: Buckets


@dataclass(frozen=True)
class PackedAdapter:
    """An adapter at one site: its equation and its spans."""

    equation: Callable[[Mapping[str, nn.Module], Tensor, Buckets], Tensor]
    spans: tuple[AdapterSpan, ...]


@dataclass(frozen=True)
class PackStage:
    """One layer, or one place on top of the layers."""

    gather_T: Tensor | None  # the token of the stage below for each token; None: the same tokens
    spans: Mapping[str, tuple[Span, ...]]  # part -> spans
    adapters: Mapping[str, tuple[PackedAdapter, ...]]  # by site

    def fan_out(self, hidden_TD: Tensor) -> Tensor:
        """Repeat the segments whose routes part here."""
        return hidden_TD if self.gather_T is None else hidden_TD.index_select(0, self.gather_T)


@dataclass(frozen=True)
class Pack:
    """Everything the encoder needs to know about the texts of one step."""

    tokens: Tokens
    embeddings: tuple[Span, ...]
    layers: tuple[PackStage, ...]
    tops: tuple[PackStage, ...]  # places for adapters on top of the last layer
    first_S: Tensor  # the first token of each segment at the top
    segment_T: Tensor  # the segment of each token at the top
    length_S: Tensor
    task_segments: Mapping[str, Tensor]  # task -> its segments at the top, in the given order
    cached: tuple[Tensor, ...] = ()  # hidden states to start from, instead of the embeddings


# ------------------------------------------------------------------ buckets


@dataclass(frozen=True)
class Bucket:
    """Segments that are padded to the same length."""

    rows: slice  # within the padded tokens of the span
    length: int
    mask: Tensor | None  # B 1 1 L, true for tokens; None when nothing is padded


@dataclass(frozen=True)
class Buckets:
    """The padded view of a span for attention, the only place where padding exists.

    Segments a, b, c and d with 3, 6, 2 and 4 tokens:

        tokens    a a a b b b b b b c c d d d d
        padded    a a a . | c c . . | d d d d | b b b b b b . .
                  bucket of length 4 (3 rows)   bucket of length 8 (1 row)

    A dot repeats the first token of its segment, and the mask hides it.
    """

    places_T: Tensor  # token -> padded place
    sources_P: Tensor  # padded place -> token
    items: tuple[Bucket, ...]

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self.items)


def make_buckets(lengths: Ints, device: Device = "cpu") -> Buckets:
    """The buckets of segments that lie one after the other."""
    padded = pad_lengths(lengths)
    order = np.argsort(padded, kind="stable")
    padded_starts = np.empty_like(lengths)
    padded_starts[order] = np.cumsum(padded[order]) - padded[order]
    places = np.repeat(padded_starts, lengths) + count_within(lengths)
    sources = np.repeat((np.cumsum(lengths) - lengths)[order], padded[order])
    sources[places] = np.arange(len(places))
    is_token = np.zeros(len(sources), dtype=np.bool_)
    is_token[places] = True
    is_token_P = to_device(is_token, device)
    items, first = [], 0
    for length, count in zip(*np.unique(padded, return_counts=True), strict=True):
        rows = slice(first, first := first + int(length * count))
        mask = None if is_token[rows].all() else is_token_P[rows].view(-1, 1, 1, int(length))
        items.append(Bucket(rows, int(length), mask))
    return Buckets(to_device(places, device), to_device(sources, device), tuple(items))


def pad_lengths(lengths: Ints) -> Ints:
    """Round lengths up to steps of about an eighth of each length.

    A padded length depends on its segment alone, so no other segment can change a segment's bits.
    """
    eighth = np.exp2(np.ceil(np.log2(lengths / 8))).astype(np.int64)
    step = np.maximum(FINEST_STEP, eighth)
    return -(-lengths // step) * step


def count_within(lengths: Ints) -> Ints:
    """0, 1, 2, ... starting again for each segment."""
    ends = np.cumsum(lengths)
    numbers: Ints = np.arange(ends[-1])
    return numbers - np.repeat(ends - lengths, lengths)


def to_device(values: NDArray[np.generic], device: Device) -> Tensor:
    """Booleans and int64 numbers as a tensor."""
    exact = values if values.dtype == np.bool_ else values.astype(np.int64, copy=False)
    return torch.from_numpy(exact).to(device)
