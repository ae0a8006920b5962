"""Delimited text: which delimiter and which quoting a file uses, and its records as fields."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from mops.data.lines import TextSource

NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe"}
# A file of one column has no delimiter; this character stands for "none" and does not occur.
NO_DELIMITER = "\x1f"
SAMPLE_LINES = 200
NEARLY_ALL = 0.9
LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file separates its fields, and whether quotes around a field are its own."""

    delimiter: str
    quoted: bool = True

    def __str__(self) -> str:
        kind = NAMES.get(self.delimiter)
        quoting = "" if self.quoted else ", without quoting"
        return (f"{kind}-separated text" if kind else "text of one column") + quoting


class Fields(NamedTuple):
    """One record as it lies in the file; `problem` when the csv rules do not allow it."""

    line: int
    fields: list[str]
    problem: str = ""


def find_dialect(source: TextSource, *, wanted: tuple[str, ...], names: tuple[str, ...]) -> Dialect:
    """The delimiter that suits the header best, then the quoting that suits every line.

    `names` are the columns of a file that has no header line.
    """
    sample = list(islice(source.lines(), SAMPLE_LINES))
    ranks = {mark: _rank(mark, sample, wanted, names) for mark in NAMES}
    best = max(ranks, key=lambda mark: ranks[mark])
    width = ranks[best][-1]
    delimiter = best if width > 1 else NO_DELIMITER
    return Dialect(delimiter, quoted=_is_quoted(source, delimiter, width))


def split_fields(lines: Iterable[str], dialect: Dialect) -> Iterator[Fields]:
    """Every record that is not a blank line, with the line it starts on."""
    return _quoted_fields(lines, dialect) if dialect.quoted else _raw_fields(lines, dialect)


def _raw_fields(lines: Iterable[str], dialect: Dialect) -> Iterator[Fields]:
    for number, line in enumerate(lines, start=1):
        if content := line.rstrip("\r\n"):
            yield Fields(number, content.split(dialect.delimiter))


def _quoted_fields(
    lines: Iterable[str], dialect: Dialect, *, strict: bool = False
) -> Iterator[Fields]:
    csv.field_size_limit(LONGEST_FIELD)  # the default refuses texts over 131,072 characters
    reader = csv.reader(lines, delimiter=dialect.delimiter, strict=strict)
    while True:
        start = reader.line_num + 1
        try:
            if fields := next(reader):
                yield Fields(start, fields)
        except StopIteration:
            return
        except csv.Error as error:  # the reader goes on with the next line
            yield Fields(start, [], str(error).split(" - ")[0])


def _rank(
    delimiter: str, sample: list[str], wanted: tuple[str, ...], names: tuple[str, ...]
) -> tuple[int, bool, int]:
    """(wanted columns found, lines nearly all alike, columns): the largest rank wins."""
    readings = [
        [record.fields for record in split_fields(sample, Dialect(delimiter, quoted))]
        for quoted in (True, False)
    ]
    header = list(names) or [name.strip() for name in readings[0][0]]
    alike = max(
        sum(len(fields) == len(header) for fields in reading) / len(reading) for reading in readings
    )
    # That all lines have one field alike says nothing for a delimiter.
    is_alike = len(header) > 1 and alike >= NEARLY_ALL
    return sum(name in header for name in wanted), is_alike, len(header)


def _is_quoted(source: TextSource, delimiter: str, width: int) -> bool:
    """Whether quotes around fields belong to the file (csv) or to the text (GLUE's tsv).

    Only a field that starts with a quote and is not a proper quoted field raises the question:
    it is either a lone quote of the text, or the start of a quoted field that holds a delimiter
    or a line end. The reading with fewer faults is right; without any fault it is quoted.
    """
    raw = Dialect(delimiter)
    suspects = _raw_fields((line for line in source.lines() if '"' in line), raw)
    if not any(_starts_with_lone_quote(field) for _, fields, _ in suspects for field in fields):
        return True
    ragged = sum(len(record.fields) != width for record in _raw_fields(source.lines(), raw))
    strictly = _quoted_fields(source.lines(), Dialect(delimiter), strict=True)
    faults = sum(len(record.fields) != width for record in strictly)
    return faults == 0 or faults < ragged


def _starts_with_lone_quote(field: str) -> bool:
    if field[:1] != '"':
        return False
    is_proper = len(field) > 1 and field.endswith('"') and '"' not in field[1:-1].replace('""', "")
    return not is_proper
