"""The corpus: the tasks' own texts, masked anew in every step; held-out ones are masked once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mops.data.batches import Segment, tokenise
from mops.data.dataset import Dataset, normalised
from mops.data.schedule import generator
from mops.errors import DataError, EncoderError
from mops.plans.shapes import Reading

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ints = NDArray[np.int32]
HELD_OUT_FRACTION = 0.05
FEWEST, MOST = 50, 1000  # held-out texts; never more than one in five
HELD_OUT_SEED = 0  # the recipe's seed changes neither what is held out nor its masks
CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # Devlin et al. 2019, section 3.1
TEXT = "texts"  # the one task of a pretraining's segments; row orders depend on it
MASKS = ("[MASK]", "<mask>")
SPECIAL = {
    *MASKS, "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>",
}  # fmt: skip


Texts = dict[str, list[str]]  # by part: train, selection, report
Counts = dict[str, int]


def gather_texts(dataset: Dataset) -> tuple[Texts, Counts]:
    """The distinct texts: those that differ only in case, punctuation and spaces count as one.

    Half of the held-out texts pick the best state (`selection`), the others are reported.
    """
    splits = dataset.splits.values()
    training = [row.texts for task in splits for row in task["train"].good]
    spellings: dict[str, str] = {}
    for text in chain.from_iterable(training):
        spellings.setdefault(normalised(text), text)
    evaluated = {
        normalised(text)
        for task in splits
        for split in task.keys() - {"train"}
        for row in task[split].rows  # also those that cannot be scored
        for text in row.texts
    }
    usable = set(spellings) - evaluated
    count = min(MOST, max(FEWEST, round(HELD_OUT_FRACTION * len(usable))), len(usable) // 5)
    # the lowest hashes, whatever the seed and the order of files
    held_out = sorted(usable, key=lambda key: hashlib.sha256(key.encode()).digest())[:count]
    # also without texts in one row with them: a pair is often one sentence in two wordings
    rows, chosen = ({normalised(text) for text in texts} for texts in training), set(held_out)
    train = sorted(usable.difference(*(keys for keys in rows if keys & chosen)))
    if count < 2 or not train:
        raise DataError(
            f"only {len(usable)} distinct training texts are in no validation or test file; at "
            "least 10 that are not all paired are needed, so that some can be held out; name more "
            "data"
        )
    keys = {"train": train, "selection": held_out[::2], "report": held_out[1::2]}
    counts = {
        "distinct": len(spellings),
        "left_out_as_in_validation_or_test": len(spellings) - len(usable),
        "left_out_as_partner_of_held_out": len(usable) - len(train) - len(held_out),
        "held_out": len(held_out),
        "train": len(train),
    }
    return {part: [spellings[key] for key in own] for part, own in keys.items()}, counts


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of an encoder: the mask, which are special, which are words."""

    mask: int
    is_special: NDArray[np.bool_]  # by token number
    words: Ints  # candidates for random tokens


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
    special |= set(tokenizer.encode("").ids)  # surround every text
    is_special = np.zeros(size, dtype=np.bool_)
    is_special[sorted(special)] = True
    words = sorted(number for number in known.values() if number not in special)
    return Vocabulary(mask, is_special, np.array(words, dtype=np.int32))


@dataclass(frozen=True)
class Masked(Segment):
    """A sequence as the encoder sees it, and the words to guess."""

    places: NDArray[np.int64]  # of the chosen tokens
    targets: Ints  # the words that stood there


def mask_sequence(ids: Ints, vocabulary: Vocabulary, draw: np.random.Generator) -> Masked:
    """Choose each word with probability 15 %, and at least one word of a sequence.

    80 % of the chosen words become the mask, 10 % a random word, 10 % stay (Devlin et al. 2019). A
    short sequence would often have none, so the word with the lowest draw is always chosen.
    """
    draws = draw.random(len(ids))
    draws[vocabulary.is_special[ids]] = np.inf
    is_chosen = draws < CHOSEN
    is_chosen[draws.argmin()] = True
    places = np.flatnonzero(is_chosen)
    fate = draw.random(len(places))
    visible = ids.copy()
    visible[places[fate < MASKED]] = vocabulary.mask
    changed = places[(fate >= MASKED) & (fate < MASKED + RANDOM)]
    visible[changed] = draw.choice(vocabulary.words, len(changed))
    return Masked(visible, np.zeros_like(ids), (TEXT,), places, ids[places])


@dataclass(frozen=True)
class Corpus:
    """Token sequences of single texts."""

    train: Sequence[Ints]
    held_out: Mapping[str, Sequence[Masked]]  # by half
    vocabulary: Vocabulary
    counts: Mapping[str, int]


def build_corpus(dataset: Dataset, tokenizer: Tokenizer, words: int, reading: Reading) -> Corpus:
    """Tokenise the texts of a dataset; those without a single known word are left out."""
    texts, counts = gather_texts(dataset)
    vocabulary = read_vocabulary(tokenizer, words)
    sequences: dict[str, dict[str, Ints]] = {}  # part -> text -> its tokens
    for part, own in texts.items():
        table = tokenise(tokenizer, [(text,) for text in own], reading)
        rows = ((text, next(table.row(n))[0]) for n, text in enumerate(own))
        sequences[part] = {t: ids for t, ids in rows if not vocabulary.is_special[ids].all()}
    sizes = {part: len(kept) for part, kept in sequences.items()}
    if not all(sizes.values()):
        raise DataError(
            f"no {min(sizes, key=lambda part: sizes[part])} text has a word that the encoder's "
            "tokenizer knows; the encoder and the texts are of different languages or scripts"
        )
    train = list(sequences.pop("train").values())
    held_out = {
        half: [
            mask_sequence(ids, vocabulary, generator(HELD_OUT_SEED, "held-out", text))
            for text, ids in kept.items()
        ]
        for half, kept in sequences.items()
    }
    counts |= {
        "without_known_words": sum(map(len, texts.values())) - sum(sizes.values()),
        "train_tokens": sum(map(len, train)),
        **sizes,
        "report_words": sum(len(masked.places) for masked in held_out["report"]),
    }
    return Corpus(train, held_out, vocabulary, counts)
