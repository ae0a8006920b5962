"""Packing: the tokens of many segments in one flat tensor, and the owners that serve them.

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

In training a segment has several tasks only where they read the same rows of a file. A pack may
also start above the embeddings, from cached hidden states. From cached pooled vectors it has no
stages at all, and each segment is one token: its vector.

Everything is computed with numpy and copied to the device at the end, without waiting for it.

Shapes: T tokens, S segments at the top.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from mops.data.batches import Segment
from mops.model.adapters import Equation, equation_of
from mops.model.attention import (
    Buckets,
    Device,
    Ints,
    Turns,
    count_within,
    make_buckets,
    rotary_table,
    to_device,
)
from mops.plans.layout import Layout, Route
from mops.plans.rows import LAYER_PARTS, SITES, AdapterSite, Addition
from mops.plans.shapes import GLOBAL, Norms, Scope

Owner = TypeVar("Owner")
Tokens = tuple[Tensor, ...]  # ids, types and positions


class Span(NamedTuple, Generic[Owner]):  # a pack has many of them, and a tuple is quick to make
    """A range of tokens, the owner that serves them and, for attention, their buckets."""

    owner: Owner  # of an adapter: part -> owner, empty where a task has no such adapter
    tokens: slice
    buckets: tuple[Buckets, ...] = ()


Spans = tuple[Span[str], ...]
Adapters = tuple[tuple[Equation, tuple[Span[Mapping[str, str]], ...]], ...]  # at one site


@dataclass(frozen=True)
class PackStage:
    """One layer, or one place on top of the layers."""

    gather_T: Tensor | None  # the token of the stage below for each token; None: the same tokens
    spans: Mapping[str, Spans]  # by part
    adapters: Mapping[str, Adapters]  # by site
    norms: Norms

    def fan_out(self, hidden_TD: Tensor) -> Tensor:
        """Repeat the segments whose routes part here."""
        return hidden_TD if self.gather_T is None else hidden_TD.index_select(0, self.gather_T)


@dataclass(frozen=True)
class Pack:
    """Everything the encoder needs to know about the texts of one step."""

    embeddings: tuple[tuple[str, Tokens], ...]  # owner, and the tokens that it embeds
    cached: tuple[Tensor, ...]  # hidden states to start from, instead of the embeddings
    layers: tuple[PackStage, ...]
    tops: tuple[PackStage, ...]  # places for adapters on top of the last layer
    first_S: Tensor  # the first token of each segment at the top
    segment_T: Tensor  # the segment of each token at the top
    length_S: Tensor
    task_segments: Mapping[str, Tensor]  # task -> its segments at the top, in the given order


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
class SegmentRun:
    """Neighbouring segments on the same route: they have the same owners at every stage."""

    route: Route
    lengths: Ints
    tokens: slice


@dataclass(frozen=True)
class Streams:
    """The segments of one stage in the order of their tokens; a stream is a segment on a branch."""

    of_leaf: list[int]  # leaf -> its stream
    leaves: list[int]  # stream -> its first leaf
    lengths: Ints
    starts: Ints  # the first token of each stream
    runs: list[SegmentRun]


@dataclass
class PackBuilder:
    """Builds one pack from the bottom to the top.

    A leaf is a segment at the top of a branch: what the heads read. Below, the leaves of a segment
    are one stream as long as their routes are the same. With one task for each segment all stages
    have the same streams. Here segment a is needed by both tasks of
    `hybrid:1`, segment b by paraphrase alone:

        leaves      (sentiment, a)  (paraphrase, a)  (paraphrase, b)
        layer 1     stream 0        stream 1         stream 2
        layer 0     stream 0        stream 0         stream 1
    """

    segments: Sequence[Segment]
    layout: Layout
    device: Device
    cached: CachedPrefix | None

    def __post_init__(self) -> None:
        self.move = partial(to_device, device=self.device)
        self.encoder = self.layout.encoder
        self.known_buckets: dict[tuple[bytes, Scope], Buckets] = {}
        self.top_branch = top = self.layout.branches[-1]  # task -> branch
        self.task_at = {branch: task for task, branch in top.items()}
        is_pooled = self.cached is not None and self.cached.is_pooled
        self.lengths = [1 if is_pooled else len(segment.ids) for segment in self.segments]
        leaves = {(top[task], i) for i, s in enumerate(self.segments) for task in s.tasks}
        # (branch, number of the segment): by branch first, so that an owner's tokens form one
        # span; by length within a branch.
        self.leaves = sorted(leaves, key=lambda leaf: (leaf[0], self.lengths[leaf[1]], leaf[1]))

    def build(self) -> Pack:
        bottom = self.cached.stage if self.cached else 0
        first = below = self.streams_at(bottom)
        stages = []
        for stage in range(bottom + 1, len(self.layout.branches)):
            here = self.streams_above(below, stage)
            stages.append(self.build_stage(stage, below, here))
            below = here
        layers = max(0, self.layout.depth - bottom)
        return Pack(
            embeddings=() if self.cached else self.embedded_tokens(first),
            cached=(self.cached.look_up(self.sequences(first)),) if self.cached else (),
            layers=tuple(stages[:layers]),
            tops=tuple(stages[layers:]),
            first_S=self.move(below.starts),
            segment_T=self.move(np.repeat(np.arange(len(below.leaves)), below.lengths)),
            length_S=self.move(below.lengths),
            task_segments=self.task_segments(),
        )

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
        of_leaf: list[int] = []
        leaves: list[int] = []
        for leaf, (top, segment) in enumerate(self.leaves):
            place = branch_at[self.task_at[top]], segment
            of_leaf.append(numbers.setdefault(place, len(leaves)))
            if of_leaf[-1] == len(leaves):
                leaves.append(leaf)
        lengths = np.array([self.lengths[self.leaves[leaf][1]] for leaf in leaves], dtype=np.int64)
        runs, stream, token = [], 0, 0
        for top, group in groupby(self.leaves[leaf][0] for leaf in leaves):
            here = lengths[stream : (stream := stream + len(list(group)))]
            tokens = slice(token, token := token + int(here.sum()))
            runs.append(SegmentRun(self.layout.routes[self.task_at[top]], here, tokens))
        return Streams(of_leaf, leaves, lengths, np.cumsum(lengths) - lengths, runs)

    def sequences(self, streams: Streams) -> list[tuple[Segment, str]]:
        """The segment of each stream, and a task that it serves."""
        leaves = (self.leaves[leaf] for leaf in streams.leaves)
        return [(self.segments[segment], self.task_at[top]) for top, segment in leaves]

    def task_segments(self) -> dict[str, Tensor]:
        """At the top, every leaf is a stream of its own."""
        numbers = {leaf: n for n, leaf in enumerate(self.leaves)}
        by_task: dict[str, list[int]] = {}
        for i, segment in enumerate(self.segments):
            for task in segment.tasks:
                by_task.setdefault(task, []).append(numbers[self.top_branch[task], i])
        return {task: self.move(np.array(streams)) for task, streams in by_task.items()}

    def embedded_tokens(self, streams: Streams) -> tuple[tuple[str, Tokens], ...]:
        segments = [segment for segment, _ in self.sequences(streams)]
        ids, types = ([getattr(s, name) for s in segments] for name in ("ids", "types"))
        flat = np.concatenate(ids), np.concatenate(types), count_within(streams.lengths)
        tokens = [self.move(values) for values in flat]
        spans = self.spans(streams.runs, [run.route.embeddings for run in streams.runs])
        return tuple((s.owner, tuple(values[s.tokens] for values in tokens)) for s in spans)

    def build_stage(self, stage: int, below: Streams, here: Streams) -> PackStage:
        gather_T = None
        if here is not below:
            starts = below.starts[[below.of_leaf[leaf] for leaf in here.leaves]]
            gather_T = self.move(np.repeat(starts, here.lengths) + count_within(here.lengths))
        routes = [run.route for run in here.runs]
        scopes = {"attention": (self.encoder.scope(stage - 1),)}
        spans = {}
        for part in LAYER_PARTS if stage <= self.layout.depth else ():
            owners = [route.layers[stage - 1][part] for route in routes]
            spans[part] = self.spans(here.runs, owners, scopes.get(part, ()))
        adapters: dict[str, Adapters] = dict.fromkeys(SITES, ())
        for site, parts in adapters_of(self.layout.plan.additions, stage - 1, routes):
            adapter = self.spans(here.runs, parts, (GLOBAL,))
            adapters[site.site] += ((equation_of(site), adapter),)
        return PackStage(gather_T, spans, adapters, self.encoder.norms(stage - 1))

    def spans(
        self,
        runs: Sequence[SegmentRun],
        owners: Iterable[Owner],
        scopes: tuple[Scope, ...] = (),  # of attention: one
    ) -> tuple[Span[Owner], ...]:
        """One span for neighbouring runs with the same owner."""
        spans = []
        for owner, pairs in groupby(zip(owners, runs, strict=True), key=lambda pair: pair[0]):
            group = [run for _, run in pairs]
            tokens = slice(group[0].tokens.start, group[-1].tokens.stop)
            spans.append(Span(owner, tokens, tuple(self.buckets(group, s) for s in scopes)))
        return tuple(spans)

    def buckets(self, runs: Sequence[SegmentRun], scope: Scope) -> Buckets:
        """Segments with the same lengths have the same buckets, wherever as much is seen."""
        lengths = np.concatenate([run.lengths for run in runs])
        key = lengths.tobytes(), scope
        if key not in self.known_buckets:
            turns = (self.turns(lengths, scope.rotary),) if scope.rotary else ()
            self.known_buckets[key] = make_buckets(lengths, self.device, scope.reach, turns)
        return self.known_buckets[key]

    def turns(self, lengths: Ints, base: float) -> Turns:
        """The rotary angles of each token."""
        width = self.encoder.width // self.encoder.heads
        cos, sin = rotary_table(base, width, self.encoder.positions, self.device)
        positions_T = self.move(count_within(lengths))
        return cos.index_select(0, positions_T), sin.index_select(0, positions_T)


def adapters_of(
    additions: Sequence[Addition], stage: int, routes: Sequence[Route]
) -> Iterator[tuple[AdapterSite, list[Mapping[str, str]]]]:
    """Each adapter of a stage, and its owners on each of some routes: none where it is absent."""
    for addition in additions:
        for place in addition.sites:
            own = [
                [s for s in r.adapters[stage] if s.addition is addition and s.site == place]
                for r in routes
            ]
            if sites := list(chain(*own)):
                yield sites[0], [found[0].parts if found else {} for found in own]
