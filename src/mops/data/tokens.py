"""Tokens: texts become sequences of token numbers, once, kept in flat arrays.

Token tables that are kept between runs: the same texts are tokenised once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mops.errors import EncoderError
from mops.plans.shapes import Reading
from mops.store import Arrays, find_store

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Ints = NDArray[np.int32]
CHUNK = 4096  # texts tokenised at a time; bounds memory


@dataclass(frozen=True)
class TokenTable:
    """The sequences of many rows, flat; a row has one sequence, or two with `bi` pairs."""

    ids: Ints
    types: Ints
    starts: NDArray[np.int64]  # first token of each sequence, and one past the last
    per_row: int
    cut: int = 0  # sequences that were longer than max_length

    def __len__(self) -> int:
        return (len(self.starts) - 1) // self.per_row

    def row(self, row: int) -> Iterator[tuple[Ints, Ints]]:
        for sequence in range(row * self.per_row, (row + 1) * self.per_row):
            place = slice(self.starts[sequence], self.starts[sequence + 1])
            yield self.ids[place], self.types[place]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence."""
        return np.diff(self.starts)

    @cached_property
    def counted_lengths(self) -> tuple[tuple[int, int], ...]:
        """(length, how many sequences have it)."""
        lengths, counts = np.unique(self.lengths, return_counts=True)
        return tuple(zip(lengths.tolist(), counts.tolist(), strict=True))

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        """Tokens of each row, over all of its sequences."""
        summed: NDArray[np.int64] = self.lengths.reshape(-1, self.per_row).sum(axis=1)
        return summed


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of an encoder folder or a bundle, without its own padding and truncation."""
    from tokenizers import Tokenizer
    from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

    if (folder / "tokenizer.json").is_file():
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as cause:  # the library raises plain Exception
            raise EncoderError(f"{folder / 'tokenizer.json'} cannot be read: {cause}") from cause
    elif (folder / "vocab.txt").is_file():
        wordpiece = BertWordPieceTokenizer(
            str(folder / "vocab.txt"), lowercase=is_lower_case(folder)
        )
        tokenizer = Tokenizer.from_str(wordpiece.to_str())
    else:
        raise EncoderError(f"{folder} has neither tokenizer.json nor vocab.txt; add one of them")
    # The bundled MiniLM's file pads and truncates to 128; here both are decided by the recipe.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def is_lower_case(folder: Path) -> bool:
    """As tokenizer_config.json says; BERT's uncased models are the common case."""
    import json

    config = folder / "tokenizer_config.json"
    said = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    return bool(said.get("do_lower_case", True))


def tokenise(
    tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]], reading: Reading
) -> TokenTable:
    """The texts of rows as sequences: one each, or with `bi` pairs one per text."""
    is_pair = bool(texts) and len(texts[0]) == 2
    apart = reading.texts_apart(is_pair)
    ids: list[Ints] = []
    types: list[Ints] = []
    cut = 0
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        for encoding in encode(tokenizer, chunk, reading, apart):
            ids.append(np.array(encoding.ids, dtype=np.int32))
            types.append(np.array(encoding.type_ids, dtype=np.int32))
            cut += bool(encoding.overflowing)
    starts = np.concatenate([[0], np.cumsum([len(sequence) for sequence in ids])])
    return TokenTable(
        ids=np.concatenate(ids) if ids else np.zeros(0, np.int32),
        types=np.concatenate(types) if types else np.zeros(0, np.int32),
        starts=starts.astype(np.int64),
        per_row=2 if apart else 1,
        cut=cut,
    )


def encode(
    tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]], reading: Reading, apart: bool
) -> list[Encoding]:
    tokenizer.enable_truncation(reading.max_length)  # the longer text of a pair is cut first
    texts = [tuple(shorten(tokenizer, text, reading.max_length) for text in row) for row in texts]
    inputs = [text for row in texts for text in row] if apart else [one_input(row) for row in texts]
    return list(tokenizer.encode_batch(inputs))


def shorten(tokenizer: Tokenizer, text: str, most: int) -> str:
    """A text cut to twice the tokens that can count.

    The library keeps all that it cuts away, for a pair even every combination of the parts: a
    text of many pages would take gigabytes.
    """
    if len(text) < 16 * most:
        return text
    tokenizer.no_truncation()
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    tokenizer.enable_truncation(most)
    return text if len(offsets) <= 2 * most else text[: offsets[2 * most][0]]


def one_input(row: tuple[str, ...]) -> str | tuple[str, ...]:
    return row if len(row) == 2 else row[0]


if TYPE_CHECKING:
    from tokenizers import Tokenizer

KIND = "tokens"
WORTH_KEEPING = 5000  # rows; fewer are tokenised within the time it takes to look for them


def tokenise_cached(
    tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]], reading: Reading
) -> TokenTable:
    """`tokenise`, from the store where it has been done before; mapped, not read."""
    store = find_store() if len(texts) >= WORTH_KEEPING else None
    if store is None:
        return tokenise(tokenizer, texts, reading)
    key = key_of(tokenizer, texts, reading)
    kept = store.read(KIND, key)
    if kept is not None:
        return from_arrays(kept)
    table = tokenise(tokenizer, texts, reading)
    store.write(KIND, key, to_arrays(table), {"what": "tokens"})
    return table


def key_of(tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]], reading: Reading) -> str:
    """All that the table follows from: the rules, how pairs are read, every text."""
    tokenizer.no_truncation()  # it is a part of the rules, and max_length stands for it
    digest = hashlib.blake2b(tokenizer.to_str().encode(), digest_size=20)
    digest.update(f"{reading.pair} {reading.max_length}".encode())
    for row in texts:
        for text in row:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def to_arrays(table: TokenTable) -> Arrays:
    facts = np.array([table.per_row, table.cut], dtype=np.int64)
    return {"ids": table.ids, "types": table.types, "starts": table.starts, "facts": facts}


def from_arrays(arrays: Arrays) -> TokenTable:
    per_row, cut = arrays["facts"].tolist()
    return TokenTable(arrays["ids"], arrays["types"], arrays["starts"], per_row, cut)
