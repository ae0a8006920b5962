"""Buckets: how the segments of a span lie during attention, padded to a few lengths.

A pack: the tokens of many segments in one flat tensor, and where each layer finds them.

Segments (token sequences) lie one after the other without padding. At every stage (the
embeddings, then each layer) the tokens are cut into spans, one per owner that serves them. Where
routes split, a stage's gather repeats a segment for each branch that wants it; in training every
segment has one task, so nothing is ever repeated.

A pack may begin above the embeddings, with hidden states that are known; with pooled vectors that
are known it has no stages at all, and each segment is one token: its vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

Ints = NDArray[np.int64]
FINEST = 4  # no bucket is finer than this many tokens


def make_buckets(lengths: Ints, move: Callable[[NDArray[np.generic]], Tensor]) -> Buckets:
    """Segments of the same padded length side by side; the padded place of every token; masks."""
    padded = padded_lengths(lengths)
    order = np.argsort(padded, kind="stable")
    width = padded[order]
    ends = np.cumsum(width)
    firsts = np.empty_like(lengths)
    firsts[order] = ends - width
    places = np.repeat(firsts, lengths) + counting(lengths)
    sources = np.repeat((np.cumsum(lengths) - lengths)[order], width)
    sources[places] = np.arange(len(places))
    is_token = np.zeros(ends[-1], dtype=np.bool_)
    is_token[places] = True
    is_token_P = move(is_token)
    cuts = [0, *(np.flatnonzero(width[1:] != width[:-1]) + 1).tolist(), len(width)]
    rows = [0, *ends[np.array(cuts[1:]) - 1].tolist()]
    tokens = np.add.reduceat(lengths[order], cuts[:-1]).tolist()
    return Buckets(
        places_T=move(places),
        sources_P=move(sources),
        items=tuple(
            Bucket(
                rows=slice(row, end),
                length=length,
                mask=None if many == end - row else is_token_P[row:end].view(-1, 1, 1, length),
            )
            for (row, end), length, many in zip(
                pairwise(rows), width[cuts[:-1]].tolist(), tokens, strict=True
            )
        ),
    )


def padded_lengths(lengths: Ints) -> Ints:
    """Up to the next step of about an eighth of the length.

    It depends on the segment alone, so that no other segment in the pack changes its bits.
    """
    eighth = np.exp2(np.ceil(np.log2(lengths / 8))).astype(np.int64)
    step = np.maximum(FINEST, eighth)
    padded: Ints = -(-lengths // step) * step
    return padded


def counting(lengths: Ints) -> Ints:
    """0, 1, 2, ... anew for each segment."""
    ends = np.cumsum(lengths)
    numbers: Ints = np.arange(ends[-1])
    return numbers - np.repeat(ends - lengths, lengths)


@dataclass(frozen=True)
class Tokens:
    """The flat tokens of a pack."""

    ids_T: Tensor
    types_T: Tensor
    positions_T: Tensor

    def __getitem__(self, span: slice) -> Tokens:
        return Tokens(self.ids_T[span], self.types_T[span], self.positions_T[span])


@dataclass(frozen=True)
class Bucket:
    """Segments of similar length, padded to the longest of them."""

    rows: slice  # within the padded tokens of its span
    length: int
    mask: Tensor | None  # B 1 1 L, true where a token is; none when nothing is padded


@dataclass(frozen=True)
class Buckets:
    """How the tokens of a span lie during attention, the only place where padding exists."""

    places_T: Tensor  # the padded place of each token
    sources_P: Tensor  # the token at each padded place; where none is, one of the same segment
    items: tuple[Bucket, ...]

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self.items)


class Span(NamedTuple):  # there are many of them in a pack, and a tuple is made quickly
    """A range of tokens, the owner that serves them, and (for attention) their buckets."""

    owner: str
    tokens: slice
    buckets: tuple[Buckets, ...] = ()


@dataclass(frozen=True)
class Unit:
    """A range of tokens and the owners of an addition's parts that serve them."""

    parts: Mapping[str, str]  # part -> owner
    tokens: slice
    buckets: Buckets


@dataclass(frozen=True)
class Added:
    """An addition at one site: its equation, and who serves which tokens."""

    equation: Callable[[Mapping[str, nn.Module], Tensor, Buckets], Tensor]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Stage:
    """One layer, or one place on top of the layers, as the tokens of this pack meet it."""

    gather_T: Tensor | None  # the tokens of the stage below that go on; none: all, in place
    spans: Mapping[str, tuple[Span, ...]]  # part -> spans
    added: Mapping[str, tuple[Added, ...]]  # site -> additions

    def fan_out(self, hidden_TD: Tensor) -> Tensor:
        return hidden_TD if self.gather_T is None else hidden_TD.index_select(0, self.gather_T)


@dataclass(frozen=True)
class Pack:
    """All that the encoder needs to know of a step's texts."""

    tokens: Tokens
    embeddings: tuple[Span, ...]
    layers: tuple[Stage, ...]
    tops: tuple[Stage, ...]  # where additions sit on top of the last layer
    first_S: Tensor  # the first token of each segment at the top
    segment_T: Tensor  # the segment of each token at the top
    length_S: Tensor
    found: Mapping[str, Tensor]  # task -> the segments at the top that answer it, in given order
    known: tuple[Tensor, ...] = ()  # hidden states to begin with, in place of the embeddings
