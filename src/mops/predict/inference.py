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
from mops.errors import OutputError
from mops.kinds.metrics import Answers, known
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import Pack, Packer, pack_segments
from mops.plans.layout import Layout
from mops.tasks import Task

Ints = NDArray[np.int64]
Values = NDArray[np.float64]
Outputs = Mapping[str, NDArray[np.float32]]  # of each task
DIGITS = 6  # decimals of probabilities in what programs read
WINDOW = 4096  # rows of a task that are computed together; bounds memory
PACK_TOKENS = 1024  # as fast as 2048 (6 x 384), with half of the memory


@dataclass(frozen=True)
class Predictions:
    """The predictions of one task for rows, in their order."""

    task: Task
    values: Answers  # by the kind of the task: class numbers, values, 0 and 1, tuples of tags
    probabilities: Answers  # rows x classes; rows x 0 for values; of tags words x tags per row

    @property
    def labels(self) -> list[Any]:
        """The predictions as a reader of them wants them: labels or numbers."""
        return self.task.answer.decode(self.task, self.values)

    def as_strings(self) -> list[str]:
        """The predictions as they are written to a file."""
        return [self.task.answer.write(label) for label in self.labels]

    @property
    def cut_words(self) -> int:
        """Words beyond max_length, which are answered with the outside tag."""
        own = self.probabilities if self.task.answer.reads_words else ()
        return sum(int(np.isnan(shares).any(axis=1).sum()) for shares in own)

    @property
    def has_shares(self) -> bool:
        """Whether each label of a row has a probability."""
        return self.probabilities.ndim == 2 and self.probabilities.shape[1] > 0

    def as_data(self) -> Iterator[dict[str, Any]]:
        """The answers for programs: prediction, and the probability of each label, if any."""
        has_shares = self.has_shares
        for label, own in zip(self.labels, self.probabilities, strict=True):
            answer = {"prediction": label}
            if has_shares:
                named = zip(self.task.labels, own.round(DIGITS).tolist(), strict=True)
                answer["probabilities"] = dict(named)
            yield answer

    def confidences(self) -> list[float]:
        """How probable each prediction is; empty for values."""
        return self.task.answer.confidences(self.values, self.probabilities)

    def with_rows(self, places: NDArray[np.int64], others: Predictions) -> Predictions:
        """The same predictions with others in some places."""
        values, probabilities = self.values.copy(), self.probabilities.copy()
        values[places], probabilities[places] = others.values, others.probabilities
        return Predictions(self.task, values, probabilities)

    def losses(self, targets: Answers) -> Values:
        """How bad each prediction is; NaN without a target."""
        is_known, losses = known(targets), np.full(len(targets), np.nan)
        losses[is_known] = self.task.answer.losses(
            targets[is_known], self.values[is_known], self.probabilities[is_known]
        )
        return losses


def refuse_not_finite(
    task: str, outputs: Sequence[NDArray[np.floating[Any]]], first: int = 0
) -> None:
    """Outputs row by row, from the row with the number `first` on."""
    if rows := [n for n, own in enumerate(outputs, first) if not np.isfinite(own).all()]:
        raise OutputError(task, rows)


def decide(task: Task, outputs: NDArray[np.float32]) -> Predictions:
    """The predictions that the outputs of a head mean."""
    if not task.answer.reads_words and not np.isfinite(outputs).all():
        refuse_not_finite(task.name, outputs)  # type: ignore[arg-type]
    exact = outputs if task.answer.reads_words else outputs.astype(np.float64)
    return Predictions(task, *task.answer.decide(task, exact))


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
        vectors_SD, places, by_token = pool_segments(network, segments, numbers, pack)
        outputs: dict[str, Any] = {}
        for task, own in numbers.items():
            if task in by_token:
                outputs[task] = [by_token[task][n] for n in own]
                continue
            places_N = torch.from_numpy(places[task][own]).to(device)
            vectors_ND = vectors_SD.index_select(0, places_N)
            outputs[task] = network.decisive_outputs(task, vectors_ND).float().cpu().numpy()
        return outputs

    with torch.inference_mode():
        return answer_windows(network.layout, tables, answer)


def answer_windows(
    layout: Layout,
    tables: Mapping[str, TokenTable],
    answer: Callable[[Sequence[Segment], Mapping[str, Ints]], Mapping[str, Any]],
) -> dict[str, NDArray[np.float32]]:
    """The outputs for all rows, from those that `answer` gives for the rows of a window.

    For a task that answers each word these are the outputs of every token.
    """
    outputs: dict[str, Any] = {}
    of_words = {task for task in tables if layout.tasks[task].answer.reads_words}
    for task, table in tables.items():
        shape = (len(table), layout.tasks[task].outputs)
        outputs[task] = (
            np.empty(shape[:1], object) if task in of_words else np.zeros(shape, np.float32)
        )
    for start in range(0, max(map(len, tables.values()), default=0), WINDOW):
        rows = slice(start, start + WINDOW)
        for task, found in answer(*find_distinct(tables, rows)).items():
            by_row = read_words(task, tables[task], rows, found) if task in of_words else found
            outputs[task][rows] = by_row
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
) -> tuple[Tensor, dict[str, Ints], dict[str, dict[int, NDArray[np.float32]]]]:
    """The pooled vectors at the top of every branch; task -> segment -> its vector; and for tasks
    that read words -> segment -> the outputs of all its tokens.
    """
    pieces, base = list[Tensor](), 0
    kinds = network.layout.tasks
    by_token: dict[str, dict[int, Any]] = {t: {} for t in tasks if kinds[t].answer.reads_words}
    places = {task: np.zeros(len(segments), np.int64) for task in tasks}
    for chunk in chunks_by_length(segments):
        packed = pack([segments[number] for number in chunk])
        hidden_TD = encode(network.bank, packed)
        pieces.append(network.pool(hidden_TD, packed))
        for task, tops in packed.task_segments.items():
            numbers = [number for number in chunk if task in segments[number].tasks]
            places[task][numbers] = base + tops.cpu().numpy()
            if task in by_token:
                own = token_outputs(network, task, hidden_TD, packed)
                by_token[task] |= zip(numbers, own, strict=True)
        base += len(pieces[-1])
    return torch.cat(pieces), places, by_token


def token_outputs(
    network: Network, task: str, hidden_TD: Tensor, pack: Pack
) -> Iterator[NDArray[np.float32]]:
    """The outputs of a task for all tokens of each of its segments."""
    tops = pack.task_segments[task]
    first, length = pack.first_S[tops].tolist(), pack.length_S[tops].tolist()
    for start, tokens in zip(first, length, strict=True):
        outputs_TO = network.task_outputs(task, hidden_TD[start : start + tokens])
        yield outputs_TO.float().cpu().numpy()


def read_words(
    task: str, table: TokenTable, rows: slice, segments: Sequence[NDArray[np.float32]]
) -> Answers:
    """The outputs of the words of each row, words x outputs; NaN for a word that was cut."""
    refuse_not_finite(task, segments, rows.start)
    found = np.empty(len(segments), object)
    for n, (row, outputs_TO) in enumerate(zip(range(len(table))[rows], segments, strict=True)):
        places = table.word_places(row)
        own = np.full((len(places), outputs_TO.shape[1]), np.nan)
        own[places >= 0] = outputs_TO[places[places >= 0]]
        found[n] = own
    return found


def chunks_by_length(segments: Sequence[Segment], most: int | None = None) -> Iterator[Ints]:
    """Numbers of segments, the longest first, in chunks of about the same number of tokens."""
    lengths = np.array([len(segment.ids) for segment in segments], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    chunk = (np.cumsum(lengths[order]) - 1) // (most or PACK_TOKENS)
    yield from np.split(order, np.flatnonzero(np.diff(chunk)) + 1)
