"""Packing: which tokens of a pack lie where, and which owner serves them at each stage.

Everything is computed with numpy and copied to the device at the end, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from torch import Tensor

from mops.data.batches import Segment
from mops.model.adapters import equation_of
from mops.model.pack import (
    AdapterSpan,
    Buckets,
    Device,
    Ints,
    Pack,
    PackedAdapter,
    PackStage,
    Span,
    Tokens,
    count_within,
    make_buckets,
    to_device,
)
from mops.plans.layout import Layout
from mops.plans.routes import Route
from mops.plans.rows import LAYER_PARTS, SITES

Packer = Callable[[Sequence[Segment]], Pack]


@dataclass(frozen=True)
class CachedPrefix:
    """The stages of a network whose outputs are cached, so that a pack starts above them."""

    stage: int  # the highest cached stage
    is_pooled: bool  # whether the cache holds one pooled vector for each segment
    look_up: Callable[[Sequence[tuple[Segment, str]]], Tensor]  # of (segment, task) pairs


def pack_segments(
    segments: Sequence[Segment],
    layout: Layout,
    device: Device = "cpu",
    cached: CachedPrefix | None = None,
) -> Pack:
    """Lay segments out so that every owner finds its tokens in as few spans as possible."""
    return PackBuilder(segments, layout, device, cached).build()


@dataclass(frozen=True)
class Streams:
    """The segments of one stage in the order of their tokens; a stream is a segment on a branch.

    Neighbouring streams that end on the same route form a run. They have the same owners.
    """

    of_leaf: Ints  # leaf -> its stream
    leaves: Ints  # stream -> its first leaf
    segments: Ints
    lengths: Ints
    starts: Ints  # the first token of each stream, and the end
    routes: tuple[Route, ...]  # run -> route
    cuts: tuple[int, ...]  # the first stream of each run, and the end
    token_cuts: tuple[int, ...]  # the first token of each run, and the end

    def __len__(self) -> int:
        return len(self.leaves)

    def tokens(self, first: int, end: int) -> slice:
        """The tokens of a range of runs."""
        return slice(self.token_cuts[first], self.token_cuts[end])


class PackBuilder:
    """Builds one pack from the bottom to the top.

    A leaf is a segment at the top of a branch: what the heads read. Below, the leaves of a segment
    are one stream as long as their routes are the same. With one task for each segment, as in
    training, all stages have the same streams. Here segment a is needed by both tasks of
    `hybrid:1`, segment b by paraphrase alone:

        leaves      (sentiment, a)  (paraphrase, a)  (paraphrase, b)
        layer 1     stream 0        stream 1         stream 2
        layer 0     stream 0        stream 0         stream 1
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        layout: Layout,
        device: Device,
        cached: CachedPrefix | None = None,
    ) -> None:
        self.segments, self.layout, self.device, self.cached = segments, layout, device, cached
        self.buckets_by_lengths: dict[bytes, Buckets] = {}
        is_pooled = cached is not None and cached.is_pooled
        lengths = [1 if is_pooled else len(segment.ids) for segment in segments]
        self.lengths = np.array(lengths, dtype=np.int64)
        self.top_branch = layout.branches[-1]  # task -> branch
        leaves = {(self.top_branch[task], i) for i, s in enumerate(segments) for task in s.tasks}
        # By branch first, so that an owner's tokens form one span; by length within a branch.
        self.leaves = sorted(leaves, key=lambda leaf: (leaf[0], lengths[leaf[1]], leaf[1]))
        self.leaf_top, self.leaf_segment = np.array(self.leaves, dtype=np.int64).T

    def build(self) -> Pack:
        bottom = self.cached.stage if self.cached else 0
        first = below = self.streams_at(bottom)
        stages = []
        for stage in range(bottom + 1, len(self.layout.branches)):
            here = self.streams_above(below, stage)
            stages.append(self.build_stage(stage, below, here))
            below = here
        layers = max(0, self.layout.encoder.depth - bottom)
        return Pack(
            tokens=self.embedded_tokens(first),
            embeddings=() if self.cached else self.spans(first, 0, "embeddings"),
            cached=(self.cached.look_up(self.segments_and_tasks(first)),) if self.cached else (),
            layers=tuple(stages[:layers]),
            tops=tuple(stages[layers:]),
            first_S=self.move(below.starts[:-1]),
            segment_T=self.move(np.repeat(np.arange(len(below)), below.lengths)),
            length_S=self.move(below.lengths),
            task_segments=self.task_segments(),
        )

    # -------------------------------------------------------------- streams

    def streams_above(self, below: Streams, stage: int) -> Streams:
        """The streams below, unless the branches of some segment part at this stage."""
        if len(below) == len(self.leaves):
            return below
        here = self.streams_at(stage)
        return here if len(here) > len(below) else below

    def streams_at(self, stage: int) -> Streams:
        """One stream for each segment on each branch of a stage."""
        branch_of = {
            self.top_branch[task]: branch for task, branch in self.layout.branches[stage].items()
        }
        numbers: dict[tuple[int, int], int] = {}
        of_leaf = np.array(
            [numbers.setdefault((branch_of[top], i), len(numbers)) for top, i in self.leaves]
        )
        leaves = np.unique(of_leaf, return_index=True)[1]
        tops, segments = self.leaf_top[leaves], self.leaf_segment[leaves]
        lengths = self.lengths[segments]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        cuts = (0, *(np.flatnonzero(np.diff(tops)) + 1).tolist(), len(tops))
        return Streams(
            of_leaf=of_leaf,
            leaves=leaves,
            segments=segments,
            lengths=lengths,
            starts=starts,
            routes=tuple(self.layout.routes[self.task_at[tops[cut]]] for cut in cuts[:-1]),
            cuts=cuts,
            token_cuts=tuple(starts[list(cuts)].tolist()),
        )

    @cached_property
    def task_at(self) -> dict[int, str]:
        """Branch at the top -> a task on it."""
        return {branch: task for task, branch in self.top_branch.items()}

    def segments_and_tasks(self, streams: Streams) -> list[tuple[Segment, str]]:
        """Each stream's segment, and a task whose route it is on."""
        tops = self.leaf_top[streams.leaves].tolist()
        pairs = zip(streams.segments.tolist(), tops, strict=True)
        return [(self.segments[segment], self.task_at[top]) for segment, top in pairs]

    def task_segments(self) -> dict[str, Tensor]:
        """At the top, leaves and streams are the same."""
        numbers = {leaf: n for n, leaf in enumerate(self.leaves)}
        by_task: dict[str, list[int]] = {}
        for i, segment in enumerate(self.segments):
            for task in segment.tasks:
                by_task.setdefault(task, []).append(numbers[self.top_branch[task], i])
        return {task: self.move(np.array(places)) for task, places in by_task.items()}

    # -------------------------------------------------------------- stages

    def embedded_tokens(self, first: Streams) -> Tokens:
        """The tokens at the bottom; none where the pack starts above the embeddings."""
        segments = [] if self.cached else [self.segments[i] for i in first.segments.tolist()]
        nothing = np.zeros(0, np.int64)
        return Tokens(
            self.move(np.concatenate([nothing, *(segment.ids for segment in segments)])),
            self.move(np.concatenate([nothing, *(segment.types for segment in segments)])),
            self.move(nothing if self.cached else count_within(first.lengths)),
        )

    def build_stage(self, stage: int, below: Streams, here: Streams) -> PackStage:
        parts = LAYER_PARTS if stage <= self.layout.encoder.depth else ()
        return PackStage(
            gather_T=None if here is below else self.gather(below, here),
            spans={part: self.spans(here, stage, part) for part in parts},
            adapters=self.adapters(here, stage),
        )

    def gather(self, below: Streams, here: Streams) -> Tensor:
        """The place of each token in the stage below."""
        starts = below.starts[below.of_leaf[here.leaves]]
        return self.move(np.repeat(starts, here.lengths) + count_within(here.lengths))

    def spans(self, streams: Streams, stage: int, part: str) -> tuple[Span, ...]:
        """One span for neighbouring runs with the same owner; only attention needs buckets."""
        owners = [r.layers[stage - 1][part] if stage else r.embeddings for r in streams.routes]
        return tuple(
            Span(
                owners[first],
                streams.tokens(first, end),
                (self.buckets(streams, first, end),) if part == "attention" else (),
            )
            for first, end in equal_ranges(owners)
        )

    def adapters(self, streams: Streams, stage: int) -> dict[str, tuple[PackedAdapter, ...]]:
        """The adapters of a stage by site; all tasks have the same ones, with their own owners."""
        places = [route.adapters[stage - 1] for route in streams.routes]
        by_site: dict[str, list[PackedAdapter]] = {site: [] for site in SITES}
        for same_adapter in zip(*places, strict=True):
            parts = [place.parts for place in same_adapter]
            spans = tuple(
                AdapterSpan(
                    parts[first], streams.tokens(first, end), self.buckets(streams, first, end)
                )
                for first, end in equal_ranges(parts)
            )
            place = same_adapter[0]
            by_site[place.site].append(PackedAdapter(equation_of(place), spans))
        return {site: tuple(adapters) for site, adapters in by_site.items()}

    def buckets(self, streams: Streams, first: int, end: int) -> Buckets:
        """Runs with the same lengths have the same buckets, at all layers and for all tasks."""
        lengths = streams.lengths[streams.cuts[first] : streams.cuts[end]]
        key = lengths.tobytes()
        if key not in self.buckets_by_lengths:
            self.buckets_by_lengths[key] = make_buckets(lengths, self.device)
        return self.buckets_by_lengths[key]

    def move(self, values: Ints) -> Tensor:
        return to_device(values, self.device)


def equal_ranges(items: Sequence[object]) -> Iterator[tuple[int, int]]:
    """(first, end) of each range of equal neighbours."""
    cuts = [n for n in range(1, len(items)) if items[n] != items[n - 1]]
    return pairwise([0, *cuts, len(items)])
