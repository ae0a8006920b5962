"""What a candidate computes once before its steps, estimated from the rows of a few of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mops.data.batches import Segment, TaskData
from mops.encoder.packing import Packer
from mops.fit.cache import FrozenCache, by_tokens, open_cache, segments_of
from mops.fit.frozen import Rows, fill, rows_worth, windows
from mops.fit.loop import Loop
from mops.fit.shelf import digests_of
from mops.store import Store, find_store
from mops.survey.costs.stopwatch import Stopwatch
from mops.survey.costs.typical import Typical


@dataclass(frozen=True)
class Encoding:
    """How the packs of a stage begin, and what its frozen part takes once."""

    cache: FrozenCache | None = None
    sample: tuple[tuple[str, Sequence[Segment]], ...] = ()  # (key, sequences of one pack)
    sequences: int = 0  # different ones that the steps of the stage take
    tokens: int = 0  # of all these

    @property
    def pack(self) -> Packer | None:
        return self.cache.pack if self.cache else None

    @property
    def measured(self) -> int:
        """Sequences that are really computed; the seconds of the others are extrapolated."""
        return sum(len(segments) for _, segments in self.sample)

    def seconds(self) -> float:
        """Of all sequences: as many times those of the sample as they have tokens."""
        if not self.cache or not self.sample:
            return 0.0
        stopwatch = Stopwatch(self.cache.device.type)
        for key, segments in self.sample:
            self.cache.compute(key, segments)
        tokens = sum(len(segment.ids) for _, segments in self.sample for segment in segments)
        return stopwatch.seconds() * self.tokens / tokens


def encoding_of(loop: Loop, typical: Typical, scratch: Path) -> Encoding:
    """As `Frozen.enter` would, but only the rows of typical steps are computed and kept.

    They are kept in a store of their own: what other runs left behind must not count.
    """
    stage = typical.stage
    cache = open_cache(loop.network, Store(scratch / "store")) if find_store() else None
    worth = rows_worth(cache, loop.schedule, stage, stage.first) if cache else {}
    if cache is None or not any(map(len, worth.values())):
        return Encoding()
    sample = sampled(cache, loop.data, chosen_in(loop, typical.rounds[0], worth))
    fill(cache, loop.data, chosen_in(loop, typical.steps, worth), lambda _: None)
    chunks = tuple((key, chunk) for key, of in sample.items() for chunk in by_tokens(of))
    return Encoding(cache, chunks, *count_distinct(cache, loop.data, worth))


def chosen_in(loop: Loop, steps: Iterable[int], worth: Mapping[str, Rows]) -> dict[str, Rows]:
    """Those of the rows that come in these steps."""
    taken: dict[str, set[int]] = {task: set() for task in worth}
    for step in steps:
        for task, places in loop.chosen(step, loop.schedule.steps[step]).items():
            taken[task] |= {place.row for place in places}
    return {task: np.intersect1d(rows, list(taken[task])) for task, rows in worth.items()}


def sampled(
    cache: FrozenCache, data: Mapping[str, TaskData], rows: Mapping[str, Rows]
) -> dict[str, list[Segment]]:
    """Key of the cache -> the different sequences of these rows, by length."""
    found: dict[str, list[Segment]] = {}
    for task, chosen in rows.items():
        segments = segments_of(task, data[task].tokens, chosen.tolist())
        found.setdefault(cache.keys[task], []).extend(segments)
    return {key: cache.missing(key, segments) for key, segments in found.items() if segments}


def count_distinct(
    cache: FrozenCache, data: Mapping[str, TaskData], rows: Mapping[str, Rows]
) -> tuple[int, int]:
    """How many different sequences these rows have, and how many tokens those."""
    pieces: dict[str, list[tuple[Rows, Rows]]] = {}
    for task, window in windows(rows):
        segments = segments_of(task, data[task].tokens, window.tolist())
        lengths = np.array([len(segment.ids) for segment in segments], dtype=np.int64)
        digests = digests_of(segments).view(np.int64)
        pieces.setdefault(cache.keys[task], []).append((digests, lengths))
    sequences = tokens = 0
    for of in pieces.values():
        digests, lengths = (np.concatenate(arrays) for arrays in zip(*of, strict=True))
        _, first = np.unique(digests, axis=0, return_index=True)
        sequences, tokens = sequences + len(first), tokens + int(lengths[first].sum())
    return sequences, tokens
