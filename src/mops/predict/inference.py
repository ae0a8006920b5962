"""From the network's outputs to answers: classes with their shares, or values on a range.

Outputs: every distinct sequence once through the encoder, then the heads on all rows at once.

Shapes: S segments at the top of the packs, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Segment
from mops.data.tokens import TokenTable
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import Packer, pack_segments
from mops.tasks import Task

Values = NDArray[np.float64]
DIGITS = 6  # of a similarity: what is scored is what is written


@dataclass(frozen=True)
class Answers:
    """What a task says of rows, in their order."""

    task: Task
    predictions: Values  # class number, or the value
    shares: Values  # rows x classes, sums to 1; for a similarity rows x 0

    def words(self) -> list[str]:
        """The answers as they are written to a file."""
        if self.task.is_similarity:
            return [repr(float(value)) for value in self.predictions]
        return [self.task.labels[int(number)] for number in self.predictions]

    def confidences(self) -> list[float]:
        """The share of each predicted class; of a similarity there is none."""
        return [] if self.task.is_similarity else self.shares.max(axis=1).tolist()

    def losses(self, targets: Values) -> Values:
        """How wrong each answer is: -log of the true class's share, or the squared error.

        NaN where the target is.
        """
        if self.task.is_similarity:
            return (self.predictions - targets) ** 2
        known = ~np.isnan(targets)
        losses = np.full(len(targets), np.nan)
        shares = self.shares[known, targets[known].astype(int)]
        losses[known] = -np.log(np.maximum(shares, np.finfo(np.float64).tiny))
        return losses


def decide(task: Task, outputs: NDArray[np.float32]) -> Answers:
    """Outputs of a head as answers."""
    logits = outputs.astype(np.float64)
    if task.is_similarity:
        assert task.range is not None
        values: Values = np.clip(logits[:, 0], *task.range).round(DIGITS)
        return Answers(task, values, np.zeros((len(values), 0)))
    logits = CLASS_LOGITS[task.loss_name](logits)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = raised / raised.sum(axis=1, keepdims=True)
    return Answers(task, logits.argmax(axis=1).astype(np.float64), shares)


def beside_zero(logits: Values) -> Values:
    """One logit for two classes: sigmoid is a softmax over (0, logit)."""
    return np.concatenate([np.zeros_like(logits), logits], axis=1)


def between_steps(logits: Values) -> Values:
    """Logits of P(y > k) as logarithms of P(y = k) = P(y > k-1) - P(y > k).

    A network may say P(y > 1) < P(y > 2): the smallest so far holds, so that no share is below 0.
    """
    above = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))  # exp is finite there
    falling = np.minimum.accumulate(above, axis=1)
    edges = np.pad(falling, ((0, 0), (1, 0)), constant_values=1.0)
    shares: Values = edges - np.pad(falling, ((0, 0), (0, 1)))
    with np.errstate(divide="ignore"):
        logs: Values = np.log(shares)
    return logs


# loss of a classification -> its outputs as one logit per class
CLASS_LOGITS: dict[str, Callable[[Values], Values]] = {
    "cross_entropy": lambda logits: logits,
    "binary_cross_entropy": beside_zero,
    "ordinal": between_steps,
}


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
