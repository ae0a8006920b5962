"""Batches: the sequences and targets of the rows that one step or one prediction takes.

Augmented rows change a little from pass to pass. The change follows from the seed, the task, the
pass and the row's number alone, so a resumed run sees the same texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from mops.config.training import Augment
from mops.data.schedule import Place, generator
from mops.data.tokens import Texts, TokenTable, tokenise
from mops.plans.shapes import Reading
from mops.tasks import Task

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Item = TypeVar("Item")


@dataclass(frozen=True)
class Segment:
    """One token sequence and the tasks it belongs to."""

    ids: NDArray[np.int32]
    types: NDArray[np.int32]
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """Rows of one or more tasks: their sequences in order, and the targets of each task."""

    segments: tuple[Segment, ...]
    targets: Mapping[str, NDArray[np.float64]]
    # Factor on a task's loss where its rows are more or fewer than its usual batch; default 1.
    scale: Mapping[str, float] = field(default_factory=dict)
    # Weight of the rows here in the mean over the rows of all processes; default 1.
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskData:
    """One split of one task, tokenised, with its targets."""

    task: Task
    tokens: TokenTable
    targets: NDArray[np.float64]  # class number, or the value as written

    def __len__(self) -> int:
        return len(self.targets)


def make_batch(data: Mapping[str, TaskData], chosen: Mapping[str, Sequence[int]]) -> Batch:
    """The chosen rows of each task as one batch."""
    segments = tuple(
        Segment(ids, types, (task,))
        for task, rows in chosen.items()
        for row in rows
        for ids, types in data[task].tokens.row(row)
    )
    targets = {task: data[task].targets[list(rows)] for task, rows in chosen.items()}
    return Batch(segments, targets)


def split_batches(
    items: Iterable[Item], size: Callable[[Item], int], limit: int
) -> Iterator[list[Item]]:
    """Neighbours whose sizes add up to at most `limit`, or a single larger item."""
    batch: list[Item] = []
    total = 0
    for item in items:
        total += size(item)
        if batch and total > limit:
            yield batch
            batch, total = [], size(item)
        batch.append(item)
    if batch:
        yield batch


def take_rows(data: Mapping[str, TaskData], chosen: Mapping[str, Sequence[Place]]) -> Batch:
    """The rows at these places, unchanged."""
    rows = {task: [place.row for place in places] for task, places in chosen.items()}
    return make_batch(data, rows)


@dataclass(frozen=True)
class AugmentedRows:
    """Makes batches of augmented rows."""

    data: Mapping[str, TaskData]
    texts: Mapping[str, Sequence[Texts]]  # of the training rows, in the order of `data`
    tokenizer: Tokenizer
    reading: Reading
    augment: Augment
    seed: int

    def take(self, chosen: Mapping[str, Sequence[Place]]) -> Batch:
        """The rows at these places, augmented for their pass."""
        changed = {task: self.change_rows(task, places) for task, places in chosen.items()}
        return make_batch(changed, {task: range(len(data)) for task, data in changed.items()})

    def change_rows(self, task: str, places: Sequence[Place]) -> TaskData:
        texts = []
        for row, number in places:
            draw = generator(self.seed, "augment", task, str(number), str(row))
            texts.append(change(self.texts[task][row], self.augment, task, draw))
        table = tokenise(self.tokenizer, texts, self.reading)
        targets = self.data[task].targets[[place.row for place in places]]
        return replace(self.data[task], tokens=table, targets=targets)


def change(texts: Texts, augment: Augment, task: str, draw: np.random.Generator) -> Texts:
    """One row's texts, possibly swapped, and without some words."""
    if task in augment.swap and draw.random() < 0.5:
        texts = texts[::-1]
    return tuple(drop_words(text, augment.word_dropout, draw) for text in texts)


def drop_words(text: str, probability: float, draw: np.random.Generator) -> str:
    """The text without each word with this probability; at least one word stays."""
    words = text.split()
    drawn = draw.random(len(words))
    kept = [word for word, x in zip(words, drawn, strict=True) if x >= probability]
    if len(kept) == len(words):
        return text
    return " ".join(kept or [words[int(draw.integers(len(words)))]])
