"""The rows of one task, read from a table and validated once; later code trusts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mops.data.tables import HUB, DataTable, open_table
from mops.errors import DataError, nearest
from mops.tasks import Task, canonical_label, sorted_labels

ID_COLUMNS = ("id", "idx")
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


@dataclass(frozen=True)
class RowsRead:
    """All rows of a source in its order, the unusable ones with their problem."""

    source: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.problem)

    @property
    def bad(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.problem)

    @property
    def labelled(self) -> bool:
        return any(row.label is not None for row in self.rows)


def read_rows(
    source: str | Path,
    task: Task,
    *,
    needs_label: bool,
    on_bad_row: str = "error",
    columns: tuple[str, ...] | None = None,
) -> RowsRead:
    """All rows of `source`; `columns` names the columns of a file that has no header line."""
    wanted = (*task.text, task.label) if needs_label else task.text
    table = open_table(source, wanted, names=columns or ())
    rows = tuple(stream_rows(table, task, needs_label=needs_label))
    read = RowsRead(table.source, rows, table.notes + _notes(rows))
    is_hopeless = needs_label and not read.good
    if read.bad and (on_bad_row != "skip" or is_hopeless):
        advice = "correct the file" if is_hopeless else "set on_bad_row: skip to leave them out"
        raise DataError(
            f"{read.source}: {len(read.bad)} of {len(rows)} rows cannot be used: "
            f"{first_problems(read.bad)}; every row needs its texts and a valid label; {advice}"
        )
    return read


def stream_rows(table: DataTable, task: Task, *, needs_label: bool) -> Iterator[Row]:
    """The rows one at a time, the unusable ones with their problem."""
    for name in (*task.text, task.label) if needs_label else task.text:
        if name not in table.columns:
            columns = ", ".join(column or "(unnamed)" for column in table.columns)
            raise DataError(
                f"{table.source}: no column {name!r}; found {columns} (read as {table.form}); "
                f"correct the task's columns or the header.{nearest(name, table.columns)}"
            )
    return _stream(table, task, needs_label)


def _stream(table: DataTable, task: Task, needs_label: bool) -> Iterator[Row]:
    name = table.source if table.source.startswith(HUB) else Path(table.source).name
    id_column = next((column for column in ID_COLUMNS if column in table.columns), "")
    read_label = lru_cache(maxsize=1000)(lambda text: _read_label(text, task, needs_label))
    for number, record in enumerate(table.records(), start=1):
        texts = tuple(record.values[column] for column in task.text)
        empty = "" if all(texts) else f"{task.text[texts.index('')]} is empty"
        label, wrong = read_label(record.values.get(task.label, ""))
        yield Row(
            id=record.values.get(id_column) or str(number),
            texts=texts,
            label=label,
            where=f"{name}:{record.line}",
            problem=record.problem or empty or wrong,
        )


def _read_label(text: str, task: Task, needs_label: bool) -> tuple[str | float | None, str]:
    """The label and what is wrong with it; None when there is none or it is wrong."""
    if not text:
        return None, f"has no {task.label}" if needs_label else ""
    label, wrong = _as_number(text, task.range) if task.range else _as_class(text, task)
    is_real = not wrong and bool(task.labels or task.range)
    if canonical_label(text) == UNLABELLED and not is_real and not needs_label:
        return None, ""
    return label, wrong


def _as_class(text: str, task: Task) -> tuple[str | None, str]:
    label = canonical_label(text)
    if not task.labels:
        return label, ""
    known = next((other for other in task.labels if canonical_label(other) == label), None)
    allowed = ", ".join(task.labels)
    return known, "" if known is not None else f"{task.label} is {text!r}, not one of {allowed}"


def _as_number(text: str, limits: tuple[float, float]) -> tuple[float | None, str]:
    try:
        number = float(text)
    except ValueError:
        return None, f"{text!r} is not a number"
    if not limits[0] <= number <= limits[1]:  # nan is in no range
        return None, f"{text} is not between {limits[0]:g} and {limits[1]:g}"
    return number, ""


def read_labels(rows: Iterable[Row]) -> tuple[str, ...]:
    """The classes that occur, sorted."""
    counts = Counter(row.label for row in rows if isinstance(row.label, str))
    if len(counts) < 2:
        classes = f"only the class {next(iter(counts))!r}" if counts else "no label at all"
        raise DataError(
            f"{classes} in {counts.total()} labelled training rows, so there is nothing to learn; "
            "a classification needs two classes or more; check the label column"
        )
    return sorted_labels(set(counts))


def first_problems(rows: Iterable[Row]) -> str:
    """The first few unusable rows as `file:line reason`."""
    problems = [f"{row.where} {row.problem}" for row in rows if row.problem]
    return ", ".join(problems[:SHOWN_ROWS]) + (", ..." if len(problems) > SHOWN_ROWS else "")


def _notes(rows: tuple[Row, ...]) -> tuple[str, ...]:
    notes = []
    repeated = sum(count > 1 for count in Counter(row.id for row in rows).values())
    if repeated:
        notes.append(f"{repeated} id{'s occur' if repeated > 1 else ' occurs'} twice or more")
    bad = [row for row in rows if row.problem]
    if bad:
        notes.append(f"{len(bad)} of {len(rows)} rows left out: {first_problems(bad)}")
    return tuple(notes)
