"""Frozen parts are computed once: for each sequence what the frozen prefix gives, kept on disk.

A segment's numbers do not depend on its company, so what was kept is what would be computed, bit
by bit. Of a trunk that is frozen as a whole one vector per sequence is kept, the pooled one; of a
part of it the hidden states of all tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Segment
from mops.data.tokens import TokenTable
from mops.encoder.encoder import encode
from mops.encoder.network import Network
from mops.encoder.pack import Pack
from mops.encoder.packing import Known, pack_segments
from mops.fit.prefix import Prefix, find_prefix, prefix_digests
from mops.fit.shelf import Floats, Shelf, digests_of
from mops.store import Store, find_store

Tell = Callable[[int, int], None]  # how many sequences are done, of how many
TOKENS = 2048  # of one pack when the cache is filled: the quickest of 512 to 8192 (6 x 384)
BLOCK_BYTES = 8 * 2**20  # written at a time: what a kill may lose


def open_cache(network: Network, store: Store | None = None) -> FrozenCache | None:
    """The cache of what is frozen now; none if that is less than a layer, or the cache is off.

    It holds as long as the rates in force: a stage that freezes or thaws something needs another.
    """
    prefix, store = find_prefix(network), store or find_store()
    return FrozenCache(network, prefix, store) if store and prefix.layers else None


class FrozenCache:
    """What the frozen prefix of a network gives, sequence by sequence."""

    def __init__(self, network: Network, prefix: Prefix, store: Store) -> None:
        self.network, self.prefix = network, prefix
        self.device = next(network.parameters()).device
        for route in prefix.layout.routes.values():
            for owner in (owner for stage in route.stages for owner in stage):
                network.bank[owner].eval()
        self.keys = prefix_digests(network, prefix)  # task -> key
        self.shelves = {key: Shelf(store, key, self.about()) for key in self.keys.values()}
        self.found = self.computed = 0  # sequences that a fill found, and that it computed

    def about(self) -> dict[str, object]:
        shape = self.network.layout.encoder
        encoder = f"{shape.family} {shape.depth} x {shape.width}"
        what = "pooled vectors" if self.prefix.is_pooled else "hidden states"
        return {"what": what, "encoder": encoder, "layers": self.prefix.layers}

    @property
    def is_pooled(self) -> bool:
        return self.prefix.is_pooled

    # -------------------------------------------------------------- fill

    def fill(self, wanted: Mapping[str, Sequence[Segment]], tell: Tell = lambda *_: None) -> None:
        """Compute and keep what is missing of these sequences of tasks, each once.

        Several processes that want the same share the work. What does not fit into the store is
        computed whenever it is needed.
        """
        by_key: dict[str, list[Segment]] = {}
        for task, segments in wanted.items():
            by_key.setdefault(self.keys[task], []).extend(segments)
        missing = {key: self.missing(key, segments) for key, segments in by_key.items()}
        total, done = sum(map(len, missing.values())), 0
        for key, segments in missing.items():
            for count in self.fill_shelf(key, segments):
                done += count
                self.computed += count
                tell(done, total)

    def missing(self, key: str, segments: Sequence[Segment]) -> list[Segment]:
        """Those that are not kept, each once, by length."""
        digests_N2 = digests_of(segments)
        _, first = np.unique(digests_N2, axis=0, return_index=True)
        is_missing = self.shelves[key].find(digests_N2[first]) < 0
        self.found += int((~is_missing).sum())
        chosen = [segments[n] for n in first[is_missing].tolist()]
        return sorted(chosen, key=lambda segment: len(segment.ids))

    def fill_shelf(self, key: str, segments: Sequence[Segment]) -> Iterator[int]:
        """Block by block, as long as there is room; how many sequences each step computed.

        Every process takes the blocks in an order of its own and looks first whether another has
        written the next one: so they meet at the same block seldom.
        """
        shelf, parts = self.shelves[key], self.blocks(segments)
        random.SystemRandom().shuffle(parts)
        for part in parts:
            shelf.refresh()
            is_missing = shelf.find(digests_of(part)) < 0
            left = [segment for segment, missing in zip(part, is_missing, strict=True) if missing]
            if not shelf.has_room:
                return
            rows: list[Floats] = []
            for chunk in by_tokens(left):
                rows += self.compute(key, chunk)
                yield len(chunk)
            if left:
                shelf.add(digests_of(left), rows)

    def blocks(self, segments: Sequence[Segment]) -> list[Sequence[Segment]]:
        """Neighbours, as many as are written at a time."""
        row = 4 * self.network.layout.encoder.width
        sizes = [row * (1 if self.is_pooled else len(segment.ids)) for segment in segments]
        number = np.cumsum(sizes) // BLOCK_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(segments)]
        return [segments[a:b] for a, b in pairwise(cuts) if b > a]

    def compute(self, key: str, segments: Sequence[Segment]) -> list[Floats]:
        """What the prefix gives for each segment; frozen, so without a graph and without chance."""
        task = next(task for task, own in self.keys.items() if own == key)
        own = [Segment(segment.ids, segment.types, (task,)) for segment in segments]
        pack = pack_segments(own, self.prefix.layout, self.device)
        with torch.inference_mode():
            rows = encode(self.network.bank, pack)
            if self.is_pooled:
                pooled_ND = self.network.pool(rows, pack).index_select(0, pack.found[task])
                return list(pooled_ND.cpu().numpy()[:, None, :])
        places = pack.found[task]
        first, length = pack.first_S[places].tolist(), pack.length_S[places].tolist()
        values = rows.cpu().numpy()
        return [values[a : a + n] for a, n in zip(first, length, strict=True)]

    # -------------------------------------------------------------- use

    def pack(self, segments: Sequence[Segment]) -> Pack:
        """A pack that begins above the prefix; what is not kept is computed now."""
        known = Known(self.prefix.stages - 1, self.is_pooled, self.look_up)
        return pack_segments(segments, self.network.layout, self.device, known)

    def look_up(self, streams: Sequence[tuple[Segment, str]]) -> Tensor:
        """The rows of these segments on the routes of these tasks, one after the other."""
        rows: dict[int, Floats] = {}
        keys = [self.keys[task] for _, task in streams]
        for key in dict.fromkeys(keys):
            numbers = [n for n, own in enumerate(keys) if own == key]
            found = self.rows_of(key, [streams[n][0] for n in numbers])
            rows |= zip(numbers, found, strict=True)
        values = np.concatenate([rows[n] for n in range(len(streams))])
        return torch.from_numpy(values).to(self.device)

    def rows_of(self, key: str, segments: Sequence[Segment]) -> list[Floats]:
        digests_N2 = digests_of(segments)
        places_N = self.shelves[key].find(digests_N2)
        is_missing = places_N < 0
        rows = iter(self.shelves[key].read(places_N[~is_missing]))
        if not is_missing.any():
            return list(rows)
        missing = [segments[n] for n in np.flatnonzero(is_missing).tolist()]
        computed = iter(self.compute(key, missing))
        return [next(computed) if missed else next(rows) for missed in is_missing.tolist()]

    def pooled(
        self, task: str, table: TokenTable, tell: Tell = lambda *_: None
    ) -> NDArray[np.float32]:
        """The pooled vector of every sequence of a table, before any pooler; filled if missing."""
        segments = segments_of(task, table, range(len(table)))
        self.fill({task: segments}, tell)
        chunks = [segments[n : n + TOKENS] for n in range(0, len(segments), TOKENS)]
        rows = [row for chunk in chunks for row in self.rows_of(self.keys[task], chunk)]
        width = self.network.layout.encoder.width
        return np.concatenate([np.zeros((0, width), np.float32), *rows])


def segments_of(task: str, table: TokenTable, rows: Sequence[int]) -> list[Segment]:
    return [Segment(*sequence, (task,)) for row in rows for sequence in table.row(row)]


def by_tokens(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Neighbours, as many as fit one pack."""
    ends = np.cumsum([len(segment.ids) for segment in segments])
    chunk = (ends - 1) // TOKENS
    for number in np.unique(chunk):
        first, last = np.searchsorted(chunk, [number, number + 1]).tolist()
        yield list(segments[first:last])
