"""Splits rows by their texts: train and validation, and the two halves of a validation set."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from mops.data.examples import Row
from mops.errors import DataError

Half = Literal["selection", "report"]
NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
SEPARATOR = "\x1f"


def normalised(text: str) -> str:
    """The same for two spellings of one sentence; a text of punctuation alone stays itself."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return NOT_ALPHANUMERIC.sub(" ", folded).strip() or folded.strip()


def split_rows(
    rows: Sequence[Row], fraction: float, seed: int
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """(train, validation): rows that share a sentence stay on one side.

    Groups of such rows are taken in an order drawn from the seed. A group that would miss the
    wanted size by more than leaving it out is skipped: chains of shared sentences can contain most
    of a file.
    """
    if not 0 < fraction < 1:
        raise DataError(
            f"`split` is {fraction:g}; allowed: more than 0 and less than 1; write for example 0.1 "
            "for one row in ten"
        )
    groups = group_rows(rows)
    missing = max(1, round(fraction * len(rows)))
    chosen: set[int] = set()
    for key in sorted(groups, key=lambda key: _digest(str(seed), key)):
        if len(groups[key]) <= 2 * missing:
            chosen.update(groups[key])
            missing -= len(groups[key])
        if missing <= 0:
            break
    if not 0 < len(chosen) < len(rows):
        raise DataError(
            f"{len(rows)} rows cannot be split by {fraction:g}: they form {len(groups)} group(s) "
            "of shared sentences, so one side would be empty; both sides need rows; name a "
            "`validation` file or change `split`"
        )
    train = tuple(row for number, row in enumerate(rows) if number not in chosen)
    return train, tuple(rows[number] for number in sorted(chosen))


def half(row: Row) -> Half:
    """The half of a validation set that this row belongs to; it depends on its texts alone."""
    first_byte = _digest(*sorted(map(normalised, row.texts)))[0]
    return "selection" if first_byte % 2 else "report"


def group_rows(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Row numbers by connected component; the key is the component's smallest text."""
    parents: dict[str, str] = {}

    def root(text: str) -> str:
        parents.setdefault(text, text)
        while parents[text] != text:
            parents[text] = text = parents[parents[text]]
        return text

    # An empty text links nothing; a row without any text is a group of its own.
    texts = [[normalised(text) for text in row.texts if text] or [row.where] for row in rows]
    for first, *others in texts:
        for other in others:
            low, high = sorted((root(first), root(other)))
            parents[high] = low
    groups = defaultdict(list)
    for number, (first, *_) in enumerate(texts):
        groups[root(first)].append(number)
    return groups


def _digest(*parts: str) -> bytes:
    return hashlib.sha256(SEPARATOR.join(parts).encode()).digest()
