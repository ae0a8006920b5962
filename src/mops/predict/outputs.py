"""Outputs: every distinct sequence once through the encoder, then the heads on all rows at once.

Shapes: S segments at the top of the packs, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Segment
from mops.data.tokens import TokenTable
from mops.encoder.encoder import encode
from mops.encoder.network import Network
from mops.encoder.packing import Packer, pack_segments

Ints = NDArray[np.int64]
WINDOW = 4096  # rows of a task that are computed together; bounds memory
TOKENS = 2048  # of one pack: enough for full speed, few enough to stay in the processor's cache


@dataclass(frozen=True)
class Asked:
    """The distinct sequences of a window, and which of them each task reads, row by row."""

    segments: Sequence[Segment]
    numbers: Mapping[str, Ints]


@dataclass(frozen=True)
class Pooled:
    """The vectors at the top of every branch, and where each task finds those of a segment."""

    vectors_SD: Tensor
    places: Mapping[str, Ints]


def compute_outputs(
    network: Network,
    tables: Mapping[str, TokenTable],
    pack: Packer | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, NDArray[np.float32]]:
    """The outputs of each task for every row of its table.

    A sequence that occurs twice, or that several tasks ask, is computed once as far as their
    routes are the same.
    """
    if network.training:
        network.eval()
    pack = pack or partial(pack_segments, layout=network.layout, device=device)
    found = {
        task: np.zeros((len(table), network.layout.tasks[task].outputs), np.float32)
        for task, table in tables.items()
    }
    with torch.inference_mode():
        for start in range(0, max(map(len, tables.values()), default=0), WINDOW):
            rows = slice(start, start + WINDOW)
            asked = find_distinct(tables, rows)
            pooled = pool_segments(network, asked, pack)
            for task, numbers in asked.numbers.items():
                places = torch.from_numpy(pooled.places[task][numbers]).to(device)
                outputs = network.answer(task, pooled.vectors_SD, places)
                found[task][rows] = outputs.float().cpu().numpy()
    return found


def find_distinct(tables: Mapping[str, TokenTable], rows: slice) -> Asked:
    """Each sequence once, with all the tasks that ask it."""
    readers: dict[int, list[str]] = {}  # tasks that read one table are one reader
    for task, table in tables.items():
        readers.setdefault(id(table), []).append(task)
    number_of: dict[tuple[bytes, bytes], int] = {}
    found: list[tuple[NDArray[np.int32], NDArray[np.int32], list[str]]] = []
    numbers: dict[str, Ints] = {}
    for tasks in readers.values():
        table, mine = tables[tasks[0]], []
        for row in range(len(table))[rows]:
            for ids, types in table.row(row):
                mine.append(number_of.setdefault((ids.tobytes(), types.tobytes()), len(found)))
                if mine[-1] == len(found):
                    found.append((ids, types, []))
        for number in set(mine):
            found[number][2].extend(tasks)
        if mine:
            numbers |= dict.fromkeys(tasks, np.array(mine, dtype=np.int64))
    return Asked([Segment(ids, types, tuple(of)) for ids, types, of in found], numbers)


def pool_segments(network: Network, asked: Asked, pack: Packer) -> Pooled:
    """Packs of segments of similar length through the encoder."""
    is_asked = {task: np.zeros(len(asked.segments), np.bool_) for task in asked.numbers}
    for task, numbers in asked.numbers.items():
        is_asked[task][numbers] = True
    places = {task: np.zeros(len(asked.segments), np.int64) for task in asked.numbers}
    pieces: list[Tensor] = []
    base = 0
    for chunk in chunks_by_length(asked.segments):
        made = pack([asked.segments[number] for number in chunk])
        pieces.append(network.pool(encode(network.bank, made), made))
        for task, found in made.found.items():
            places[task][chunk[is_asked[task][chunk]]] = base + found.cpu().numpy()
        base += len(pieces[-1])
    return Pooled(torch.cat(pieces), places)


def chunks_by_length(segments: Sequence[Segment]) -> Iterator[Ints]:
    """Numbers of segments, the longest first, in chunks of about the same number of tokens."""
    lengths = np.array([len(segment.ids) for segment in segments], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    chunk = (np.cumsum(lengths[order]) - 1) // TOKENS
    yield from np.split(order, np.flatnonzero(np.diff(chunk)) + 1)
