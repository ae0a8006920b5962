"""Token tables that are kept between runs: the same texts are tokenised once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mops.block_files import Arrays
from mops.data.tokens import TokenTable, tokenise
from mops.shapes import Reading
from mops.store import find_store

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KIND = "tokens"
WORTH_KEEPING = 5000  # rows; fewer are tokenised within the time it takes to look for them


def tokenise_once(
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
