"""Entries of a recipe for sets of files: their columns are sampled, decided about, and tried."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from math import ceil, floor
from pathlib import Path
from types import MappingProxyType
from typing import cast

from mops.config.training import TaskEntry
from mops.data.columns import KNOWN, SPLIT_WORDS, Column, is_label_name, is_text_name
from mops.data.dataset import (
    SPLITS,
    UNLABELLED,
    first_problems,
    prepare_split,
    read_task,
    stream_rows,
)
from mops.data.decisions import Columns, Decision, Entry, choose_texts, decide
from mops.data.readers import open_text
from mops.data.tables import (
    HUB,
    TAGGED_ENDINGS,
    DataTable,
    existing,
    is_json,
    open_table,
    tagged_names,
    words_width,
)
from mops.errors import DataError, RecipeError, UsageError, nearest
from mops.kinds.classes import are_numbers
from mops.tasks import KINDS
from mops.yaml_io import to_value

Files = dict[str, str]  # split -> path
Reasons = list[tuple[str, str]]  # file, why it is left out
SAMPLE_ROWS = 5_000
RANGED = ("similarity", "regression")
NEW_NAMES = {"text": "text", "class": "label", "list": "label", "number": "score"}


@dataclass(frozen=True)
class Proposal:
    """The entry of a task in a recipe, and a comment on each of its keys ("" on the task).

    `maybe` has keys that may help, with their comments; `rows` is the number of rows that training
    and validation divide, where all were read.
    """

    entry: Entry
    why: Mapping[str, str] = field(default_factory=dict)
    maybe: Mapping[str, tuple[object, str]] = field(default_factory=dict)
    rows: int | None = None


@dataclass(frozen=True)
class Sample:
    """The columns of a file by some of its rows; `names` are set where it has no header line."""

    columns: Columns
    names: tuple[str, ...]
    how: str  # which rows were read; empty when all
    twice: tuple[str, ...]  # names of several columns

    @cached_property
    def about(self) -> str:
        twice = [f"{name} (occurs twice in the header)" for name in self.twice]
        return "; ".join([*(column.about for column in self.columns), *twice])


def read_sample(file: str) -> Sample:
    """The columns of a file by its first rows, or by rows from all of it."""
    ending = Path(file).suffix.lower()
    if file.startswith(HUB) or ending in (*TAGGED_ENDINGS, ".parquet"):
        return take_rows(file)
    lines = open_text(existing(Path(file)))
    if is_json(ending, lines.first_line()):
        return take_rows(file)
    if width := words_width(lines):
        return take_rows(file, tagged_names(width))
    sample = take_rows(file)
    if has_header(sample.columns):
        return sample
    return name_columns(
        take_rows(file, tuple(f"column{n + 1}" for n in range(len(sample.columns))))
    )


def take_rows(file: str, names: tuple[str, ...] = ()) -> Sample:
    table = open_table(file, names=names)
    first, how = list(islice(table.records(), SAMPLE_ROWS + 1)), ""
    rows = first[:SAMPLE_ROWS]
    if len(first) > SAMPLE_ROWS:
        count = table.count() or sum(1 for _ in table.records())
        how = f"the first {SAMPLE_ROWS:,} of about {count:,} rows"
        if any(len({row.values[name] for row in rows}) == 1 for name in table.columns):
            # The rows may be sorted by their label.
            step = ceil(count / SAMPLE_ROWS)
            rows = list(islice(table.records(), 0, None, step))
            how = f"one row in {step:,} of about {count:,} rows"
    times = Counter(table.columns)
    columns = [
        Column(n, tuple(row.values[n] for row in rows), table.form.startswith("semicolon"))
        for n in table.columns
        if times[n] == 1
    ]
    return Sample(columns, names, how, tuple(n for n in times if times[n] > 1))


def has_header(columns: Columns) -> bool:
    """Whether the first line names columns: it is none if its fields occur again below them."""
    names = [column.name for column in columns]
    if any(map(is_label_name, names)) or any(map(is_text_name, names)):
        return True
    if [n for n in names if n] == [str(n) for n in range(len([n for n in names if n]))]:
        return True  # the header that pandas writes for columns without names
    return not any(
        c.counts[c.name] > 1 or (c.numbers and re.fullmatch(r"-?\d+([.,]\d+)?", c.name))
        for c in columns
        if c.name
    )


def name_columns(sample: Sample) -> Sample:
    """The sample of a file without a header line, with names by what its columns hold."""
    columns = sample.columns
    for known in KNOWN["headerless"]:
        fits = dict(zip(known["columns"], columns, strict=False))
        if len(known["columns"]) == len(columns) and all(
            set(fits[name].counts) == set(values) for name, values in known["values"].items()
        ):
            return renamed(sample, known["columns"])
    roles = {c.name: c.role for c in columns}
    roles |= dict.fromkeys((c.name for c in choose_texts(columns)[0]), "text")
    groups = defaultdict(list)
    for name, role in roles.items():
        groups[NEW_NAMES.get(role, "")].append(name)
    names = {
        name: new if len(members) == 1 else f"{new}{n}"
        for new, members in groups.items()
        for n, name in enumerate(members, start=1)
        if new
    }
    return renamed(sample, [names.get(column.name, column.name) for column in columns])


def renamed(sample: Sample, names: Iterable[str]) -> Sample:
    columns = [
        Column(name, column.values, column.may_have_commas)
        for name, column in zip(names, sample.columns, strict=True)
    ]
    return Sample(columns, tuple(column.name for column in columns), sample.how, ())


def to_entry(decision: Decision) -> Entry:
    """The decision in the words of a recipe; an error names the kind that mops does not have."""
    if decision.kind not in KINDS:
        raise DataError(f"{decision.about}: {decision.kind}, which mops does not train")

    def one_or_all(names: tuple[str, ...]) -> object:
        return names[0] if len(names) == 1 else list(names)

    text, label = one_or_all(decision.text), one_or_all(decision.label)
    return {"type": decision.kind, "text": text, "label": label, **decision.keys}


def infer_set(
    name: str,
    files: Files,
    parts: Mapping[str, Sequence[str]],
    given: Mapping[str, object] = MappingProxyType({}),
) -> tuple[list[tuple[str, Proposal]], Reasons]:
    """(name, entry) of the tasks in a set of files, and the reason for every file left out.

    `parts` are further files of what begins in one of the files; `given` are the keys of an entry
    that are known: nothing is decided about them.
    """
    train = files.get("train", files.get("validation"))
    if train is None:
        raise DataError("there is no training file beside it")
    sample = read_sample(train)
    text, label = (known_columns(given.get(key, ()), sample) for key in ("text", "label"))
    decisions, left_out = decide(sample.columns, text, label)
    if not decisions:
        texts = choose_texts(sample.columns)[0]
        missing = "no label column" if texts else "no text column"
        raise DataError(f"{missing}; its columns: {sample.about}")
    keys, why = file_keys(sample, files, [train, *parts.get(train, ())])
    used = {name for decision in decisions for name in (*decision.text, *decision.label)}
    used |= {str(keys.get("split_column")), *(column.name for column, _ in left_out)}
    others = [column.about for column in sample.columns if column.name not in used]
    why[""] = f"other columns: {'; '.join(others)}" if others else ""
    rest = {split: file for split, file in files.items() if file != train}
    further, skipped = other_files(sample, decisions, rest)
    skipped += [
        (part, f"a further part of the {split} rows")
        for split, file in further.items()
        for part in parts.get(file, ())
    ]
    skipped += [
        (train, f"column {column.about}: {reason}; a task with this `label` would predict it")
        for column, reason in left_out
    ]
    proposals = []
    for decision in decisions:
        column = "+".join(decision.label)
        own = name if len(decisions) == 1 else column
        try:
            entry = to_entry(decision) | keys | further | dict(given)
            proposals.append((own, finish(to_name(own), entry, why, decision, sample, given)))
        except UsageError as error:
            skipped.append((train, f"column {column}: {error}"))
    return proposals, skipped


def to_name(words: str) -> str:
    """Words as a valid name of a task."""
    return re.sub(r"[^a-z0-9_-]+", "-", words.lower()).strip("-_") or "task"


def known_columns(names: object, sample: Sample) -> tuple[str, ...]:
    """The columns that a key of an entry names."""
    listed = (names,) if isinstance(names, str) else tuple(map(str, cast(Iterable[object], names)))
    columns = [column.name for column in sample.columns]
    for name in (name for name in listed if name not in columns):
        found = ", ".join(columns)
        raise DataError(f"there is no column {name!r}; found {found}.{nearest(name, columns)}")
    return listed


def file_keys(sample: Sample, files: Files, train: Sequence[str]) -> tuple[Entry, dict[str, str]]:
    """The keys of an entry that name its training files and say how they are read."""
    keys: Entry = {"train": dict.fromkeys(train, 1.0) if len(train) > 1 else train[0]}
    why = {"train": f"decided by {sample.how}" if sample.how else ""}
    if sample.names:
        keys["columns"] = list(sample.names)
        why["columns"] = "no header line: names for its columns, in their order"
    column = next((c for c in sample.columns if c.role == "split"), None)
    if column and set(files.values()) == {train[0]}:
        splits = {SPLIT_WORDS[value.lower()] for value in column.counts}
        named = sorted(splits, key=SPLITS.index)
        keys = {"split_column": column.name, **dict.fromkeys(named, train[0]), **keys}
        why["split_column"] = column.about
    return keys, why


def other_files(
    sample: Sample, decisions: Sequence[Decision], files: Files
) -> tuple[Files, Reasons]:
    """The validation and test files that have the columns of the tasks, and why others have not."""
    kept, skipped = Files(), Reasons()
    texts = {name for decision in decisions for name in decision.text}
    labels = {name for decision in decisions for name in decision.label}
    for split, file in files.items():
        try:
            columns = set(open_table(file, names=sample.names).columns)
            needed = texts | labels if split == "validation" else texts
            if sample.names and len(read_sample(file).columns) != len(sample.names):
                raise DataError("it has other columns than the training file")
            if missing := sorted(needed - columns):
                raise DataError(f"it has no column {', '.join(missing)} as the training file")
            kept[split] = file
        except DataError as error:
            skipped.append((file, str(error)))
    return kept, skipped


def finish(
    name: str,
    entry: Entry,
    why: Mapping[str, str],
    decision: Decision,
    sample: Sample,
    given: Collection[str],
) -> Proposal:
    """The entry with its range and splits, after its rows were read as `mops check` reads them."""
    why = {**why, **{key: told for key, told in decision.why.items() if key not in given}}
    if entry["type"] in RANGED and "range" not in entry:
        entry["range"] = find_range(entry)
        why["range"] = "the lowest and the highest value, rounded"
    if not {"validation", "split"} & entry.keys():
        entry["split"] = 0.1
        why["split"] = "no validation file"
    try:
        read_all(name, entry, sample)
        problem = ""
    except DataError as error:
        if "on_bad_row" in entry:
            raise
        problem = str(error)
    if problem:
        entry["on_bad_row"] = "skip"
        read_all(name, entry, sample)
        why["on_bad_row"] = problem.partition(";")[0]
    rows = None if sample.how or "split" not in entry else len(sample.columns[0].values)
    order = {key: n for n, key in enumerate(TaskEntry.model_fields)}
    entry = dict(sorted(entry.items(), key=lambda item: order[item[0]]))
    maybe = {key: told for key, told in decision.maybe.items() if key not in entry}
    return Proposal(entry, why, maybe, rows)


def read_all(name: str, entry: Entry, sample: Sample) -> None:
    """Read all rows of the task; an error says what is wrong with them."""
    value = to_value(TaskEntry, entry, where=f"task {name!r}", error=RecipeError)
    task = value.task(name)
    if not sample.how:
        read_task(value, task, SPLITS)
        return
    for split, table in open_splits(value):  # too many to be kept
        rows = stream_rows(table, task, needs_label=split != "test")
        bad = [f"{row.where} {row.problem}" for row in rows if row.problem]
        if bad and value.on_bad_row == "error":
            raise DataError(
                f"{table.source}: {len(bad)} rows cannot be used: {first_problems(bad)}"
            )


def find_range(entry: Entry) -> list[int]:
    """The lowest and the highest number in the label column of all files, as whole numbers."""
    value = to_value(TaskEntry, entry | {"range": (0, 1)}, where="entry", error=RecipeError)
    numbers = []
    for split, table in open_splits(value):
        for record in table.records():
            text = record.values.get(str(value.label), "")
            if are_numbers([text]) and (split, text) != ("test", UNLABELLED):
                numbers.append(float(text))
    return [floor(min(numbers)), ceil(max(numbers))]


def open_splits(entry: TaskEntry) -> Iterator[tuple[str, DataTable]]:
    """The table of every file, with its split."""
    files = [*(("train", file) for file in entry.train_files), *entry.files().items()]
    for split, file in dict.fromkeys(files):
        yield split, prepare_split(open_table(file, names=entry.columns), entry, split)
