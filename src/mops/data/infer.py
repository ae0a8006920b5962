"""Infers a first recipe from a folder of the user's own files, for `mops init`."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mops.data.known_datasets import ENDINGS, Entry, columns_entry, splits_entry, task_type
from mops.data.tables import DataTable, open_table
from mops.errors import DataError
from mops.tasks import are_numbers, canonical_label

SPLIT_WORDS = {
    "train": "train", "training": "train", "test": "test",
    "dev": "validation", "val": "validation", "valid": "validation", "validation": "validation",
}  # fmt: skip
SEPARATORS = re.compile(r"[-_.]")
PAIRS = (
    "sentence1 sentence2", "question1 question2", "premise hypothesis", "text text_pair",
    "text1 text2", "question sentence",
)  # fmt: skip
TEXTS = (
    "sentence", "text", "review", "comment", "message", "content", "question", "title", "tweet",
)  # fmt: skip
LABELS = (
    "label", "labels", "score", "similarity", "sentiment", "is_duplicate", "target", "class",
    "stars", "category", "gold_label", "relatedness", "rating",
)  # fmt: skip
MANY_VALUES = 10
# Files that accompany data and are plainly not data: not reported.
COMPANIONS = (".md", ".yaml", ".yml")


@dataclass(frozen=True)
class InferredTasks:
    """Entries for a recipe's `tasks`, and `file: reason` for every file left out."""

    tasks: dict[str, Entry]
    skipped: tuple[str, ...]


class NotInferredError(Exception):
    """The reason why a set of files gives no task."""


def infer_tasks(folder: str | Path) -> InferredTasks:
    """A task for every set of files (train, dev, test) in the folder and in its sub-folders."""
    root = Path(folder).resolve()
    tasks: dict[str, Entry] = {}
    skipped = [
        f"{path.relative_to(root)}: not a table; export it as csv, tsv, jsonl or parquet"
        for path in _visible_files(root)
        if path.suffix.lower() not in (*ENDINGS, *COMPANIONS)
    ]
    for stem, files in _sets_of_files(root).items():
        try:
            tasks[_free_name(stem, tasks)] = _infer_entry(files)
        except (NotInferredError, DataError) as error:
            skipped += [f"{Path(path).relative_to(root)}: {error}" for path in files.values()]
    return InferredTasks(tasks, tuple(skipped))


def _visible_files(root: Path) -> Iterator[Path]:
    """The files of the folder, then those of its sub-folders; nothing hidden."""
    for pattern in ("*", "*/*"):
        for path in sorted(root.glob(pattern)):
            if path.is_file() and not any(p.startswith(".") for p in path.relative_to(root).parts):
                yield path


def _sets_of_files(root: Path) -> dict[str, dict[str, str]]:
    """Name of the set -> split -> path: the split's word is removed from the file's name."""
    sets: dict[str, dict[str, str]] = defaultdict(dict)
    for path in _visible_files(root):
        if path.suffix.lower() in ENDINGS:
            words = SEPARATORS.split(path.stem)
            splits = [word for word in words if word.lower() in SPLIT_WORDS]
            rest = "-".join(word for word in words if word not in splits)
            inside = "" if path.parent == root else path.parent.name
            name = "-".join(filter(None, (inside, rest))) or root.name
            split = SPLIT_WORDS[splits[-1].lower()] if splits else "train"
            is_taken = split in sets[name]
            sets[str(path.relative_to(root)) if is_taken else name][split] = str(path)
    return sets


def _free_name(stem: str, taken: dict[str, Entry]) -> str:
    """The stem as a valid task name, with a number when it is taken."""
    name = re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-_") or "task"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _infer_entry(files: dict[str, str]) -> Entry:
    if "train" not in files and "validation" in files:
        files = {"train": files["validation"]} | {k: v for k, v in files.items() if k == "test"}
    if "train" not in files:
        raise NotInferredError("there is no training file beside it")
    table = open_table(files["train"])
    text = _first_known(table, (*PAIRS, *TEXTS), "text", "sentence, text, sentence1 + sentence2")
    label = _first_known(table, LABELS, "label", "label, score, target")[0]
    ordered: dict[str, str] = {
        name: files[name] for name in ("train", "validation", "test") if name in files
    }
    kind = _type_and_range(table, label, is_pair=len(text) == 2)
    return kind | columns_entry(text, label) | splits_entry(ordered)


def _first_known(
    table: DataTable, known: tuple[str, ...], what: str, examples: str
) -> tuple[str, ...]:
    """The first known set of column names that the table has, in the table's spelling."""
    spelling = {column.lower(): column for column in table.columns}
    for names in map(str.split, known):
        if set(names) <= set(spelling):
            return tuple(spelling[name] for name in names)
    columns = ", ".join(column or "(unnamed)" for column in table.columns)
    raise NotInferredError(f"no {what} column among {columns}; known names: {examples}, ...")


def _type_and_range(table: DataTable, label: str, *, is_pair: bool) -> Entry:
    values = {canonical_label(record.values.get(label, "")) for record in table.records()} - {""}
    if len(values) < 2:
        raise NotInferredError(f"column {label!r} holds {len(values)} value(s); two are needed")
    numbers = [float(value) for value in values] if are_numbers(values) else []
    has_fractions = any(not number.is_integer() for number in numbers)
    if not is_pair and has_fractions and len(values) > MANY_VALUES:
        raise NotInferredError(f"{label!r} is a number for a single text; mops has no such task")
    if is_pair and (has_fractions or len(numbers) > MANY_VALUES):
        limits = [math.floor(min(numbers)), math.ceil(max(numbers))]
        return task_type(is_pair, has_range=True) | {"range": limits}
    return task_type(is_pair, has_range=False)
