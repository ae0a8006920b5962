"""Inference: outputs of the network for tables of rows, and the predictions they mean.

Every distinct sequence passes the encoder once; then the heads run on all rows at once.

Shapes: S segments at the top of the packs, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mops.data.batches import Segment, TokenTable
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import Packer, pack_segments
from mops.plans.layout import Layout
from mops.tasks import Task

Ints = NDArray[np.int64]
Values = NDArray[np.float64]
Outputs = Mapping[str, NDArray[np.float32]]  # of each task
DIGITS = 6  # decimals of what is written; scores are computed from the written similarities
WINDOW = 4096  # rows of a task that are computed together; bounds memory
PACK_TOKENS = 1024  # as fast as 2048 (6 x 384), with half of the memory


@dataclass(frozen=True)
class Predictions:
    """The predictions of one task for rows, in their order."""

    task: Task
    values: Values  # class index, or the similarity
    probabilities: Values  # rows x classes; rows x 0 for a similarity

    def as_strings(self) -> list[str]:
        """The predictions as they are written to a file."""
        if self.task.is_similarity:
            return [repr(float(value)) for value in self.values]
        return [self.task.labels[int(index)] for index in self.values]

    def as_data(self) -> list[dict[str, Any]]:
        """The answers for programs: prediction, and the probability of each class."""
        if self.task.is_similarity:
            return [{"prediction": float(value)} for value in self.values]
        rows = zip(self.as_strings(), self.probabilities.round(DIGITS).tolist(), strict=True)
        labels = self.task.labels
        return [
            {"prediction": label, "probabilities": dict(zip(labels, row, strict=True))}
            for label, row in rows
        ]

    def confidences(self) -> list[float]:
        """The probability of each predicted class; empty for a similarity."""
        return [] if self.task.is_similarity else self.probabilities.max(axis=1).tolist()

    def with_rows(self, places: NDArray[np.int64], others: Predictions) -> Predictions:
        """The same predictions with others in some places."""
        values, probabilities = self.values.copy(), self.probabilities.copy()
        values[places], probabilities[places] = others.values, others.probabilities
        return Predictions(self.task, values, probabilities)

    def losses(self, targets: Values) -> Values:
        """-log of the true class's probability, or the squared error; NaN without a target."""
        if self.task.is_similarity:
            return (self.values - targets) ** 2
        is_known = ~np.isnan(targets)
        losses = np.full(len(targets), np.nan)
        probabilities = self.probabilities[is_known, targets[is_known].astype(int)]
        losses[is_known] = -np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
        return losses


def decide(task: Task, outputs: NDArray[np.float32]) -> Predictions:
    """The predictions that the outputs of a head mean."""
    logits = outputs.astype(np.float64)
    if task.is_similarity:
        assert task.range is not None
        values: Values = np.clip(logits[:, 0], *task.range).round(DIGITS)
        return Predictions(task, values, np.zeros((len(values), 0)))
    logits = CLASS_LOGITS[task.loss_name](logits)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = raised / raised.sum(axis=1, keepdims=True)
    return Predictions(task, logits.argmax(axis=1).astype(np.float64), probabilities)


def ordinal_logits(logits: Values) -> Values:
    """log P(y = k) = log(P(y > k-1) - P(y > k)) from the logits of P(y > k).

    Non-monotone cumulative probabilities are clipped, so that no class probability is negative.
    """
    above = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))  # exp is finite there
    falling = np.minimum.accumulate(above, axis=1)
    edges = np.pad(falling, ((0, 0), (1, 0)), constant_values=1.0)
    with np.errstate(divide="ignore"):
        return np.log(edges - np.pad(falling, ((0, 0), (0, 1))))


# loss of a classification -> its outputs as one logit per class
CLASS_LOGITS: dict[str, Callable[[Values], Values]] = {
    "cross_entropy": lambda logits: logits,
    # One logit for two classes: sigmoid is a softmax over (0, logit).
    "binary_cross_entropy": lambda logits: np.pad(logits, ((0, 0), (1, 0))),
    "ordinal": ordinal_logits,
}


def compute_outputs(
    network: Network,
    tables: Mapping[str, TokenTable],
    pack: Packer | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, NDArray[np.float32]]:
    """The outputs of each task for every row of its table.

    A sequence that occurs twice, or in several tasks, is computed once as far as the routes of
    these tasks are the same.
    """
    if network.training:
        network.eval()
    pack = pack or partial(pack_segments, layout=network.layout, device=device)

    def answer(segments: Sequence[Segment], numbers: Mapping[str, Ints]) -> Outputs:
        vectors_SD, places = pool_segments(network, segments, numbers, pack)
        outputs = {}
        for task, own in numbers.items():
            places_N = torch.from_numpy(places[task][own]).to(device)
            vectors_ND = vectors_SD.index_select(0, places_N)
            outputs[task] = network.task_outputs(task, vectors_ND).float().cpu().numpy()
        return outputs

    with torch.inference_mode():
        return answer_windows(network.layout, tables, answer)


def answer_windows(
    layout: Layout,
    tables: Mapping[str, TokenTable],
    answer: Callable[[Sequence[Segment], Mapping[str, Ints]], Outputs],
) -> dict[str, NDArray[np.float32]]:
    """The outputs for all rows, from the outputs for the distinct sequences of a window."""
    outputs = {
        task: np.zeros((len(table), layout.tasks[task].outputs), np.float32)
        for task, table in tables.items()
    }
    for start in range(0, max(map(len, tables.values()), default=0), WINDOW):
        rows = slice(start, start + WINDOW)
        for task, found in answer(*find_distinct(tables, rows)).items():
            outputs[task][rows] = found
    return outputs


def find_distinct(
    tables: Mapping[str, TokenTable], rows: slice
) -> tuple[list[Segment], dict[str, Ints]]:
    """Each sequence once, with all its tasks; and task -> the segments of its rows, in order."""
    readers: dict[int, list[str]] = {}  # tasks with the same table are looked at once
    for task, table in tables.items():
        readers.setdefault(id(table), []).append(task)
    number_of: dict[tuple[bytes, bytes], int] = {}
    sequences: list[tuple[NDArray[np.int32], NDArray[np.int32], list[str]]] = []
    numbers: dict[str, Ints] = {}
    for tasks in readers.values():
        table, read = tables[tasks[0]], []
        for row in range(len(table))[rows]:
            for ids, types in table.row(row):
                read.append(number_of.setdefault((ids.tobytes(), types.tobytes()), len(sequences)))
                if read[-1] == len(sequences):
                    sequences.append((ids, types, []))
        for number in set(read):
            sequences[number][2].extend(tasks)
        if read:
            numbers |= dict.fromkeys(tasks, np.array(read, dtype=np.int64))
    return [Segment(ids, types, tuple(tasks)) for ids, types, tasks in sequences], numbers


def pool_segments(
    network: Network, segments: Sequence[Segment], tasks: Iterable[str], pack: Packer
) -> tuple[Tensor, dict[str, Ints]]:
    """The pooled vectors at the top of every branch; and task -> segment -> its vector."""
    pieces, base = list[Tensor](), 0
    places = {task: np.zeros(len(segments), np.int64) for task in tasks}
    for chunk in chunks_by_length(segments):
        packed = pack([segments[number] for number in chunk])
        pieces.append(network.pool(encode(network.bank, packed), packed))
        for task, tops in packed.task_segments.items():
            numbers = [number for number in chunk if task in segments[number].tasks]
            places[task][numbers] = base + tops.cpu().numpy()
        base += len(pieces[-1])
    return torch.cat(pieces), places


def chunks_by_length(segments: Sequence[Segment], most: int | None = None) -> Iterator[Ints]:
    """Numbers of segments, the longest first, in chunks of about the same number of tokens."""
    lengths = np.array([len(segment.ids) for segment in segments], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    chunk = (np.cumsum(lengths[order]) - 1) // (most or PACK_TOKENS)
    yield from np.split(order, np.flatnonzero(np.diff(chunk)) + 1)
