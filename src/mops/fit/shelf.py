"""A shelf: rows of numbers for each sequence, on disk, found by the sequence's digest.

Shapes: N sequences that are asked for, K sequences on the shelf, R rows of a block, D width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mops.block_files import Block
from mops.data.batches import Segment
from mops.store import Store

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
        self.blocks: list[Block] = store.blocks(KIND, key)
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
