"""Augmentation: training rows whose texts change a little from pass to pass.

What happens to a row follows from the seed, its task, the pass and its number alone, so a resumed
run sees the same texts. The texts are tokenised when their batch is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mops.data.batches import Batch, TaskData, make_batch
from mops.data.schedule import Place, generator
from mops.data.tokens import tokenise
from mops.settings import Augment
from mops.shapes import Reading

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Texts = tuple[str, ...]


@dataclass(frozen=True)
class AugmentedRows:
    """Batches of changed rows."""

    data: Mapping[str, TaskData]
    texts: Mapping[str, Sequence[Texts]]  # of the training rows, in the order of `data`
    tokenizer: Tokenizer
    reading: Reading
    augment: Augment
    seed: int

    def take(self, chosen: Mapping[str, Sequence[Place]]) -> Batch:
        """The rows at these places, changed as their pass says."""
        changed = {task: self.changed(task, places) for task, places in chosen.items()}
        return make_batch(changed, {task: range(len(data)) for task, data in changed.items()})

    def changed(self, task: str, places: Sequence[Place]) -> TaskData:
        texts = [
            change(self.texts[task][row], self.augment, task, self.draw(task, number, row))
            for row, number in places
        ]
        table = tokenise(self.tokenizer, texts, self.reading)
        targets = self.data[task].targets[[place.row for place in places]]
        return replace(self.data[task], tokens=table, targets=targets)

    def draw(self, task: str, number: int, row: int) -> np.random.Generator:
        return generator(self.seed, "augment", task, str(number), str(row))


def change(texts: Texts, augment: Augment, task: str, draw: np.random.Generator) -> Texts:
    """One row's texts: perhaps in the other order, and without some words."""
    if task in augment.swap and draw.random() < 0.5:
        texts = texts[::-1]
    return tuple(drop_words(text, augment.word_dropout, draw) for text in texts)


def drop_words(text: str, chance: float, draw: np.random.Generator) -> str:
    """The text without each word by this chance; where all would go, one of them stays."""
    words = text.split()
    kept = [word for word, x in zip(words, draw.random(len(words)), strict=True) if x >= chance]
    if len(kept) == len(words):
        return text
    return " ".join(kept or [words[int(draw.integers(len(words)))]])
