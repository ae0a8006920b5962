"""The feature cache: the output of the frozen prefix of a network for each sequence, on disk.

The frozen prefix is everything below the lowest owner that learns. Outputs do not depend on batch
composition, so cached features are bit-identical to computed ones. Of a fully frozen encoder the
cache holds one pooled vector per sequence, otherwise the hidden states of all tokens.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mops.data.batches import Segment, TaskData, make_segments, split_batches
from mops.data.schedule import PlannedStage, Schedule
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import CachedPrefix, Pack, pack_segments
from mops.plans.layout import Layout
from mops.record import processor_name
from mops.store import Store, StoredBlock, find_store
from mops.training.tracking import Tell

FORMAT = 2  # of the cached arrays; part of every key
KIND = "frozen"
PACK_TOKENS = 2048  # per pack when the cache is filled: the fastest of 512 to 8192 (6 x 384)
BLOCK_BYTES = 8 * 2**20  # written at a time: what a kill may lose
WINDOW = 65536  # rows whose sequences are in memory at a time

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class FrozenPrefix:
    """The stages of a network that no task trains: a function of the text alone."""

    stages: int  # the embeddings, then each layer, then each place on top
    layout: Layout  # without everything above the prefix
    is_pooled: bool  # nothing in the encoder learns: a sequence is its pooled vector

    @property
    def owners(self) -> set[str]:
        routes = self.layout.routes.values()
        return {owner for route in routes for stage in route.stages for owner in stage}


def find_prefix(network: Network) -> FrozenPrefix:
    """The prefix under the learning rates now in force."""
    layout = network.layout
    stages = layout.frozen_stages(network.rates)
    layers = max(0, stages - 1)  # without the embeddings
    routes = {
        task: replace(route, layers=route.layers[:layers], adapters=route.adapters[:layers])
        for task, route in layout.routes.items()
    }
    reads_words = any(task.answer.reads_words for task in layout.tasks.values())
    is_pooled = stages == len(layout.branches) and not reads_words
    return FrozenPrefix(stages, replace(layout, routes=routes), is_pooled)


def prefix_keys(network: Network, prefix: FrozenPrefix) -> dict[str, str]:
    """Task -> the key of its cached features: a digest of weights, equations and machine.

    Owners' names are not part of it, so copies with equal weights share an entry. The machine is:
    other kernels may give other last bits.
    """
    weights = {owner: digest_weights(network.bank[owner]) for owner in prefix.owners}
    is_compiled = any(getattr(m, "_compiled_call_impl", None) for m in network.bank.values())
    device, kernels = next(network.parameters()).device, torch.backends.cpu.get_cpu_capability()
    machine = [torch.__version__, device.type, processor_name(), kernels, is_compiled]
    pool = network.pool.__name__ if prefix.is_pooled else None
    common = [FORMAT, prefix.layout.encoder, prefix.stages, pool, machine]
    keys = {}
    for task, route in prefix.layout.routes.items():
        stages = [[weights[owner] for owner in stage] for stage in route.stages]
        adapters = [[(s.site, s.addition, [*s.parts]) for s in sites] for sites in route.adapters]
        keys[task] = hashlib.sha256(repr([common, stages, adapters]).encode()).hexdigest()[:32]
    return keys


def digest_weights(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def digest_segment(segment: Segment) -> bytes:
    """128 bits of the token ids and token types."""
    return hashlib.blake2b(segment.ids.tobytes() + segment.types.tobytes(), digest_size=16).digest()


def open_cache(network: Network, store: Store | None = None) -> FeatureCache | None:
    """The cache of the frozen prefix; None if that is less than a layer, or the cache is off.

    It is valid for the learning rates now in force: another stage may need another cache.
    """
    store, layers = store or find_store(), find_prefix(network).layout.depth
    return FeatureCache(network, store) if store and layers else None


class FeatureCache:
    """The outputs of a network's frozen prefix, sequence by sequence; without a store, computed.

    Other processes may add blocks to the store at any time.
    """

    def __init__(self, network: Network, store: Store | None) -> None:
        self.network, self.store = network, store
        self.prefix = prefix = find_prefix(network)
        self.is_pooled, self.device = prefix.is_pooled, next(network.parameters()).device
        # Pooled vectors are small: all are cached. Hidden states are large: only if used twice.
        self.least_uses = 1 if prefix.is_pooled else 2
        for owner in prefix.owners:
            network.bank[owner].eval()
        shape = network.layout.encoder
        self.about = {
            "what": "pooled vectors" if prefix.is_pooled else "hidden states",
            "encoder": f"{shape.family} {shape.depth} x {shape.width}",
            "layers": prefix.layout.depth,
        }
        self.keys = prefix_keys(network, prefix)  # task -> key
        self.blocks: set[Path] = set()  # that are open
        self.places: dict[tuple[str, bytes], tuple[StoredBlock, int]] = {}  # block, number in it
        self.found = self.computed = 0  # sequences that `fill` found and computed
        for key in set(self.keys.values()):
            self.open_new(key)

    def open_new(self, key: str) -> None:
        """Open the blocks that were written since the last call."""
        for block in self.store.blocks(KIND, key, known=self.blocks) if self.store else ():
            self.open(key, block)

    def open(self, key: str, block: StoredBlock) -> None:
        self.blocks.add(block.path)
        for n, digest in enumerate(block.arrays["digests"]):
            self.places[key, digest.tobytes()] = block, n

    def get(self, key: str, segment: Segment) -> Floats | None:
        """The features of a segment, mapped from disk; None if they are missing.

        A block is verified before it is first used; the contents of a damaged one are missing.
        """
        block, n = self.places.get((key, digest_segment(segment)), (None, 0))
        if block is None or self.store is None:
            return None
        if not block.is_sound:
            self.store.drop(block.path)
            self.blocks.discard(block.path)
            self.places = {d: place for d, place in self.places.items() if place[0] is not block}
            return None
        first, end = block.arrays["starts"][n : n + 2].tolist()
        values: Floats = block.arrays["values"][first:end]
        return values

    def add(self, key: str, segments: Sequence[Segment], features: Sequence[Floats]) -> bool:
        """Write the features of some segments as a block; False if the store has no room."""
        digests = b"".join(map(digest_segment, segments))
        arrays = {
            "digests": np.frombuffer(digests, np.uint64).reshape(-1, 2),
            "starts": np.cumsum([0, *map(len, features)]),
            "values": np.concatenate(features),
        }
        name = hashlib.blake2b(digests, digest_size=16).hexdigest()
        block = self.store.add(KIND, key, arrays, self.about, name) if self.store else None
        if block is not None:
            self.open(key, block)
        return block is not None

    def fill(self, task: str, segments: Iterable[Segment], tell: Tell = lambda text: None) -> None:
        """Compute and store the missing features of a task's sequences, each sequence once.

        Every process takes the blocks in a random order and skips what others wrote meanwhile, so
        two processes rarely compute the same block. Features that do not fit into the store are
        computed whenever they are needed.
        """
        key, row_bytes, done = self.keys[task], 4 * self.network.layout.encoder.width, 0
        missing = self.missing(key, segments)
        rows = (lambda _: 1) if self.is_pooled else token_count
        blocks = list(split_batches(missing, rows, BLOCK_BYTES // row_bytes))
        random.SystemRandom().shuffle(blocks)
        for block in blocks:
            self.open_new(key)
            left = [segment for segment in block if self.get(key, segment) is None]
            computed: list[Floats] = []
            for chunk in token_chunks(left):
                computed += self.compute(key, chunk)
                done += len(chunk)
                self.computed += len(chunk)
                tell(f"computing frozen layers for {task}, {done:,} of {len(missing):,} texts")
            if left and not self.add(key, left, computed):
                return

    def missing(self, key: str, segments: Iterable[Segment]) -> list[Segment]:
        """The distinct segments that are not cached, by length."""
        distinct = {digest_segment(segment): segment for segment in segments}.values()
        missing = [segment for segment in distinct if self.get(key, segment) is None]
        self.found += len(distinct) - len(missing)
        return sorted(missing, key=token_count)

    def compute(self, key: str, segments: Sequence[Segment]) -> list[Floats]:
        """The output of the prefix for each segment, without a graph and without dropout."""
        task = next(task for task, own in self.keys.items() if own == key)
        own = [Segment(segment.ids, segment.types, (task,)) for segment in segments]
        pack = pack_segments(own, self.prefix.layout, self.device)
        places = pack.task_segments[task]
        with torch.inference_mode():
            rows = encode(self.network.bank, pack)
            if self.is_pooled:
                pooled_ND = self.network.pool(rows, pack).index_select(0, places)
                return list(pooled_ND.cpu().numpy()[:, None, :])
        first, length = pack.first_S[places].tolist(), pack.length_S[places].tolist()
        values = rows.cpu().numpy()
        return [values[a : a + n] for a, n in zip(first, length, strict=True)]

    def pack(self, segments: Sequence[Segment]) -> Pack:
        """A pack that starts above the prefix; missing features are computed now."""
        cached = CachedPrefix(self.prefix.stages - 1, self.is_pooled, self.look_up)
        return pack_segments(segments, self.network.layout, self.device, cached)

    def look_up(self, streams: Sequence[tuple[Segment, str]]) -> Tensor:
        """The features of (segment, task) pairs, one after the other."""
        features: dict[int, Floats] = {}
        for key in set(self.keys.values()):
            own = [n for n, (_, task) in enumerate(streams) if self.keys[task] == key]
            features |= zip(own, self.read(key, [streams[n][0] for n in own]), strict=True)
        values = np.concatenate([features[n] for n in range(len(streams))])
        return torch.from_numpy(values).to(self.device)

    def read(self, key: str, segments: Sequence[Segment]) -> list[Floats]:
        """The features of each segment; those that are missing are computed together."""
        cached = [self.get(key, segment) for segment in segments]
        missing = [s for s, features in zip(segments, cached, strict=True) if features is None]
        computed = (row for chunk in token_chunks(missing) for row in self.compute(key, chunk))
        return [next(computed) if features is None else features for features in cached]

    def pooled(self, task: str, segments: Sequence[Segment]) -> Floats:
        """The pooled vector of each segment, before any pooler; filled if missing."""
        if self.store:
            self.fill(task, segments)
        return np.concatenate(self.read(self.keys[task], segments))


def token_count(segment: Segment) -> int:
    return len(segment.ids)


def token_chunks(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Neighbouring segments that are computed as one pack."""
    return list(split_batches(segments, token_count, PACK_TOKENS))


def reused_rows(
    cache: FeatureCache, schedule: Schedule, stage: PlannedStage, step: int
) -> dict[str, Rows]:
    """Task -> the training rows to cache for the steps left; none if texts are augmented."""
    before, after = schedule.rows_before(step), schedule.rows_before(stage.stop)
    reused = {}
    for task in () if stage.training.augment else schedule.sizes:
        places = schedule.places(task, before[task], after[task] - before[task])
        uses = np.bincount(np.array([place.row for place in places], dtype=np.int64))
        reused[task] = np.flatnonzero(uses >= cache.least_uses)
    return reused


def fill_rows(
    cache: FeatureCache, data: Mapping[str, TaskData], rows: Mapping[str, Rows], tell: Tell
) -> None:
    for task, chosen in rows.items():
        for window in np.split(chosen, range(WINDOW, len(chosen), WINDOW)):
            cache.fill(task, make_segments((task,), data[task], window.tolist()), tell)
