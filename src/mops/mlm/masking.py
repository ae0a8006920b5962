"""Masking: which words of a sequence are to be guessed, and what stands in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mops.data.batches import Segment
from mops.errors import EncoderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ints = NDArray[np.int32]
CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # Devlin et al. 2019, section 3.1
TEXT = "text"  # the one task that the sequences of a pretraining ask
MASKS = ("[MASK]", "<mask>")
SPECIAL = {
    *MASKS, "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>",
}  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of an encoder: the mask, which are special, which are words."""

    mask: int
    is_special: NDArray[np.bool_]  # by token number
    words: Ints  # what a random token may be


def read_vocabulary(tokenizer: Tokenizer, size: int) -> Vocabulary:
    """`size` is the number of the encoder's word vectors."""
    known: Mapping[str, int] = tokenizer.get_vocab()
    mask = next((known[word] for word in MASKS if word in known), None)
    if mask is None:
        raise EncoderError(
            f"the tokenizer of this encoder has no mask token ({' or '.join(MASKS)}); words can "
            "only be masked with one; name another encoder with --encoder"
        )
    added = tokenizer.get_added_tokens_decoder().items()
    special = {number for word, number in known.items() if word in SPECIAL}
    special |= {number for number, token in added if token.special}
    special |= set(tokenizer.encode("").ids)  # what is put around every text
    is_special = np.zeros(size, dtype=np.bool_)
    is_special[sorted(special)] = True
    words = sorted(number for number in known.values() if number not in special)
    return Vocabulary(mask, is_special, np.array(words, dtype=np.int32))


@dataclass(frozen=True)
class Masked:
    """A sequence as the encoder sees it, and the words that it has to guess."""

    segment: Segment
    places: NDArray[np.int64]  # of the chosen tokens
    targets: Ints  # what stood there


def mask_sequence(ids: Ints, vocabulary: Vocabulary, draw: np.random.Generator) -> Masked:
    """Each word is chosen with a chance of 15 %, at least one of a sequence.

    Of the chosen 80 % become the mask, 10 % a random word, 10 % stay (Devlin et al. 2019). Short
    sequences would often have none, so the word nearest to being chosen is taken anyway.
    """
    chance = draw.random(len(ids))
    chance[vocabulary.is_special[ids]] = np.inf
    is_chosen = chance < CHOSEN
    is_chosen[chance.argmin()] = True
    places = np.flatnonzero(is_chosen)
    fate = draw.random(len(places))
    seen = ids.copy()
    seen[places[fate < MASKED]] = vocabulary.mask
    changed = places[(fate >= MASKED) & (fate < MASKED + RANDOM)]
    seen[changed] = draw.choice(vocabulary.words, len(changed))
    return Masked(Segment(seen, np.zeros_like(ids), (TEXT,)), places, ids[places])
