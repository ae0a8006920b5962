"""Texts: which sentences of the tasks train, which are held out, and which are left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mops.data.material import Material
from mops.data.rows import Row
from mops.data.splits import normalised
from mops.errors import DataError

HELD_OUT_SHARE = 0.05
FEWEST, MOST = 50, 1000  # held-out texts; of few texts never more than one in five


@dataclass(frozen=True)
class Texts:
    """Distinct texts of the training splits; the held-out ones are halved.

    `selection` picks the best state, `report` is what is reported.
    """

    train: tuple[str, ...]
    selection: tuple[str, ...]
    report: tuple[str, ...]
    counts: Mapping[str, int]


def gather_texts(material: Material) -> Texts:
    """Two texts are the same when they differ in case, punctuation and spaces alone."""
    training = [row for splits in material.splits.values() for row in splits["train"].good]
    spellings: dict[str, str] = {}
    for row in training:
        for text in row.texts:
            spellings.setdefault(normalised(text), text)
    judged = set(judged_texts(material))
    usable = [key for key in spellings if key not in judged]
    held_out = choose_held_out(usable)
    not_trained = {*held_out, *partners_of(set(held_out), training)}
    train = [key for key in usable if key not in not_trained]
    if not train:
        raise DataError(
            f"{len(spellings)} distinct training texts, {len(usable)} of them in no validation or "
            "test file: too few to train on and to hold some out; name more data"
        )
    return Texts(
        train=tuple(spellings[key] for key in sorted(train)),
        selection=tuple(spellings[key] for key in held_out[::2]),
        report=tuple(spellings[key] for key in held_out[1::2]),
        counts={
            "distinct": len(spellings),
            "left_out_as_in_validation_or_test": len(spellings) - len(usable),
            "left_out_as_partner_of_held_out": len(usable) - len(train) - len(held_out),
            "held_out": len(held_out),
            "train": len(train),
        },
    )


def judged_texts(material: Material) -> Iterable[str]:
    """Every text of a validation or test split, rows that cannot be scored too."""
    for splits in material.splits.values():
        for split, read in splits.items():
            if split != "train":
                yield from (normalised(text) for row in read.rows for text in row.texts)


def choose_held_out(keys: list[str]) -> list[str]:
    """The texts with the lowest hashes: no seed and no order of files changes them."""
    count = min(MOST, max(FEWEST, round(HELD_OUT_SHARE * len(keys))), len(keys) // 5)
    if count < 2:
        raise DataError(
            f"only {len(keys)} distinct training texts are in no validation or test file; at "
            "least 10 are needed, so that some can be held out; name more data"
        )
    return sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())[:count]


def partners_of(held_out: set[str], rows: Iterable[Row]) -> set[str]:
    """Texts in one row with a held-out text: a pair is often one sentence in two wordings."""
    found: set[str] = set()
    for row in rows:
        keys = {normalised(text) for text in row.texts}
        if keys & held_out:
            found |= keys - held_out
    return found
