"""Which rows train and which validate: rows that share a text together, labels spread evenly.

parts = divide_rows(rows, (0.9, 0.1), seed=0)     # 0 or 1 for each row
"""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

HALVES = ("a", "b")  # of the validation rows
COMMON_ROWS, COMMON = 20, 0.05  # rows, and their share: a more frequent text links no pairs
TINY = 1e-9
VALUE_BINS = 5  # in which the values of a task are spread evenly


@dataclass(frozen=True, slots=True)
class Row:
    """One example; `problem` says why it can be neither trained on nor scored.

    `doubt` says why one that can be used may not be what its author meant.
    """

    id: str
    texts: tuple[str, ...]
    label: Any  # a string, a number or strings, by the kind of the task; None: none
    where: str
    problem: str = ""
    doubt: str = ""

    @property
    def content(self) -> tuple[str, ...]:
        """The same for rows with the same texts; a pair that was only swapped is the same row."""
        return tuple(sorted(map(normalised, self.texts)))


def normalised(text: str) -> str:
    """The same for two spellings of one sentence; a text of punctuation alone stays itself."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[\W_]+", " ", folded).strip() or folded.strip()


def divide_rows(rows: Sequence[Row], shares: Sequence[float], seed: int) -> list[int]:
    """The part of each row: parts have these shares of the rows, and of the rows of each label.

    Rows that share a text are in one part. Groups of such rows are sorted by their labels, the
    rarest first, in an order that the seed draws among equal ones, and each goes to the part that
    lacks most: a systematic sample. Before them, groups that are larger than a part: chains of
    shared sentences can contain most of a file.
    """
    groups, strata = group_rows(rows), label_strata(rows)
    counts = Counter(chain.from_iterable(strata))

    def labels_first(key: str) -> tuple[Any, ...]:
        own = set(chain.from_iterable(strata[number] for number in groups[key]))
        return sorted((counts[label], label) for label in own), digest_of(str(seed), key)

    part_of, wanted = dict[str, int](), np.maximum(np.array(shares) * len(rows), 1)
    large = {key for key in groups if len(groups[key]) > wanted.min()}
    for key in sorted(large, key=lambda key: (-len(groups[key]), digest_of(key))):
        part_of[key] = int(np.argmax(wanted))
        wanted[part_of[key]] -= len(groups[key])
    left = np.maximum(wanted, 0) / max(TINY, np.maximum(wanted, 0).sum())
    taken, seen = np.zeros(len(shares)), 0
    for key in sorted(groups.keys() - large, key=labels_first):
        seen += len(groups[key])
        part_of[key] = int(np.argmax(np.round(left * seen - taken, 9)))
        taken[part_of[key]] += len(groups[key])
    parts = {number: part_of[key] for key, members in groups.items() for number in members}
    return [parts[number] for number in range(len(rows))]


def label_strata(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The labels of each row as words: a value is the fifth of the values in which it lies."""
    values = [row.label for row in rows if isinstance(row.label, float)]
    edges = np.quantile(values or [0.0], np.linspace(0, 1, VALUE_BINS + 1)[1:-1])

    def words(label: Any) -> tuple[str, ...]:
        if isinstance(label, float):
            return (str(np.searchsorted(edges, label)),)
        return () if label is None else (label,) if isinstance(label, str) else label

    return [words(row.label) for row in rows]


def merge_tasks(by_task: Mapping[str, Iterable[Row]]) -> list[Row]:
    """The rows of a file that several tasks read: each once, with all its texts and labels."""
    merged: dict[str, Row] = {}
    for task, own in by_task.items():
        rows = tuple(own)
        for row, labels in zip(rows, label_strata(rows), strict=True):
            before = merged.get(row.where, replace(row, texts=(), label=()))
            texts = tuple(dict.fromkeys((*before.texts, *row.texts)))
            named = tuple(f"{task} {label}" for label in labels)
            merged[row.where] = replace(before, texts=texts, label=(*before.label, *named))
    return list(merged.values())


def cut_halves(rows: Sequence[Row]) -> list[str]:
    """The half of each validation row, a or b; rows that share a sentence are in the same one.

    Large groups first, each into the smaller half, so that small ones even them out.
    """
    sizes, halves = dict.fromkeys(HALVES, 0), [""] * len(rows)
    groups = group_rows(rows)
    for key in sorted(groups, key=lambda key: (-len(groups[key]), digest_of(key))):
        half = min(sizes, key=sizes.__getitem__)
        sizes[half] += len(groups[key])
        for number in groups[key]:
            halves[number] = half
    return halves


def group_rows(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Row numbers by connected component; the key is the component's smallest text.

    A text that many rows have, as a stock reply, links none of them if they have another one.
    """
    parents: dict[str, str] = {}

    def root(text: str) -> str:
        parents.setdefault(text, text)
        while parents[text] != text:
            parents[text] = text = parents[parents[text]]
        return text

    # An empty text links nothing; a row without any text is a group of its own.
    texts = [[normalised(text) for text in row.texts if text] or [row.where] for row in rows]
    counts = Counter(chain.from_iterable(map(set, texts)))
    often = {text for text, count in counts.items() if count > max(COMMON_ROWS, COMMON * len(rows))}
    texts = [[text for text in own if text not in often] or [" | ".join(own)] for own in texts]
    for first, *others in texts:
        for other in others:
            low, high = sorted((root(first), root(other)))
            parents[high] = low
    groups = defaultdict(list)
    for number, (first, *_) in enumerate(texts):
        groups[root(first)].append(number)
    return groups


def digest_of(*parts: str) -> bytes:
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
