"""Segments become a pack: which tokens lie where, and which owner serves them at each stage.

Everything is computed with numpy and moved to the device at the end; nothing here waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Segment
from mops.model.adapters import equation_of
from mops.model.pack import (
    Added,
    Buckets,
    Ints,
    Pack,
    Span,
    Stage,
    Tokens,
    Unit,
    counting,
    make_buckets,
)
from mops.plans.layout import Layout
from mops.plans.routes import Route
from mops.plans.rows import LAYER_PARTS, SITES

Packer = Callable[[Sequence[Segment]], Pack]


@dataclass(frozen=True)
class Known:
    """Where a pack begins above the embeddings: what the stages below gave was kept."""

    stage: int  # the highest stage whose output is known
    is_pooled: bool  # then a segment is one vector, its pooled one
    look_up: Callable[[Sequence[tuple[Segment, str]]], Tensor]  # of segments on a task's route


def pack_segments(
    segments: Sequence[Segment],
    layout: Layout,
    device: str | torch.device = "cpu",
    known: Known | None = None,
) -> Pack:
    """Lay segments out so that every owner finds its tokens in as few ranges as possible."""
    return Packing(segments, layout, device, known).pack()


@dataclass(frozen=True)
class Streams:
    """The segments of one stage in the order in which they lie; a stream is a (segment, branch).

    Neighbours that end on the same route are a run: what serves one of them serves all.
    """

    leaves: Ints  # for each stream: one leaf (a stream of the top stage) that descends from it
    segments: Ints
    lengths: Ints
    starts: Ints  # first token of each stream, and one past the last
    routes: tuple[Route, ...]  # of each run
    cuts: tuple[int, ...]  # the first stream of each run, and one past the last
    token_cuts: tuple[int, ...]  # the same in tokens

    def tokens(self, first: int, last: int) -> slice:
        """Of the runs from the first up to the last."""
        return slice(self.token_cuts[first], self.token_cuts[last])


class Packing:
    """The state of laying out one pack."""

    def __init__(
        self,
        segments: Sequence[Segment],
        layout: Layout,
        device: str | torch.device,
        known: Known | None = None,
    ) -> None:
        self.given = segments
        self.layout = layout
        self.device = torch.device(device)
        self.known = known
        self.made: dict[bytes, Buckets] = {}
        is_pooled = known is not None and known.is_pooled
        lengths = [1 if is_pooled else len(segment.ids) for segment in segments]
        self.lengths = np.array(lengths, dtype=np.int64)
        self.top_branch = layout.branches[-1]
        wanted = {(self.top_branch[t], i) for i, s in enumerate(segments) for t in s.tasks}
        # By branch first, so that an owner's tokens are one range; by length inside.
        self.leaves = sorted(wanted, key=lambda leaf: (leaf[0], lengths[leaf[1]], leaf[1]))
        self.leaf_top, self.leaf_segment = np.array(self.leaves, dtype=np.int64).T

    def pack(self) -> Pack:
        bottom = self.known.stage if self.known else 0
        first = below = self.streams_at(bottom)
        stages = []
        for stage in range(bottom + 1, len(self.layout.branches)):
            here = self.streams_above(stage, below)
            stages.append(self.stage(stage, below, here))
            below = here
        layers = max(0, self.layout.encoder.depth - bottom)
        return Pack(
            tokens=self.bottom_tokens(first),
            embeddings=() if self.known else self.spans(first, 0, "embeddings"),
            known=(self.known.look_up(self.tasks_of(first)),) if self.known else (),
            layers=tuple(stages[:layers]),
            tops=tuple(stages[layers:]),
            first_S=self.move(below.starts[:-1]),
            segment_T=self.move(np.repeat(np.arange(len(below.lengths)), below.lengths)),
            length_S=self.move(below.lengths),
            found=self.found(),
        )

    # -------------------------------------------------------------- which streams there are

    def streams_above(self, stage: int, below: Streams) -> Streams:
        """The same streams as below, unless a segment is asked on branches that part here."""
        if self.layout.branches[stage] == self.layout.branches[stage - 1]:
            return below
        if len(below.leaves) == len(self.leaves):
            return below
        here = self.streams_at(stage)
        return below if len(here.leaves) == len(below.leaves) else here

    def streams_at(self, stage: int) -> Streams:
        """One stream for each segment on each branch of this stage."""
        leaves = np.arange(len(self.leaves))
        if len(self.leaves) > len(self.given):
            leaves = np.sort(np.unique(self.keys_at(stage), return_index=True)[1])
        segments = self.leaf_segment[leaves]
        lengths = self.lengths[segments]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        tops = self.leaf_top[leaves]
        cuts = [0, *(np.flatnonzero(np.diff(tops)) + 1).tolist(), len(tops)]
        routes = tuple(self.route_of[top] for top in tops[cuts[:-1]].tolist())
        token_cuts = tuple(starts[cuts].tolist())
        return Streams(leaves, segments, lengths, starts, routes, tuple(cuts), token_cuts)

    def keys_at(self, stage: int) -> Ints:
        """A number for the segment and the branch at this stage of every leaf."""
        here = {self.top_branch[t]: branch for t, branch in self.layout.branches[stage].items()}
        branch = np.array([here[top] for top in range(len(here))], dtype=np.int64)
        keys: Ints = branch[self.leaf_top] * (len(self.given) + 1) + self.leaf_segment
        return keys

    @cached_property
    def route_of(self) -> dict[int, Route]:
        return {top: self.layout.routes[task] for task, top in self.top_branch.items()}

    @cached_property
    def task_of(self) -> dict[int, str]:
        return {top: task for task, top in self.top_branch.items()}

    def tasks_of(self, streams: Streams) -> list[tuple[Segment, str]]:
        """Each stream's segment, and a task whose route it is on."""
        tops = self.leaf_top[streams.leaves].tolist()
        pairs = zip(streams.segments.tolist(), tops, strict=True)
        return [(self.given[segment], self.task_of[top]) for segment, top in pairs]

    # -------------------------------------------------------------- what serves them

    def bottom_tokens(self, first: Streams) -> Tokens:
        """What is embedded; nothing where the pack begins above."""
        if self.known:
            none_T = self.move(np.zeros(0, np.int64))
            return Tokens(none_T, none_T, none_T)
        bottom = [self.given[i] for i in first.segments.tolist()]
        return Tokens(
            self.move(np.concatenate([segment.ids for segment in bottom])),
            self.move(np.concatenate([segment.types for segment in bottom])),
            self.move(counting(first.lengths)),
        )

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
        stops = [route.adapters[stage - 1] for route in streams.routes]
        found: dict[str, list[Added]] = {site: [] for site in SITES}
        for n, stop in enumerate(stops[0]):
            parts = [of[n].parts for of in stops]
            units = tuple(
                Unit(parts[a], streams.tokens(a, b), self.buckets(streams, a, b))
                for a, b in ranges(parts)
            )
            found[stop.site].append(Added(equation_of(stop), units))
        return {site: tuple(added) for site, added in found.items()}

    def gather(self, stage: int, below: Streams, here: Streams) -> Tensor | None:
        """For each token here: its place below; none when both are the same."""
        if here is below:
            return None
        keys = self.keys_at(stage - 1)
        known = keys[below.leaves]
        order = np.argsort(known)
        parents = order[np.searchsorted(known, keys[here.leaves], sorter=order)]
        starts = np.repeat(below.starts[parents], here.lengths)
        return self.move(starts + counting(here.lengths))

    def spans(self, streams: Streams, stage: int, part: str) -> tuple[Span, ...]:
        """Neighbouring streams of one owner are one span."""
        owners = [r.layers[stage - 1][part] if stage else r.embeddings for r in streams.routes]
        if part != "attention":
            return tuple(Span(owners[a], streams.tokens(a, b)) for a, b in ranges(owners))
        return tuple(
            Span(owners[a], streams.tokens(a, b), (self.buckets(streams, a, b),))
            for a, b in ranges(owners)
        )

    def buckets(self, streams: Streams, a: int, b: int) -> Buckets:
        """Made once for the same lengths: all layers use the same, and all tasks of one text."""
        lengths = streams.lengths[streams.cuts[a] : streams.cuts[b]]
        key = lengths.tobytes()
        if key not in self.made:
            self.made[key] = make_buckets(lengths, self.move)
        return self.made[key]

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
    return pairwise([0, *cuts, len(items)])
