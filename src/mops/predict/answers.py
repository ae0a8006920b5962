"""From the network's outputs to answers: classes with their shares, or values on a range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from mops.data.batches import Segment
from mops.data.tokens import TokenTable
from mops.encoder.network import Network
from mops.encoder.packing import Packer, pack_segments
from mops.tasks import Task

Values = NDArray[np.float64]
DIGITS = 6  # of a similarity: what is scored is what is written
TOKENS = 8192  # of one pack at prediction; bounds memory


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


def compute_outputs(
    network: Network,
    table: TokenTable,
    tasks: Sequence[str],
    device: str | torch.device = "cpu",
    pack: Packer | None = None,
) -> Mapping[str, NDArray[np.float32]]:
    """The outputs of each task for every row; all tasks read the same sequences, in one pass.

    Rows are taken by length; layers that the tasks share are computed once.
    """
    network.eval()
    pack = pack or partial(pack_segments, layout=network.layout, device=device)
    found = {
        task: np.zeros((len(table), network.layout.tasks[task].outputs), np.float32)
        for task in tasks
    }
    with torch.inference_mode():
        for rows in chunks_by_length(table):
            segments = [Segment(*seq, tuple(tasks)) for row in rows for seq in table.row(row)]
            outputs = network(pack(segments))
            for task in tasks:
                found[task][rows] = outputs[task].float().cpu().numpy()
    return found


def chunks_by_length(table: TokenTable) -> Iterator[NDArray[np.int64]]:
    """Row numbers, the longest first, in chunks of about the same number of tokens."""
    lengths = table.row_lengths
    order = np.argsort(-lengths, kind="stable")
    tokens = np.cumsum(lengths[order])
    chunk = (tokens - 1) // TOKENS
    for number in np.unique(chunk):
        yield order[chunk == number]
