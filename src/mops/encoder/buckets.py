"""Buckets: how the segments of a span lie during attention, padded to a few lengths."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mops.encoder.pack import Bucket, Buckets

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
