"""Packing: which tokens of a pack lie where, and which owner serves them at each stage.

Everything is computed with numpy and copied to the device at the end, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

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
Leaf = tuple[int, int]  # (branch at the top, number of the segment)
Owner = TypeVar("Owner")


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
class Run:
    """Neighbouring segments on the same route: they have the same owners at every stage."""

    route: Route
    lengths: Ints
    tokens: slice


@dataclass(frozen=True)
class Streams:
    """The segments of one stage in the order of their tokens; a stream is a segment on a branch."""

    of_leaf: dict[Leaf, int]  # leaf -> its stream
    leaves: list[Leaf]  # stream -> its first leaf
    lengths: Ints
    starts: Ints  # the first token of each stream
    runs: list[Run]


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
        cached: CachedPrefix | None,
    ) -> None:
        self.segments, self.layout, self.device, self.cached = segments, layout, device, cached
        self.buckets_by_lengths: dict[bytes, Buckets] = {}
        self.top_branch = layout.branches[-1]  # task -> branch
        self.task_at = {branch: task for task, branch in self.top_branch.items()}
        is_pooled = cached is not None and cached.is_pooled
        self.lengths = [1 if is_pooled else len(segment.ids) for segment in segments]
        leaves = {(self.top_branch[task], i) for i, s in enumerate(segments) for task in s.tasks}
        # By branch first, so that an owner's tokens form one span; by length within a branch.
        self.leaves = sorted(leaves, key=lambda leaf: (leaf[0], self.lengths[leaf[1]], leaf[1]))

    def build(self) -> Pack:
        bottom = self.cached.stage if self.cached else 0
        first = below = self.streams_at(bottom)
        stages = []
        for stage in range(bottom + 1, len(self.layout.branches)):
            here = self.streams_above(below, stage)
            stages.append(self.build_stage(stage, below, here))
            below = here
        layers = max(0, self.layout.encoder.depth - bottom)
        cached_segments = ((self.segments[i], self.task_at[top]) for top, i in first.leaves)
        return Pack(
            tokens=self.embedded_tokens(first),
            embeddings=() if self.cached else self.spans(first.runs, 0, "embeddings"),
            cached=(self.cached.look_up(list(cached_segments)),) if self.cached else (),
            layers=tuple(stages[:layers]),
            tops=tuple(stages[layers:]),
            first_S=self.move(below.starts),
            segment_T=self.move(np.repeat(np.arange(len(below.leaves)), below.lengths)),
            length_S=self.move(below.lengths),
            task_segments=self.task_segments(below),
        )

    # -------------------------------------------------------------- streams

    def streams_above(self, below: Streams, stage: int) -> Streams:
        """The streams below, unless the branches of some segment part at this stage."""
        branches = self.layout.branches
        if len(below.leaves) == len(self.leaves) or branches[stage] == branches[stage - 1]:
            return below
        here = self.streams_at(stage)
        return here if len(here.leaves) > len(below.leaves) else below

    def streams_at(self, stage: int) -> Streams:
        """One stream for each segment on each branch of a stage."""
        branch_at = self.layout.branches[stage]
        numbers: dict[tuple[int, int], int] = {}
        of_leaf: dict[Leaf, int] = {}
        leaves: list[Leaf] = []
        for top, segment in self.leaves:
            stream = branch_at[self.task_at[top]], segment
            if stream not in numbers:
                numbers[stream] = len(leaves)
                leaves.append((top, segment))
            of_leaf[top, segment] = numbers[stream]
        lengths = np.array([self.lengths[segment] for _, segment in leaves], dtype=np.int64)
        return Streams(
            of_leaf, leaves, lengths, np.cumsum(lengths) - lengths, self.runs(leaves, lengths)
        )

    def runs(self, leaves: Sequence[Leaf], lengths: Ints) -> list[Run]:
        runs, stream, token = [], 0, 0
        for top, group in groupby(top for top, _ in leaves):
            here = lengths[stream : (stream := stream + len(list(group)))]
            tokens = slice(token, token := token + int(here.sum()))
            runs.append(Run(self.layout.routes[self.task_at[top]], here, tokens))
        return runs

    def task_segments(self, top: Streams) -> dict[str, Tensor]:
        by_task: dict[str, list[int]] = {}
        for i, segment in enumerate(self.segments):
            for task in segment.tasks:
                by_task.setdefault(task, []).append(top.of_leaf[self.top_branch[task], i])
        return {task: self.move(np.array(streams)) for task, streams in by_task.items()}

    # -------------------------------------------------------------- stages

    def embedded_tokens(self, first: Streams) -> Tokens:
        """The tokens at the bottom; none where the pack starts above the embeddings."""
        if self.cached:
            return Tokens(*(self.move(np.zeros(0, np.int64)) for _ in range(3)))
        segments = [self.segments[i] for _, i in first.leaves]
        ids, types = ([getattr(s, name) for s in segments] for name in ("ids", "types"))
        positions = count_within(first.lengths)
        return Tokens(*map(self.move, (np.concatenate(ids), np.concatenate(types), positions)))

    def build_stage(self, stage: int, below: Streams, here: Streams) -> PackStage:
        parts = LAYER_PARTS if stage <= self.layout.encoder.depth else ()
        gather_T = None
        if here is not below:
            starts = below.starts[[below.of_leaf[leaf] for leaf in here.leaves]]
            gather_T = self.move(np.repeat(starts, here.lengths) + count_within(here.lengths))
        spans = {part: self.spans(here.runs, stage, part) for part in parts}
        return PackStage(gather_T, spans, self.adapters(here.runs, stage))

    def spans(self, runs: Sequence[Run], stage: int, part: str) -> tuple[Span, ...]:
        """One span for neighbouring runs with the same owner; only attention needs buckets."""

        def owner_of(run: Run) -> str:
            return run.route.layers[stage - 1][part] if stage else run.route.embeddings

        return tuple(
            Span(owner, tokens, (self.buckets(group),) if part == "attention" else ())
            for owner, tokens, group in group_runs(runs, owner_of)
        )

    def adapters(self, runs: Sequence[Run], stage: int) -> dict[str, tuple[PackedAdapter, ...]]:
        """The adapters of a stage by site; all tasks have the same ones, with their own owners."""
        by_site: dict[str, tuple[PackedAdapter, ...]] = dict.fromkeys(SITES, ())
        for n, adapter in enumerate(runs[0].route.adapters[stage - 1]):

            def parts_of(run: Run, n: int = n) -> Mapping[str, str]:
                return run.route.adapters[stage - 1][n].parts

            spans = tuple(
                AdapterSpan(parts, tokens, self.buckets(group))
                for parts, tokens, group in group_runs(runs, parts_of)
            )
            by_site[adapter.site] += (PackedAdapter(equation_of(adapter), spans),)
        return by_site

    def buckets(self, runs: Sequence[Run]) -> Buckets:
        """Segments with the same lengths have the same buckets, at all layers and for all tasks."""
        lengths = np.concatenate([run.lengths for run in runs])
        key = lengths.tobytes()
        if key not in self.buckets_by_lengths:
            self.buckets_by_lengths[key] = make_buckets(lengths, self.device)
        return self.buckets_by_lengths[key]

    def move(self, values: Ints) -> Tensor:
        return to_device(values, self.device)


def group_runs(
    runs: Sequence[Run], owner_of: Callable[[Run], Owner]
) -> Iterator[tuple[Owner, slice, list[Run]]]:
    """Neighbouring runs with the same owner, and their tokens."""
    for owner, neighbours in groupby(runs, owner_of):
        group = list(neighbours)
        yield owner, slice(group[0].tokens.start, group[-1].tokens.stop), group
