"""Reading the material files and dealing the material to the splits."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

MATERIAL = Path(__file__).resolve().parent
SPLITS = ("train", "validation", "test")
PATTERN = ("train", "validation", "train", "test", "train")

T = TypeVar("T")
Row = tuple[str, ...]
Split = str
Rows = dict[Split, list[Row]]


def lines_of(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield (file stem, line) of all material files that match, without comments."""
    for path in sorted(MATERIAL.glob(pattern)):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                yield path.stem, line.strip()


def sections(pattern: str) -> list[tuple[str, str, list[str]]]:
    """Return (file stem, header, lines) of every part that a "[header]" line opens."""
    found: list[tuple[str, str, list[str]]] = []
    for stem, line in lines_of(pattern):
        if line.startswith("["):
            found.append((stem, line.strip("[]"), []))
        elif line:
            found[-1][2].append(line)
    return found


def capital(text: str) -> str:
    """Return the text with every sentence start in upper case."""
    return re.sub(r"(?:^|(?<=[.?!] ))[a-z]", lambda hit: hit.group().upper(), text)


def deal(units: Sequence[T], rng: random.Random, offset: int = 0) -> dict[Split, list[T]]:
    """Shuffle the units and deal them to the splits, three to one to one."""
    shuffled = list(units)
    rng.shuffle(shuffled)
    dealt: dict[Split, list[T]] = {split: [] for split in SPLITS}
    for place, unit in enumerate(shuffled, start=offset):
        dealt[PATTERN[place % len(PATTERN)]].append(unit)
    return dealt


def pick(items: Sequence[T], count: int, rng: random.Random) -> list[T]:
    """Draw up to `count` different items."""
    return rng.sample(list(items), min(count, len(items)))
