"""The corpus: sequences that train, masked anew in every step, and held-out ones masked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mops.data.schedule import generator, shuffled
from mops.data.tokens import tokenise
from mops.errors import DataError
from mops.mlm.masking import Ints, Masked, Vocabulary, mask_sequence
from mops.mlm.texts import Texts
from mops.shapes import Reading

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HELD_OUT_SEED = 0  # the recipe's seed does not change what is held out, nor its masks


@dataclass(frozen=True)
class Corpus:
    """Token sequences of single texts."""

    train: tuple[Ints, ...]
    held_out: Mapping[str, tuple[Masked, ...]]  # by half
    vocabulary: Vocabulary
    counts: Mapping[str, int]

    def batch(self, step: int, size: int, seed: int) -> list[Masked]:
        """The texts of a step, from shuffled passes; their masks follow from seed and step.

        Masks differ from pass to pass (dynamic masking, Liu et al. 2019).
        """
        texts = len(self.train)
        rows = (
            shuffled(texts, seed, "texts", place // texts)[place % texts]
            for place in range(step * size, (step + 1) * size)
        )
        draw = generator(seed, "masks", str(step))
        return [mask_sequence(self.train[row], self.vocabulary, draw) for row in rows]

    def word_counts(self) -> NDArray[np.int64]:
        """How often each token occurs in the training sequences; special ones as never."""
        size = len(self.vocabulary.is_special)
        counts = np.bincount(np.concatenate(self.train), minlength=size)
        counts[self.vocabulary.is_special] = 0
        return counts


def build_corpus(
    texts: Texts, tokenizer: Tokenizer, vocabulary: Vocabulary, reading: Reading
) -> Corpus:
    """Texts become sequences; those without a single known word are left out."""

    def sequences(chosen: Sequence[str]) -> list[tuple[str, Ints]]:
        table = tokenise(tokenizer, [(text,) for text in chosen], reading)
        pairs = [(text, next(table.row(n))[0]) for n, text in enumerate(chosen)]
        return [(text, ids) for text, ids in pairs if not vocabulary.is_special[ids].all()]

    train = tuple(ids for _, ids in sequences(texts.train))
    held_out = {
        half: tuple(
            mask_sequence(ids, vocabulary, generator(HELD_OUT_SEED, "held-out", text))
            for text, ids in sequences(chosen)
        )
        for half, chosen in (("selection", texts.selection), ("report", texts.report))
    }
    kept = {"train": train, **held_out}
    for half, found in kept.items():
        if not found:
            raise DataError(
                f"no {half} text has a word that the encoder's tokenizer knows; "
                "the encoder and the texts are of different languages or scripts"
            )
    counts = {
        **texts.counts,
        "without_known_words": texts.counts["train"]
        + texts.counts["held_out"]
        - sum(map(len, kept.values())),
        "train": len(train),
        "train_tokens": sum(map(len, train)),
        **{half: len(found) for half, found in held_out.items()},
        "report_words": sum(len(masked.places) for masked in held_out["report"]),
    }
    return Corpus(train, held_out, vocabulary, counts)
