"""The dataset of a recipe: the rows of all its tasks, validated once, and split by their texts."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from mops.config.recipe import Recipe
from mops.config.training import TaskEntry, Training
from mops.data.columns import NAN, SPLIT_WORDS, with_point
from mops.data.doubts import doubtful_labels, find_leaks
from mops.data.splits import Row, divide_rows, merge_tasks
from mops.data.tables import HUB, DataTable, RawRow, open_table
from mops.errors import DataError, nearest
from mops.files import file_digest
from mops.kinds.classes import canonical_label
from mops.kinds.labels import join_columns
from mops.kinds.metrics import Answers
from mops.tasks import Task

SPLITS = ("train", "validation", "test")
SPLIT_SEED = 0  # not the seed of a training: runs are compared on the same rows
NO_LABELS = "[]"  # a cell without any label
UNLABELLED = "-1"  # in place of a label in GLUE's test files
SHOWN_ROWS = 3
# Keys of an entry: tasks with the same values read the same rows.
SAME_ROWS = (
    "text", "train", "validation", "test", "split", "fold", "split_column", "columns",
    "on_bad_row",
)  # fmt: skip


class FileRows(NamedTuple):
    """The number of usable rows of a training file, and their weight in a pass over the task.

    Tasks with the same `leader` take them in the same order.
    """

    rows: int
    weight: float = 1.0
    leader: str = ""  # default: the task itself

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
    def labelled(self) -> tuple[Row, ...]:
        """Those that have a label: of a file that several tasks read, a row may have none."""
        return tuple(row for row in self.good if row.label is not None)

    @property
    def bad(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.problem)


@dataclass(frozen=True)
class Dataset:
    """The rows of every split of every task."""

    tasks: Mapping[str, Task]
    splits: Mapping[str, Mapping[str, RowsRead]]  # task -> split -> rows
    digests: Mapping[str, str]  # file -> SHA-256
    leaders: Mapping[str, str] = field(default_factory=dict)  # of tasks on the same rows

    @property
    def train_files(self) -> dict[str, tuple[FileRows, ...]]:
        """Task -> the files of its training rows."""
        return {
            task: tuple(file._replace(leader=self.leaders.get(task, "")) for file in own.files)
            for task, own in ((task, splits["train"]) for task, splits in self.splits.items())
        }

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the scores should know: rows left out, leaks, labels that look wrong."""
        reading = (
            f"{task}: {Path(read.source).name}: {note}"
            for task, splits in self.splits.items()
            for read in splits.values()
            for note in read.notes
        )
        return (*reading, *self.doubts)

    @cached_property
    def leaks(self) -> tuple[str, ...]:
        """Rows that are scored and also trained on."""
        return tuple(find_leaks(self.splits))

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Why scores on these rows may mean less than they seem to."""
        return (*self.leaks, *doubtful_labels(self.tasks, self.splits))


def read_dataset(recipe: Recipe, wanted: tuple[str, ...] = SPLITS) -> Dataset:
    """Read the files of a recipe; labels that it does not list come from the training rows.

    Of a recipe with folds these are the rows of the first.
    """
    recipe = recipe.in_fold()
    tasks: dict[str, Task] = {}
    splits: dict[str, dict[str, RowsRead]] = {}
    shared = shared_files(recipe.tasks, recipe.training)
    for name, entry in recipe.tasks.items():
        own = shared.get(name)
        tasks[name], splits[name] = read_task(entry, entry.task(name), wanted, own)
    files = dict.fromkeys(file for entry in recipe.tasks.values() for file in entry.all_files)
    leaders = {name: own.leader for name, own in shared.items() if own.is_together}
    return Dataset(tasks, splits, {file: file_digest(file) for file in files}, leaders)


@dataclass(frozen=True)
class SharedFiles:
    """Files that several tasks read, each once. A row may lack the labels of some tasks."""

    leader: str  # the first task
    entries: Mapping[str, TaskEntry]  # all tasks with the same training file
    is_together: bool = True  # a training step may take the same rows for all of them
    opened: dict[str, DataTable] = field(default_factory=dict)

    def open(self, file: str, task: Task, columns: tuple[str, ...]) -> DataTable:
        if file not in self.opened:
            table = open_table(file, task.text, names=columns)
            self.opened[file] = replace(table, records=partial(iter, list(table.records())))
        return self.opened[file]

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the training file with the texts and labels of all tasks that divide it."""
        divided = {n: e for n, e in self.entries.items() if e.validation is None}
        if len({(entry.split, entry.fold) for entry in divided.values()}) > 1:
            raise DataError(
                f"tasks {', '.join(divided)} read the same training file with different `split`; "
                "a row must not teach one task and judge another; give all of them the same value"
            )
        read = (
            (n, read_split(e, e.task(n), e.files()["train"], "train", self).good)
            for n, e in divided.items()
        )
        return merge_tasks(dict(read))


def shared_files(
    entries: Mapping[str, TaskEntry], training: Training | None = None
) -> dict[str, SharedFiles]:
    """The files of each task that reads a file of another one; the same texts are a group."""
    groups: dict[str, list[str]] = {}
    readers = Counter(file for entry in entries.values() for file in entry.train_files)
    for name, entry in entries.items():
        groups.setdefault(repr([getattr(entry, key) for key in SAME_ROWS]), []).append(name)
    turns = {stage.schedule or training.schedule for stage in training.stages} if training else {}
    is_together = not training or {training.schedule, *turns} <= {"together", "mixed"}
    shared: dict[str, SharedFiles] = {}
    for names in groups.values():
        first = entries[names[0]]
        if len(names) > 1 or any(readers[file] > 1 for file in first.train_files):
            same = first.files().get("train")
            beside = {n: e for n, e in entries.items() if e.files().get("train") == same}
            own = SharedFiles(names[0], beside, is_together and len(names) > 1)
            shared |= dict.fromkeys(names, own)
    return shared


def dataset_key(recipe: Recipe) -> str:
    """Recipes with equal keys read equal rows."""
    return json.dumps(recipe.in_fold().to_data()["tasks"], sort_keys=True)


def read_task(
    entry: TaskEntry, task: Task, wanted: tuple[str, ...], shared: SharedFiles | None = None
) -> tuple[Task, dict[str, RowsRead]]:
    """The task with its labels, and its splits; `shared` are files that other tasks read too."""
    if not entry.train_files:
        raise DataError(f"task {task.name!r}: no `train` file is named")
    file = entry.files()["train"]
    train = read_split(entry, task, file, "train", shared)
    answers = [row.label for row in train.good if row.label is not None]
    if len(set(answers)) == 1:
        raise DataError(
            f"task {task.name!r}: all {len(answers)} training rows of {file} have the "
            f"label {answers[0]!r}; there is nothing to learn. Check `label`"
        )
    if reason := task.answer.unlearnable(task, answers):
        raise DataError(f"task {task.name!r}: {reason}")
    task = replace(task, **task.answer.learn(task, answers))
    splits = {"train": train}
    if entry.validation is None:
        splits |= split_off(entry, train, shared.rows if shared else train.good)
    for split, file in entry.files().items():
        if split != "train" and split in wanted:
            splits[split] = read_split(entry, task, file, split, shared)
    if shared and not shared.is_together:
        splits["train"] = replace(splits["train"], rows=splits["train"].labelled)
    splits["train"] = add_files(entry, task, splits, shared)
    return task, splits


def add_files(
    entry: TaskEntry,
    task: Task,
    splits: Mapping[str, RowsRead],
    shared: SharedFiles | None = None,
) -> RowsRead:
    """The training rows of all files; those of further files that are also scored are left out."""
    (_, weight), *further = entry.train_files.items()
    train = splits["train"]
    if not further and weight == 1:
        return train
    scored = {row.content for n, read in splits.items() if n != "train" for row in read.rows}
    rows, notes, parts = [*train.rows], [*train.notes], [FileRows(len(train.good), weight)]
    for file, weight in further:
        read = read_split(entry, task, file, "train", shared)
        usable = read.good if shared and shared.is_together else read.labelled
        kept = [row for row in usable if row.content not in scored]
        if known := len(usable) - len(kept):
            notes.append(f"{known:,} rows of {Path(file).name} left out: they are in another split")
        rows, notes = [*rows, *kept], [*notes, *read.notes]
        parts.append(FileRows(len(kept), weight))
    return replace(train, rows=tuple(rows), notes=tuple(notes), parts=tuple(parts))


def read_split(
    entry: TaskEntry, task: Task, file: str, split: str, shared: SharedFiles | None = None
) -> RowsRead:
    """The rows of a file that belong to the split."""
    table = shared.open(file, task, entry.columns) if shared else None
    read = read_rows(
        file,
        task,
        needs_label=split != "test",
        on_bad_row=entry.on_bad_row,
        columns=entry.columns,
        shared=table,
        prepare=lambda table: prepare_split(table, entry, split),
    )
    if entry.split_column and not read.rows:
        raise DataError(
            f"{file}: no row has the split {split} in column {entry.split_column!r}; "
            f"allowed: {', '.join(SPLIT_WORDS)}; remove `{split}` or correct the column"
        )
    return read


def prepare_split(table: DataTable, entry: TaskEntry, split: str) -> DataTable:
    """The table with the rows of one split, and its labels as the entry says they are meant."""
    column = entry.split_column
    if column and column not in table.columns:
        raise DataError(
            f"{table.source}: no column {column!r} for `split_column`; found "
            f"{', '.join(table.columns)}.{nearest(column, table.columns)}"
        )
    meant = cell_meaning(table, entry, split)

    def records() -> Iterator[RawRow]:
        for record in table.records():
            values, problem, there = record.values, record.problem, split_of(record, entry, split)
            if meant:
                own = (name for name in entry.label_columns if name in values)
                values = values | {name: meant(values[name]) for name in own}
            if not there and split == "train":  # it is reported once
                problem = problem or f"has the unknown split {values[column or '']!r}"
            if there == split or (not there and split == "train"):
                yield RawRow(record.line, values, problem)

    return replace(table, records=records) if column or meant else table


def split_of(record: RawRow, entry: TaskEntry, split: str) -> str:
    """The split that a column names; empty for an unknown one. Without the column it is `split`."""
    column = entry.split_column
    return SPLIT_WORDS.get(record.values[column].lower(), "") if column else split


def cell_meaning(table: DataTable, entry: TaskEntry, split: str) -> Callable[[str], str] | None:
    """What label cells mean: decimal commas, empty ones. None: what is written.

    Test rows may come without labels: there an empty column says nothing.
    """
    rows = (row for row in table.records() if split_of(row, entry, split) == split)
    may_be_empty = entry.empty == "no_labels" and (
        split != "test" or any(row.values.get(name) for row in rows for name in entry.label_columns)
    )

    def meant(text: str) -> str:
        text = with_point(text) if entry.decimal else text
        return text or (NO_LABELS if may_be_empty else "")

    return meant if entry.decimal or may_be_empty else None


def split_off(entry: TaskEntry, train: RowsRead, rows: Sequence[Row]) -> dict[str, RowsRead]:
    """A validation split out of the training rows; `rows` are those of all tasks on the file."""
    if entry.split is None and entry.fold is None:
        raise DataError(
            f"{train.source}: there is neither a `validation` file nor `split: 0.1`; "
            "give one of them for this task"
        )
    held, count = entry.fold or (2, 2)
    shares = (1 - (entry.split or 0), entry.split or 0)
    parts = divide_rows(rows, [1 / count] * count if entry.fold else shares, SPLIT_SEED)
    part_of = {row.where: part for row, part in zip(rows, parts, strict=True)}
    kept, taken = (
        tuple(row for row in train.good if (part_of[row.where] == held - 1) is is_held)
        for is_held in (False, True)
    )
    if not (kept and taken):
        raise DataError(
            f"{train.source}: {len(train.good)} rows cannot be split: they form too few groups of "
            "shared sentences, so one side would be empty; both sides need rows; name a "
            "`validation` file, or change `split`"
        )
    return {"train": replace(train, rows=kept), "validation": replace(train, rows=taken, notes=())}


def encode_targets(task: Task, rows: Sequence[Row]) -> Answers:
    """The labels as targets; unknown where a row cannot be scored."""
    return task.answer.encode(task, [None if row.problem else row.label for row in rows])


def read_rows(
    source: str | Path,
    task: Task,
    *,
    needs_label: bool,
    on_bad_row: str = "error",
    columns: tuple[str, ...] = (),
    shared: DataTable | None = None,
    prepare: Callable[[DataTable], DataTable] = lambda table: table,
) -> RowsRead:
    """All rows of `source`; `columns` names the columns of a file that has no header line.

    `shared` is the open file where other tasks read it too: then rows may lack a label, and with
    `skip` a wrong one is no label, so that all these tasks have the same rows.
    """
    wanted = (*task.text, *task.label_columns) if needs_label else task.text
    table = prepare(shared or open_table(source, wanted, names=columns))
    may_lack = (shared is not None) + (shared is not None and on_bad_row == "skip")
    rows = tuple(stream_rows(table, task, needs_label=needs_label, may_lack=may_lack))
    if needs_label and not any(row.label is not None or row.problem for row in rows):
        raise DataError(f"{table.source}: no row has a label for {task.name!r}; check `label`")
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
    lacking = sum(row.label is None and not row.problem for row in rows)
    if needs_label and lacking:
        notes.append(f"{lacking} of {len(rows)} rows have no label for {task.name}")
    return RowsRead(table.source, rows, tuple(notes))


def stream_rows(
    table: DataTable, task: Task, *, needs_label: bool, may_lack: int = 0
) -> Iterator[Row]:
    """The rows one at a time, the unusable ones with their problem.

    `may_lack`: 1, a row without a label is usable; 2, also one with a wrong label.
    """
    for name in (*task.text, *task.label_columns) if needs_label else task.text:
        if name not in table.columns:
            columns = ", ".join(column or "(unnamed)" for column in table.columns)
            raise DataError(
                f"{table.source}: no column {name!r}; found {columns} (read as {table.form}); "
                f"correct the task's columns or the header.{nearest(name, table.columns)}"
            )
    source = table.source if table.source.startswith(HUB) else Path(table.source).name
    id_column = next((column for column in ("id", "idx") if column in table.columns), "")
    read_label = lru_cache(maxsize=1000)(
        lambda cells: _read_label(cells, task, needs_label, may_lack)
    )

    def to_row(number: int, record: RawRow) -> Row:
        cells = [task.answer.read_text(record.values[column]) for column in task.text]
        texts = tuple(text for text, _ in cells)
        empty = "" if all(texts) else f"{task.text[texts.index('')]} is empty"
        broken = next((problem for _, problem in cells if problem), empty)
        label, wrong = read_label(tuple(record.values.get(name, "") for name in task.label_columns))
        row_id = record.values.get(id_column) or str(number)
        if label is not None and (wrong := task.answer.mismatch(label, texts)):
            label, wrong = None, "" if may_lack > 1 else wrong
        problem = record.problem or broken or wrong
        return Row(row_id, texts, label, f"{source}:{record.line}", problem)

    return map(to_row, count(1), table.records())


def _read_label(
    cells: tuple[str, ...], task: Task, needs_label: bool, may_lack: int
) -> tuple[Any, str]:
    """The label and what is wrong with it; None when there is none or it is wrong."""
    text, broken = join_columns(task.label_columns, cells) if len(cells) > 1 else (cells[0], "")
    if not text or (text.lower() == NAN and text not in task.labels):
        missing = f"has no {', '.join(task.label_columns)}" + (f" ({text})" if text else "")
        missing = missing if needs_label and not may_lack else ""
        return None, "" if may_lack > 1 else broken or missing
    label, wrong = task.answer.read(text, task)
    is_known = bool(task.labels) or not task.answer.has_labels
    if canonical_label(text) == UNLABELLED and not needs_label and (wrong or not is_known):
        return None, ""
    return None if wrong else label, "" if may_lack > 1 else wrong


def first_problems(problems: Sequence[str]) -> str:
    """The first few of `file:line reason`."""
    return ", ".join(problems[:SHOWN_ROWS]) + (", ..." if len(problems) > SHOWN_ROWS else "")
