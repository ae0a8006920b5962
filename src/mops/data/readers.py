"""The first step from a file to rows: bytes as numbered lines of UTF-8.

Delimited text: which delimiter and which quoting a file uses, and its records as fields.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mops.errors import DataError

MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextSource:
    """Something that can be read as lines, as often as needed."""

    name: str
    open: Callable[[], BinaryIO]

    @property
    def has_mark(self) -> bool:
        """Whether it starts with a byte order mark, as files saved by Excel do."""
        with self.open() as stream:
            return stream.read(len(MARK)) == MARK

    def lines(self) -> Iterator[str]:
        """Every line with its line end; the mark is removed, anything but UTF-8 is refused."""
        with self.open() as stream:
            for number, line in enumerate(stream, start=1):
                yield self._decoded(line.removeprefix(MARK) if number == 1 else line, number)

    def count(self) -> int:
        """How many line ends there are: a tenth of a second for a million lines."""
        with self.open() as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b""))

    def first_line(self) -> str:
        """The first line that is not blank; empty when there is none."""
        return next((line for line in self.lines() if line.strip()), "")

    def _decoded(self, line: bytes, number: int) -> str:
        if number == 1 and line.startswith(UTF_16_MARKS):
            raise self._not_utf_8(number, line[:2], "utf-16")
        if b"\0" in line:
            raise DataError(
                f"{self.name}:{number}: a NUL byte, so this is not a text file; data files are "
                "UTF-8 text; export the file again as csv, tsv or jsonl"
            )
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise self._not_utf_8(number, line[error.start : error.end], "latin-1") from error

    def _not_utf_8(self, number: int, found: bytes, guess: str) -> DataError:
        return DataError(
            f"{self.name}:{number}: not UTF-8 text, found byte 0x{found.hex()}; only UTF-8 is "
            f"read; convert it with `iconv -f {guess} -t utf-8 {self.name} > new-file`"
        )


def file_lines(path: Path) -> TextSource:
    """The lines of a file; a pipe (`<(zcat rows.gz)`) comes only once and is kept in memory."""
    if path.is_file():
        return TextSource(str(path), lambda: path.open("rb"))
    content = path.read_bytes()
    return TextSource(str(path), lambda: io.BytesIO(content))


def standard_input() -> TextSource:
    """Standard input, kept in memory: it comes only once, and detection needs a second look."""
    stream = getattr(sys.stdin, "buffer", None)
    content = stream.read() if stream else sys.stdin.read().encode()
    return TextSource("stdin", lambda: io.BytesIO(content))


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
