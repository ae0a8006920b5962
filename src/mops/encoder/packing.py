"""Segments become a pack: which tokens lie where, and which owner serves them at each stage.

Everything is computed with numpy and moved to the device at the end; nothing here waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Segment
from mops.encoder.additions import equation_of
from mops.encoder.pack import Added, Bucket, Buckets, Pack, Span, Stage, Tokens, Unit
from mops.layout import Layout
from mops.sharing import LAYER_PARTS, SITES

Ints = NDArray[np.int64]
FINEST = 4  # no bucket is finer than this many tokens


def pack_segments(
    segments: Sequence[Segment], layout: Layout, device: str | torch.device = "cpu"
) -> Pack:
    """Lay segments out so that every owner finds its tokens in as few ranges as possible."""
    return Packing(segments, layout, device).pack()


@dataclass(frozen=True)
class Streams:
    """The segments of one stage in the order in which they lie; a stream is a (segment, branch)."""

    leaves: Ints  # for each stream: one leaf (a stream of the top stage) that descends from it
    segments: Ints
    lengths: Ints
    starts: Ints  # first token of each stream, and one past the last
    buckets: dict[tuple[int, int], Buckets] = field(default_factory=dict)


class Packing:
    """The state of laying out one pack."""

    def __init__(
        self, segments: Sequence[Segment], layout: Layout, device: str | torch.device
    ) -> None:
        self.given = segments
        self.layout = layout
        self.device = torch.device(device)
        self.lengths = np.array([len(segment.ids) for segment in segments], dtype=np.int64)
        self.top_branch = layout.branches[-1]
        self.route_of = {top: layout.routes[task] for task, top in self.top_branch.items()}
        wanted = {(self.top_branch[t], i) for i, s in enumerate(segments) for t in s.tasks}
        # By branch first, so that an owner's tokens are one range; by length inside.
        self.leaves = sorted(wanted, key=lambda leaf: (leaf[0], self.lengths[leaf[1]], leaf[1]))
        self.leaf_segment = np.array([segment for _, segment in self.leaves], dtype=np.int64)

    def pack(self) -> Pack:
        below = self.streams_at(0)
        first = below
        stages = []
        depth = self.layout.encoder.depth
        for stage in range(1, len(self.layout.branches)):
            here = below
            if self.layout.branches[stage] != self.layout.branches[stage - 1]:
                here = self.streams_at(stage)
            stages.append(self.stage(stage, below, here))
            below = here
        bottom = [self.given[i] for i in first.segments]
        return Pack(
            tokens=Tokens(
                self.move(np.concatenate([segment.ids for segment in bottom])),
                self.move(np.concatenate([segment.types for segment in bottom])),
                self.move(counting(first.lengths)),
            ),
            embeddings=self.spans(first, 0, "embeddings"),
            layers=tuple(stages[:depth]),
            tops=tuple(stages[depth:]),
            first_S=self.move(below.starts[:-1]),
            segment_T=self.move(np.repeat(np.arange(len(below.lengths)), below.lengths)),
            length_S=self.move(below.lengths),
            found=self.found(),
        )

    def streams_at(self, stage: int) -> Streams:
        """One stream for each segment on each branch of this stage."""
        branch = self.branch_of_leaves(stage)
        keys = branch * (len(self.given) + 1) + self.leaf_segment
        leaves = np.sort(np.unique(keys, return_index=True)[1])
        segments = self.leaf_segment[leaves]
        lengths = self.lengths[segments]
        return Streams(leaves, segments, lengths, np.concatenate([[0], np.cumsum(lengths)]))

    def branch_of_leaves(self, stage: int) -> Ints:
        here = {self.top_branch[t]: branch for t, branch in self.layout.branches[stage].items()}
        return np.array([here[top] for top, _ in self.leaves], dtype=np.int64)

    def stage(self, stage: int, below: Streams, here: Streams) -> Stage:
        is_layer = stage <= self.layout.encoder.depth
        parts = LAYER_PARTS if is_layer else ()
        return Stage(
            gather_T=self.gather(stage, below, here),
            spans={part: self.spans(here, stage, part) for part in parts},
            added=self.added(here, stage),
        )

    def added(self, streams: Streams, stage: int) -> dict[str, tuple[Added, ...]]:
        """The additions of a stage by site; each task has the same ones, with owners of its own."""
        stops = [self.route_of[self.leaves[leaf][0]].stops[stage - 1] for leaf in streams.leaves]
        found: dict[str, list[Added]] = {site: [] for site in SITES}
        for n, stop in enumerate(stops[0]):
            parts = [of[n].parts for of in stops]
            units = tuple(
                Unit(parts[first], self.tokens(streams, first, last), buckets)
                for first, last in ranges(parts)
                for buckets in (self.buckets(streams, first, last),)
            )
            found[stop.site].append(Added(equation_of(stop), units))
        return {site: tuple(added) for site, added in found.items()}

    def gather(self, stage: int, below: Streams, here: Streams) -> Tensor | None:
        """For each token here: its place below; none when both are the same."""
        if here is below:
            return None
        branch = self.branch_of_leaves(stage - 1)
        place = {(branch[leaf], self.leaf_segment[leaf]): n for n, leaf in enumerate(below.leaves)}
        parents = np.array([place[branch[leaf], self.leaf_segment[leaf]] for leaf in here.leaves])
        if np.array_equal(parents, np.arange(len(below.leaves))):
            return None
        starts = np.repeat(below.starts[parents], here.lengths)
        return self.move(starts + counting(here.lengths))

    def spans(self, streams: Streams, stage: int, part: str) -> tuple[Span, ...]:
        """Neighbouring streams of one owner are one span."""
        owners = [self.owner(stage, part, leaf) for leaf in streams.leaves]
        return tuple(
            Span(
                owner=owners[first],
                tokens=self.tokens(streams, first, last),
                buckets=(self.buckets(streams, first, last),) if part == "attention" else (),
            )
            for first, last in ranges(owners)
        )

    def tokens(self, streams: Streams, first: int, last: int) -> slice:
        return slice(int(streams.starts[first]), int(streams.starts[last]))

    def owner(self, stage: int, part: str, leaf: int) -> str:
        route = self.route_of[self.leaves[leaf][0]]
        return route.layers[stage - 1][part] if stage else route.embeddings

    def buckets(self, streams: Streams, first: int, last: int) -> Buckets:
        """Made once for each range of streams: all layers of a shared trunk use the same."""
        if (first, last) not in streams.buckets:
            streams.buckets[first, last] = make_buckets(streams.lengths[first:last], self.move)
        return streams.buckets[first, last]

    def found(self) -> dict[str, Tensor]:
        place = {leaf: n for n, leaf in enumerate(self.leaves)}
        asked: dict[str, list[int]] = {}
        for i, segment in enumerate(self.given):
            for task in segment.tasks:
                asked.setdefault(task, []).append(place[self.top_branch[task], i])
        return {task: self.move(np.array(places)) for task, places in asked.items()}

    def move(self, values: NDArray[np.generic]) -> Tensor:
        kind = values if values.dtype == np.bool_ else values.astype(np.int64, copy=False)
        return torch.from_numpy(kind).to(self.device)


def ranges(items: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Where equal neighbours begin and end."""
    cuts = [n for n in range(1, len(items)) if items[n] != items[n - 1]]
    yield from pairwise([0, *cuts, len(items)])


def make_buckets(lengths: Ints, move: Callable[[NDArray[np.generic]], Tensor]) -> Buckets:
    """Segments of the same padded length side by side; the padded place of every token; masks."""
    padded = padded_lengths(lengths)
    places = np.empty(len(lengths), dtype=np.int64)
    items, row = [], 0
    for length in np.unique(padded):
        members = np.flatnonzero(padded == length)
        places[members] = row + length * np.arange(len(members))
        is_token = np.arange(length) < lengths[members][:, None]
        mask = None if is_token.all() else move(is_token[:, None, None, :])
        end = row + int(length) * len(members)
        items.append(Bucket(slice(row, end), int(length), mask))
        row = end
    return Buckets(move(np.repeat(places, lengths) + counting(lengths)), row, tuple(items))


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
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
