"""From texts to batches: texts are tokenised once, a batch takes some of their sequences.

Augmented rows change a little from pass to pass. The change follows from the seed, the task, the
pass and the row's number alone, so a resumed run sees the same texts.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from mops.config.training import Augment
from mops.data.readers import whole
from mops.data.schedule import Place, generator
from mops.data.tokenizer import panics_as_errors
from mops.kinds.metrics import Answers, known
from mops.plans.shapes import Reading
from mops.store import Arrays, find_store
from mops.tasks import Task

Item = TypeVar("Item")
Ints = NDArray[np.int32]
Texts = tuple[str, ...]  # the one or two texts of a row
MOST_COUNTED = 2**18  # characters of a text whose tokens are counted; 256 bytes each
MOST_IN_ALL = 2**25  # characters of all texts whose tokens are counted: some seconds
LONGEST_WORD = 100  # characters; WordPiece takes a longer one for unknown
CHUNK = 4096  # rows tokenised at a time; bounds memory
KIND = "tokens"  # in the store
WORD = re.compile(r"\S+")
WORTH_KEEPING = 5000  # rows; fewer are tokenised faster than a cached table is found


@dataclass(frozen=True)
class TokenTable:
    """The sequences of many rows, flat; a row has one sequence, or two with `bi` pairs."""

    ids: Ints
    types: Ints
    starts: NDArray[np.int64]  # first token of each sequence, and one past the last
    per_row: int
    cut: int = 0  # sequences that were longer than max_length
    # Where the first piece of each word is in its sequence, -1 for a word that was cut; and the
    # first word of each row, and one past the last. Only for tasks that read words.
    words: Ints | None = None
    word_starts: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return (len(self.starts) - 1) // self.per_row

    def row(self, row: int) -> Iterator[tuple[Ints, Ints]]:
        """(ids, types) of each sequence of a row."""
        for sequence in range(row * self.per_row, (row + 1) * self.per_row):
            span = slice(self.starts[sequence], self.starts[sequence + 1])
            yield self.ids[span], self.types[span]

    @property
    def has_words(self) -> bool:
        return self.words is not None

    def word_places(self, row: int) -> Ints:
        """The place of each word of a row in its sequence."""
        assert self.words is not None and self.word_starts is not None
        return self.words[self.word_starts[row] : self.word_starts[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence."""
        return np.diff(self.starts)

    @cached_property
    def counted_lengths(self) -> tuple[tuple[int, int], ...]:
        """(length, number of sequences with it)."""
        lengths, counts = np.unique(self.lengths, return_counts=True)
        return tuple(zip(lengths.tolist(), counts.tolist(), strict=True))

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        """Tokens of each row, over all of its sequences."""
        return self.lengths.reshape(-1, self.per_row).sum(axis=1)


def tokenise(
    tokenizer: Tokenizer, texts: Sequence[Texts], reading: Reading, has_words: bool = False
) -> TokenTable:
    """The texts of rows as sequences: one per row, or with `bi` pairs one per text.

    `has_words`: with the place of each word of a single text.
    """
    most, apart = reading.max_length, reading.texts_apart(bool(texts) and len(texts[0]) == 2)
    ids: list[Ints] = [np.zeros(0, np.int32)]
    types: list[Ints] = [np.zeros(0, np.int32)]
    words: list[Ints] = [np.zeros(0, np.int32)]
    cut = 0
    for start in range(0, len(texts), CHUNK):
        tokenizer.enable_truncation(most)  # shortens the longer text of a pair first
        chunk = texts[start : start + CHUNK]
        rows = [tuple(shorten(tokenizer, t, most) for t in row) for row in chunk]
        with panics_as_errors("the tokenizer cannot read a text"):
            encodings = tokenizer.encode_batch(list_inputs(rows, apart))
        if has_words:
            pairs = zip(encodings, chunk, strict=True)
            words += [find_words(encoding.offsets, text) for encoding, (text, *_) in pairs]
        for encoding, given in zip(encodings, list_inputs(chunk, apart), strict=True):
            ids.append(np.array(encoding.ids, dtype=np.int32))
            types.append(np.array(encoding.type_ids, dtype=np.int32))
            lengths = [len(given)] if isinstance(given, str) else map(len, given)
            cut += bool(encoding.overflowing) or max(lengths) > LONGEST_WORD * most
    return TokenTable(
        ids=np.concatenate(ids),
        types=np.concatenate(types),
        starts=np.cumsum([len(sequence) for sequence in ids], dtype=np.int64),
        per_row=2 if apart else 1,
        cut=cut,
        words=np.concatenate(words) if has_words else None,
        word_starts=np.cumsum([len(row) for row in words]) if has_words else None,
    )


def list_inputs(rows: Sequence[Texts], apart: bool) -> list[str | Texts]:
    """What the tokenizer reads as one sequence each."""
    return list(chain(*rows)) if apart else [row if len(row) == 2 else row[0] for row in rows]


def full_lengths(
    tokenizer: Tokenizer, texts: Sequence[Texts], reading: Reading, table: TokenTable
) -> NDArray[np.int64]:
    """The tokens of each sequence before those of `table` were cut; of very long texts about.

    Of very many, a sample is counted; the others have as many tokens for their characters.
    """
    lengths, seen, found = table.lengths.copy(), 0, 0
    inputs = list_inputs(texts, reading.texts_apart(bool(texts) and len(texts[0]) == 2))
    tokenizer.no_truncation()
    places = np.flatnonzero(lengths >= reading.max_length)
    for place in np.random.default_rng(0).permutation(places):  # one by one: they may be long
        given = inputs[place]
        pair = (given,) if isinstance(given, str) else given
        if seen < MOST_IN_ALL:
            counted = [whole(text[:MOST_COUNTED]) for text in pair]
            whole_input = tuple(counted) if pair[1:] else counted[0]
            tokens, size = (
                len(tokenizer.encode_batch_fast([whole_input])[0]),
                sum(map(len, counted)),
            )
            seen, found = seen + size, found + tokens
        else:
            tokens, size = found, seen
        lengths[place] = max(lengths[place], tokens * sum(map(len, pair)) // max(1, size))
    return lengths


def find_words(offsets: Sequence[tuple[int, int]], text: str) -> Ints:
    """The first token of each word of a text, -1 where it was cut off."""
    tokens = [(n, first, stop) for n, (first, stop) in enumerate(offsets) if stop > first]
    places, at = [], 0
    for word in WORD.finditer(text):
        while at < len(tokens) and tokens[at][2] <= word.start():
            at += 1
        is_here = at < len(tokens) and tokens[at][1] < word.end()
        places.append(tokens[at][0] if is_here else -1)
    return np.array(places, dtype=np.int32)


def shorten(tokenizer: Tokenizer, text: str, most: int) -> str:
    """A text cut to twice the number of tokens that can be used, and first to what they can hold.

    The library keeps everything that it truncates, for a pair even every combination of the parts:
    a text of many pages would take gigabytes.
    """
    text = whole(text[: LONGEST_WORD * most])
    if len(text) < 16 * most:
        return text
    tokenizer.no_truncation()
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    tokenizer.enable_truncation(most)
    return text if len(offsets) <= 2 * most else text[: offsets[2 * most][0]]


def tokenise_cached(
    tokenizer: Tokenizer, texts: Sequence[Texts], reading: Reading, has_words: bool = False
) -> TokenTable:
    """`tokenise`, memory-mapped from the store where it has been done before."""
    store = find_store() if len(texts) >= WORTH_KEEPING else None
    if store is None:
        return tokenise(tokenizer, texts, reading, has_words)
    key = cache_key(tokenizer, texts, reading) + ("-words" if has_words else "")
    if (cached := store.read(KIND, key)) is not None:
        per_row, cut = cached["facts"].tolist()
        own = cached["ids"], cached["types"], cached["starts"], per_row, cut
        return TokenTable(*own, cached.get("words"), cached.get("word_starts"))
    table = tokenise(tokenizer, texts, reading, has_words)
    facts = np.array([table.per_row, table.cut], dtype=np.int64)
    arrays: Arrays = {"ids": table.ids, "types": table.types, "starts": table.starts}
    if table.words is not None and table.word_starts is not None:
        arrays = {**arrays, "words": table.words, "word_starts": table.word_starts}
    store.add(KIND, key, {**arrays, "facts": facts}, {"what": "tokens"})
    return table


def cache_key(tokenizer: Tokenizer, texts: Sequence[Texts], reading: Reading) -> str:
    """A digest of everything a table depends on: tokenizer, pair mode, length, rows and texts."""
    tokenizer.no_truncation()  # it is part of the tokenizer's settings; max_length stands for it
    digest = hashlib.blake2b(tokenizer.to_str().encode(), digest_size=20)
    digest.update(f"{reading.pair} {reading.max_length}".encode())
    for row in texts:
        digest.update(len(row).to_bytes(1, "big"))
        for text in row:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


@dataclass(frozen=True)
class Segment:
    """One token sequence and the tasks it belongs to."""

    ids: Ints
    types: Ints
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """The words of some rows: how many each row has, and their places in its sequence."""

    counts: NDArray[np.int64]
    places: NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Rows of one or more tasks: their sequences in order, and the targets of each task."""

    segments: tuple[Segment, ...]
    targets: Mapping[str, Answers]
    # Factor on a task's loss where its rows are more or fewer than its usual batch; default 1.
    scale: Mapping[str, float] = field(default_factory=dict)
    # Weight of the rows here in the mean over the rows of all processes; default 1.
    parts: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, Words] = field(default_factory=dict)  # of tasks with a target for each

    @property
    def is_empty(self) -> bool:
        """Whether no row has a label."""
        return not self.segments


@dataclass(frozen=True)
class TaskData:
    """One split of one task, tokenised, with its targets."""

    task: Task
    tokens: TokenTable
    targets: Answers

    def __len__(self) -> int:
        return len(self.targets)

    @cached_property
    def is_known(self) -> NDArray[np.bool_]:
        """Which rows have a label: others are rows of other tasks on the same file."""
        return known(self.targets)


def make_batch(data: Mapping[str, TaskData], chosen: Mapping[str, Sequence[int]]) -> Batch:
    """The chosen rows of each task as one batch.

    Tasks that take the same rows of one table share their segments; a row without a label is only
    read by the other tasks.
    """
    readers: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for task, rows in chosen.items():
        readers.setdefault((id(data[task].tokens), tuple(rows)), []).append(task)
    segments: list[Segment] = []
    for (_, rows), tasks in readers.items():
        labelled = np.array([data[task].is_known[list(rows)] for task in tasks])
        for row, is_known in zip(rows, labelled.T, strict=True):
            own = tuple(task for task, is_own in zip(tasks, is_known, strict=True) if is_own)
            segments += make_segments(own, data[tasks[0]], [row]) if own else ()
    targets, scale, words = {}, {}, {}
    for task, chosen_rows in chosen.items():
        split, places = data[task], np.array(chosen_rows, dtype=np.int64)
        is_known = split.is_known[places]
        if is_known.any():
            targets[task] = split.targets[places][is_known]
            scale[task] = float(is_known.mean() / split.is_known.mean())
            if split.task.answer.reads_words:
                words[task], targets[task] = take_words(split, places[is_known])
    return Batch(tuple(segments), targets, scale, words=words)


def take_words(data: TaskData, rows: NDArray[np.int64]) -> tuple[Words, Answers]:
    """The words of some rows that were not cut, and their targets."""
    places = [data.tokens.word_places(row) for row in rows.tolist()]
    targets = [np.array(data.targets[row])[own >= 0] for row, own in zip(rows, places, strict=True)]
    read = [own[own >= 0].astype(np.int64) for own in places]
    counts = np.array([len(own) for own in read], dtype=np.int64)
    return Words(counts, np.concatenate(read)), np.concatenate(targets)


def make_segments(tasks: tuple[str, ...], data: TaskData, rows: Iterable[int]) -> Iterator[Segment]:
    for row in rows:
        for ids, types in data.tokens.row(row):
            yield Segment(ids, types, tasks)


def split_batches(
    items: Iterable[Item], size: Callable[[Item], int], limit: int
) -> Iterator[list[Item]]:
    """Neighbours whose sizes add up to at most `limit`, or a single larger item."""
    batch: list[Item] = []
    total = 0
    for item in items:
        total += size(item)
        if batch and total > limit:
            yield batch
            batch, total = [], size(item)
        batch.append(item)
    if batch:
        yield batch


def take_rows(data: Mapping[str, TaskData], chosen: Mapping[str, Sequence[Place]]) -> Batch:
    """The rows at these places, unchanged."""
    rows = {task: [place.row for place in places] for task, places in chosen.items()}
    return make_batch(data, rows)


@dataclass(frozen=True)
class AugmentedRows:
    """Makes batches of augmented rows."""

    data: Mapping[str, TaskData]
    texts: Mapping[str, Sequence[Texts]]  # of the training rows, in the order of `data`
    tokenizer: Tokenizer
    reading: Reading
    augment: Augment
    seed: int

    def take(self, chosen: Mapping[str, Sequence[Place]]) -> Batch:
        """The rows at these places, augmented for their pass."""
        changed = {task: self.change_rows(task, places) for task, places in chosen.items()}
        return make_batch(changed, {task: range(len(data)) for task, data in changed.items()})

    def change_rows(self, task: str, places: Sequence[Place]) -> TaskData:
        texts = []
        for row, number in places:
            draw = generator(self.seed, "augment", task, str(number), str(row))
            texts.append(change(self.texts[task][row], self.augment, task, draw))
        has_words = self.data[task].tokens.words is not None
        table = tokenise(self.tokenizer, texts, self.reading.of(task), has_words)
        targets = self.data[task].targets[[place.row for place in places]]
        return replace(self.data[task], tokens=table, targets=targets)


def change(texts: Texts, augment: Augment, task: str, draw: np.random.Generator) -> Texts:
    """One row's texts, possibly swapped, and without some words."""
    if task in augment.swap and draw.random() < 0.5:
        texts = texts[::-1]
    return tuple(drop_words(text, augment.word_dropout, draw) for text in texts)


def drop_words(text: str, probability: float, draw: np.random.Generator) -> str:
    """The text without each word with this probability; at least one word stays."""
    words = text.split()
    drawn = draw.random(len(words))
    kept = [word for word, x in zip(words, drawn, strict=True) if x >= probability]
    if len(kept) == len(words):
        return text
    return " ".join(kept or [words[int(draw.integers(len(words)))]])
