"""The dataset of a recipe: the rows of all its tasks, validated once, and split by their texts."""

import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.config.recipe import Recipe
from mops.config.training import TaskEntry
from mops.data.columns import SPLIT_WORDS
from mops.data.tables import HUB, DataTable, RawRow, open_table
from mops.errors import DataError, nearest
from mops.files import file_digest
from mops.tasks import Task, are_numbers, canonical_label, sorted_labels

SPLITS = ("train", "validation", "test")
SPLIT_SEED = 0  # not the seed of a training: runs are compared on the same rows
HALVES = ("a", "b")  # of the validation rows
UNLABELLED = "-1"  # in place of a label in GLUE's test files
SHOWN_ROWS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One example; `problem` says why it can be neither trained on nor scored."""

    id: str
    texts: tuple[str, ...]
    label: str | float | None
    where: str
    problem: str = ""

    @property
    def content(self) -> tuple[str, ...]:
        """The same for rows with the same texts; a pair that was only swapped is the same row."""
        return tuple(sorted(map(normalised, self.texts)))


class FileRows(NamedTuple):
    """The number of usable rows of a training file, and their weight in a pass over the task."""

    rows: int
    weight: float = 1.0

    @property
    def in_pass(self) -> int:
        """How many of them a pass has."""
        return max(1, round(self.rows * self.weight))


@dataclass(frozen=True)
class RowsRead:
    """All rows of a source in its order, the unusable ones with their problem."""

    source: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    parts: tuple[FileRows, ...] = ()  # the files of the good rows, if not one of weight 1

    @property
    def files(self) -> tuple[FileRows, ...]:
        return self.parts or (FileRows(len(self.good)),)

    @property
    def good(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.problem)

    @property
    def bad(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.problem)


@dataclass(frozen=True)
class Dataset:
    """The rows of every split of every task."""

    tasks: Mapping[str, Task]
    splits: Mapping[str, Mapping[str, RowsRead]]  # task -> split -> rows
    digests: Mapping[str, str]  # file -> SHA-256

    @property
    def train_files(self) -> dict[str, tuple[FileRows, ...]]:
        """Task -> the files of its training rows."""
        return {task: splits["train"].files for task, splits in self.splits.items()}

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the scores should know: rows left out, rows that are also in train."""
        notes = []
        for task, splits in self.splits.items():
            train = {row.content for row in splits["train"].good} if "train" in splits else set()
            for split, read in splits.items():
                notes += [f"{task}: {Path(read.source).name}: {note}" for note in read.notes]
                known = sum(row.content in train for row in read.good)
                if known and split != "train":
                    total = len(read.good)
                    notes.append(f"{task}: {known:,} of {total:,} {split} rows are also in train")
        return tuple(notes)


def read_dataset(recipe: Recipe, wanted: tuple[str, ...] = SPLITS) -> Dataset:
    """Read the files of a recipe; labels that it does not list come from the training rows."""
    tasks: dict[str, Task] = {}
    splits: dict[str, dict[str, RowsRead]] = {}
    digests: dict[str, str] = {}
    for name, entry in recipe.tasks.items():
        tasks[name], splits[name] = read_task(entry, entry.task(name), wanted)
        digests |= {file: file_digest(file) for file in entry.all_files}
    return Dataset(tasks, splits, digests)


def dataset_key(recipe: Recipe) -> str:
    """Recipes with equal keys read equal rows."""
    return json.dumps(recipe.to_data()["tasks"], sort_keys=True)


def read_task(
    entry: TaskEntry, task: Task, wanted: tuple[str, ...]
) -> tuple[Task, dict[str, RowsRead]]:
    """The task with its labels, and its splits."""
    if not entry.train_files:
        raise DataError(f"task {task.name!r}: no `train` file is named")
    file = entry.files()["train"]
    train = read_split(entry, task, file, "train")
    labels = {row.label for row in train.good}
    if len(labels) == 1:
        raise DataError(
            f"task {task.name!r}: all {len(train.good)} training rows of {file} have the "
            f"label {train.good[0].label!r}; there is nothing to learn. Check `label`"
        )
    if not task.range and not task.labels:
        task = replace(task, labels=sorted_labels({str(label) for label in labels}))
        if task.loss_name == "ordinal" and not are_numbers(task.labels):
            raise DataError(
                f"task {task.name!r}: loss ordinal needs ordered classes, the training file has "
                f"the words {', '.join(task.labels)}; list them under `labels`, the lowest first"
            )
    splits = {"train": train}
    if entry.validation is None:
        splits |= split_off(entry, train)
    for split, file in entry.files().items():
        if split != "train" and split in wanted:
            splits[split] = read_split(entry, task, file, split)
    splits["train"] = add_files(entry, task, splits)
    return task, splits


def add_files(entry: TaskEntry, task: Task, splits: Mapping[str, RowsRead]) -> RowsRead:
    """The training rows of all files; those of further files that are also scored are left out."""
    (_, weight), *further = entry.train_files.items()
    train = splits["train"]
    if not further and weight == 1:
        return train
    scored = {row.content for n, read in splits.items() if n != "train" for row in read.rows}
    rows, notes, parts = [*train.rows], [*train.notes], [FileRows(len(train.good), weight)]
    for file, weight in further:
        read = read_split(entry, task, file, "train")
        kept = [row for row in read.good if row.content not in scored]
        if known := len(read.good) - len(kept):
            notes.append(f"{known:,} rows of {Path(file).name} left out: they are in another split")
        rows, notes = [*rows, *kept], [*notes, *read.notes]
        parts.append(FileRows(len(kept), weight))
    return replace(train, rows=tuple(rows), notes=tuple(notes), parts=tuple(parts))


def read_split(entry: TaskEntry, task: Task, file: str, split: str) -> RowsRead:
    """The rows of a file that belong to the split."""
    read = read_rows(
        file,
        task,
        needs_label=split != "test",
        on_bad_row=entry.on_bad_row,
        columns=entry.columns,
        prepare=lambda table: prepare_split(table, entry, split),
    )
    if entry.split_column and not read.rows:
        raise DataError(
            f"{file}: no row has the split {split} in column {entry.split_column!r}; "
            f"allowed: {', '.join(SPLIT_WORDS)}; remove `{split}` or correct the column"
        )
    return read


def prepare_split(table: DataTable, entry: TaskEntry, split: str) -> DataTable:
    """The table with the rows of one split and with decimal points, where the entry says so."""
    column, label = entry.split_column, entry.label
    if column and column not in table.columns:
        raise DataError(
            f"{table.source}: no column {column!r} for `split_column`; found "
            f"{', '.join(table.columns)}.{nearest(column, table.columns)}"
        )

    def records() -> Iterator[RawRow]:
        for record in table.records():
            values, problem = record.values, record.problem
            there = SPLIT_WORDS.get(values[column].lower(), "") if column else split
            if entry.decimal and label in values:
                values = values | {label: values[label].replace(entry.decimal, ".")}
            if not there and split == "train":  # it is reported once
                problem = problem or f"has the unknown split {values[column or '']!r}"
            if there == split or (not there and split == "train"):
                yield RawRow(record.line, values, problem)

    return replace(table, records=records) if column or entry.decimal else table


def split_off(entry: TaskEntry, train: RowsRead) -> dict[str, RowsRead]:
    """A validation split out of the training rows; rows with a common text stay together."""
    if entry.split is None:
        raise DataError(
            f"{train.source}: there is neither a `validation` file nor `split: 0.1`; "
            "give one of them for this task"
        )
    kept, taken = split_rows(train.good, entry.split, SPLIT_SEED)
    return {"train": replace(train, rows=kept), "validation": replace(train, rows=taken, notes=())}


def encode_targets(task: Task, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Class numbers, or the values as written; nan where a row cannot be scored."""
    classes: dict[object, float] = {label: float(n) for n, label in enumerate(task.labels)}
    # None becomes nan; the label of a similarity is its value
    labels = (None if row.problem else row.label for row in rows)
    return np.array([classes.get(label, label) for label in labels], dtype=np.float64)


def read_rows(
    source: str | Path,
    task: Task,
    *,
    needs_label: bool,
    on_bad_row: str = "error",
    columns: tuple[str, ...] = (),
    prepare: Callable[[DataTable], DataTable] = lambda table: table,
) -> RowsRead:
    """All rows of `source`; `columns` names the columns of a file that has no header line."""
    wanted = (*task.text, task.label) if needs_label else task.text
    table = prepare(open_table(source, wanted, names=columns))
    rows = tuple(stream_rows(table, task, needs_label=needs_label))
    bad, notes = [f"{row.where} {row.problem}" for row in rows if row.problem], []
    is_hopeless = needs_label and len(bad) == len(rows)
    if bad and (on_bad_row != "skip" or is_hopeless):
        advice = "correct the file" if is_hopeless else "set on_bad_row: skip to leave them out"
        raise DataError(
            f"{table.source}: {len(bad)} of {len(rows)} rows cannot be used: "
            f"{first_problems(bad)}; every row needs its texts and a valid label; {advice}"
        )
    if repeated := sum(times > 1 for times in Counter(row.id for row in rows).values()):
        notes.append(f"{repeated} ids occur twice or more")
    if bad:
        notes.append(f"{len(bad)} of {len(rows)} rows left out: {first_problems(bad)}")
    return RowsRead(table.source, rows, tuple(notes))


def stream_rows(table: DataTable, task: Task, *, needs_label: bool) -> Iterator[Row]:
    """The rows one at a time, the unusable ones with their problem."""
    for name in (*task.text, task.label) if needs_label else task.text:
        if name not in table.columns:
            columns = ", ".join(column or "(unnamed)" for column in table.columns)
            raise DataError(
                f"{table.source}: no column {name!r}; found {columns} (read as {table.form}); "
                f"correct the task's columns or the header.{nearest(name, table.columns)}"
            )
    source = table.source if table.source.startswith(HUB) else Path(table.source).name
    id_column = next((column for column in ("id", "idx") if column in table.columns), "")
    read_label = lru_cache(maxsize=1000)(lambda text: _read_label(text, task, needs_label))

    def to_row(number: int, record: RawRow) -> Row:
        texts = tuple(record.values[column] for column in task.text)
        empty = "" if all(texts) else f"{task.text[texts.index('')]} is empty"
        label, wrong = read_label(record.values.get(task.label, ""))
        row_id = record.values.get(id_column) or str(number)
        problem = record.problem or empty or wrong
        return Row(row_id, texts, label, f"{source}:{record.line}", problem)

    return map(to_row, count(1), table.records())


def _read_label(text: str, task: Task, needs_label: bool) -> tuple[str | float | None, str]:
    """The label and what is wrong with it; None when there is none or it is wrong."""
    label: str | float = canonical_label(text)
    is_known, wrong = bool(task.labels or task.range), ""
    if not text:
        return None, f"has no {task.label}" if needs_label else ""
    if task.range:
        low, high = task.range
        try:
            label = float(text)
            if not low <= label <= high:  # nan is in no range
                wrong = f"{text} is not between {low:g} and {high:g}"
        except ValueError:
            wrong = f"{text!r} is not a number"
    elif task.labels and label not in task.labels:
        wrong = f"{task.label} is {text!r}, not one of {', '.join(task.labels)}"
    if canonical_label(text) == UNLABELLED and not needs_label and (wrong or not is_known):
        return None, ""
    return None if wrong else label, wrong


def first_problems(problems: Sequence[str]) -> str:
    """The first few of `file:line reason`."""
    return ", ".join(problems[:SHOWN_ROWS]) + (", ..." if len(problems) > SHOWN_ROWS else "")


def normalised(text: str) -> str:
    """The same for two spellings of one sentence; a text of punctuation alone stays itself."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[\W_]+", " ", folded).strip() or folded.strip()


def split_rows(
    rows: Sequence[Row], fraction: float, seed: int
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """(train, validation): rows that share a sentence stay on one side.

    Groups of such rows are taken in an order drawn from the seed. A group that would miss the
    wanted size by more than leaving it out is skipped: chains of shared sentences can contain most
    of a file.
    """
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


def cut_halves(rows: Sequence[Row]) -> list[str]:
    """The half of each validation row, a or b; rows that share a sentence are in the same one.

    Large groups first, each into the smaller half, so that small ones even them out.
    """
    sizes, halves = dict.fromkeys(HALVES, 0), [""] * len(rows)
    groups = group_rows(rows)
    for key in sorted(groups, key=lambda key: (-len(groups[key]), _digest(key))):
        half = min(sizes, key=sizes.__getitem__)
        sizes[half] += len(groups[key])
        for number in groups[key]:
            halves[number] = half
    return halves


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
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
