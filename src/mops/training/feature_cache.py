"""The frozen prefix: the stages from the bottom up in which nothing learns, and their digest.

A shelf: rows of numbers for each sequence, on disk, found by the sequence's digest.

Shapes: N sequences that are asked for, K sequences on the shelf, R rows of a block, D width.
Frozen parts are computed once: for each sequence what the frozen prefix gives, kept on disk.

A segment's numbers do not depend on its company, so what was kept is what would be computed, bit
by bit. Of a trunk that is frozen as a whole one vector per sequence is kept, the pooled one; of a
part of it the hidden states of all tokens.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mops.data.batches import Segment
from mops.data.tokens import TokenTable
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.pack import Pack
from mops.model.packing import CachedPrefix, pack_segments
from mops.plans.layout import Layout
from mops.plans.routes import Route
from mops.record import processor_name
from mops.store import Store, StoredBlock, find_store

FORMAT = 1  # of what is kept


@dataclass(frozen=True)
class Prefix:
    """What no task teaches: a function of the text alone."""

    stages: int  # the embeddings, then each layer, then each place on top
    layout: Layout  # cut above the prefix
    is_pooled: bool  # nothing in the trunk learns: a sequence is its pooled vector

    @property
    def layers(self) -> int:
        return self.layout.encoder.depth


def find_prefix(network: Network) -> Prefix:
    """As far as no owner on the route of any task learns now."""
    routes = network.layout.routes.values()
    every = list(zip(*(route.stages for route in routes), strict=True))
    is_learning = [
        any(network.rates[owner] > 0 for owners in stage for owner in owners) for stage in every
    ]
    stages = (*is_learning, True).index(True)
    return Prefix(stages, cut(network.layout, stages), stages == len(every))


def cut(layout: Layout, stages: int) -> Layout:
    """The layout without what lies above."""
    above = max(0, stages - 1)  # without the embeddings
    routes = {
        task: replace(route, layers=route.layers[:above], adapters=route.adapters[:above])
        for task, route in layout.routes.items()
    }
    depth = min(layout.encoder.depth, above)
    return replace(layout, routes=routes, encoder=replace(layout.encoder, depth=depth))


def prefix_digests(network: Network, prefix: Prefix) -> dict[str, str]:
    """Task -> what names the function below: its weights and equations, not the owners' names.

    Copies with the same weights have the same digest. The machine is part of it: other kernels
    may give other last bits.
    """
    weights: dict[str, str] = {}
    for route in prefix.layout.routes.values():
        for owner in (owner for stage in route.stages for owner in stage):
            weights[owner] = weights.get(owner) or weights_digest(network.bank[owner])
    common = [FORMAT, asdict(prefix.layout.encoder), prefix.stages, machine(network)]
    common += [network.pool.__name__] if prefix.is_pooled else []
    return {
        task: digest([common, description(route, weights)])
        for task, route in prefix.layout.routes.items()
    }


def description(route: Route, weights: Mapping[str, str]) -> list[Any]:
    """The stages of a route with the digests of their weights."""
    found: list[Any] = [weights[route.embeddings]]
    found += [{part: weights[owner] for part, owner in layer.items()} for layer in route.layers]
    for stops in route.adapters:
        found.append(
            [
                [stop.site, repr(stop.addition), {p: weights[o] for p, o in stop.parts.items()}]
                for stop in stops
            ]
        )
    return found


def digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def weights_digest(module: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def machine(network: Network) -> list[Any]:
    """What decides on the last bits beside the weights."""
    device = next(network.parameters()).device
    is_compiled = any(getattr(m, "_compiled_call_impl", None) for m in network.bank.values())
    kernels = torch.backends.cpu.get_cpu_capability()
    return [
        torch.__version__,
        device.type,
        processor_name(),
        kernels,
        is_compiled,
    ]


KIND = "frozen"
Digests = NDArray[np.uint64]  # one row of two numbers for each sequence
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def digests_of(segments: Iterable[Segment]) -> Digests:
    """128 bits of the token numbers and types, which are as many as the numbers."""
    found = b"".join(
        hashlib.blake2b(segment.ids.tobytes() + segment.types.tobytes(), digest_size=16).digest()
        for segment in segments
    )
    return np.frombuffer(found, np.uint64).reshape(-1, 2)


class Shelf:
    """What is kept under one key of the store."""

    def __init__(self, store: Store, key: str, about: Mapping[str, Any]) -> None:
        self.store, self.key, self.about = store, key, about
        self.blocks: list[StoredBlock] = store.blocks(KIND, key)
        self.has_room = True
        self.index()

    def __len__(self) -> int:
        return len(self.digests_K2)

    def refresh(self) -> None:
        """See what other processes have written meanwhile."""
        known = {block.path for block in self.blocks}
        new = [of for of in self.store.blocks(KIND, self.key) if of.path not in known]
        if new:
            self.blocks += new
            self.index()

    def index(self) -> None:
        """Where the rows of each sequence begin and end, in the order of digests."""
        none = np.zeros((0, 2), np.uint64)
        digests_K2 = np.concatenate([none, *(block.arrays["digests"] for block in self.blocks)])
        starts = [block.arrays["starts"] for block in self.blocks]
        order = np.argsort(digests_K2[:, 0], kind="stable")
        self.digests_K2 = digests_K2[order]
        self.first_K = joined([of[:-1] for of in starts])[order]
        self.last_K = joined([of[1:] for of in starts])[order]
        self.block_K = np.repeat(np.arange(len(starts)), [len(of) - 1 for of in starts])[order]

    def find(self, digests_N2: Digests) -> Ints:
        """The place of each sequence in the index, -1 where it is missing.

        A block is checked before it is first used; what a broken one held is missing.
        """
        while True:
            places_N = self.look(digests_N2)
            used = np.unique(self.block_K[places_N[places_N >= 0]]).tolist()
            broken = [self.blocks[n] for n in used if not self.blocks[n].is_sound]
            if not broken:
                return places_N
            for block in broken:
                self.store.drop(block.path)
            self.blocks = [block for block in self.blocks if block not in broken]
            self.index()

    def look(self, digests_N2: Digests) -> Ints:
        # Two digests with the same first half: the second one counts as missing, which is harmless.
        places_N = np.searchsorted(self.digests_K2[:, 0], digests_N2[:, 0])
        is_there = places_N < len(self)
        is_there[is_there] = (self.digests_K2[places_N[is_there]] == digests_N2[is_there]).all(
            axis=1
        )
        return np.where(is_there, places_N, -1)

    def read(self, places_N: Ints) -> list[Floats]:
        """The rows of each sequence, as they lie on the disk."""
        firsts, lasts = self.first_K[places_N].tolist(), self.last_K[places_N].tolist()
        values = [self.blocks[n].arrays["values"] for n in self.block_K[places_N].tolist()]
        return [of[a:b] for of, a, b in zip(values, firsts, lasts, strict=True)]

    def add(self, digests_N2: Digests, rows: Sequence[Floats]) -> bool:
        """Write a block of sequences; false when the store has no room left."""
        ends = np.cumsum([0, *(len(of) for of in rows)])
        arrays = {"digests": digests_N2, "starts": ends, "values": np.concatenate(rows)}
        name = hashlib.blake2b(digests_N2.tobytes(), digest_size=16).hexdigest()
        block = self.store.add(KIND, self.key, name, arrays, self.about)
        if block is None:
            self.has_room = False
            return False
        self.blocks.append(block)
        self.index()
        return True


def joined(pieces: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *pieces])


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
        """StoredBlock by block, as long as there is room; how many sequences each step computed.

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
                pooled_ND = self.network.pool(rows, pack).index_select(0, pack.task_segments[task])
                return list(pooled_ND.cpu().numpy()[:, None, :])
        places = pack.task_segments[task]
        first, length = pack.first_S[places].tolist(), pack.length_S[places].tolist()
        values = rows.cpu().numpy()
        return [values[a : a + n] for a, n in zip(first, length, strict=True)]

    # -------------------------------------------------------------- use

    def pack(self, segments: Sequence[Segment]) -> Pack:
        """A pack that begins above the prefix; what is not kept is computed now."""
        cached = CachedPrefix(self.prefix.stages - 1, self.is_pooled, self.look_up)
        return pack_segments(segments, self.network.layout, self.device, cached)

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
