"""Reads bytes as numbered lines of UTF-8, and delimited text as records of fields."""

import codecs
import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO

from mops.errors import DataError

UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


@dataclass(frozen=True)
class TextSource:
    """A source that can be read as lines, as often as needed."""

    name: str
    open: Callable[[], BinaryIO]

    def lines(self) -> Iterator[str]:
        """Every line with its line end, without the byte order mark that Excel writes."""
        with self.open() as stream:
            yield from map(self._decode, stream, count(1))

    def count(self) -> int:
        """The number of line ends: a tenth of a second for a million lines."""
        with self.open() as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b""))

    def first_line(self) -> str:
        """The first line that is not blank; empty when there is none."""
        return next((line for line in self.lines() if line.strip()), "")

    def _decode(self, line: bytes, number: int) -> str:
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            found = "a NUL byte" if "\0" in text else ""
        except UnicodeDecodeError as error:
            found = f"byte 0x{error.object[error.start]:02x}"
        if found:
            raise DataError(
                f"{self.name}:{number}: not UTF-8 text, found {found}; only UTF-8 is read; export "
                'it again (in Excel as "CSV UTF-8"), or convert it, if it comes from Windows, with '
                f"`iconv -f cp1252 -t utf-8 {self.name} > new-file`"
            )
        return text


def whole(text: str) -> str:
    """The text with `?` for halves of surrogate pairs, which JSON can name and no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def open_text(path: Path | None) -> TextSource:
    """The lines of a file; standard input (None) and pipes are read once and kept in memory."""
    if path and path.is_file():
        place = path.absolute()  # other processes, in other folders, can open it too
        with place.open("rb") as stream:
            is_utf_16 = stream.read(2) in UTF_16
        return TextSource(str(path), lambda: _from_utf_16(place) if is_utf_16 else place.open("rb"))
    content = path.read_bytes() if path else sys.stdin.buffer.read()
    return TextSource(str(path or "stdin"), lambda: io.BytesIO(content))


def _from_utf_16(path: Path) -> BinaryIO:
    """The whole file as UTF-8: Excel's "Unicode text" has at most a million rows."""
    try:
        return io.BytesIO(path.read_bytes().decode("utf-16").encode())
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: starts as UTF-16 text but is not, byte {error.start}: {error.reason}; "
            "only UTF-8 and UTF-16 are read; export it again"
        ) from error


NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe"}
NO_DELIMITER = "\x1f"  # for a file of one column; this character does not occur in it
LONE_QUOTE = re.compile(r'(?!"(?:[^"]|"")*"\Z)"')  # starts a field that is not properly quoted
Names = tuple[str, ...]  # of columns
Fields = tuple[int, list[str], str]  # line, fields as written, and how they violate the csv rules


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file separates its fields, and whether quotes around a field are part of the format."""

    delimiter: str
    quoted: bool = True

    def __str__(self) -> str:
        kind = NAMES.get(self.delimiter)
        quoting = "" if self.quoted else ", without quoting"
        return (f"{kind}-separated text" if kind else "text of one column") + quoting

    def split(self, lines: Iterable[str]) -> Iterator[Fields]:
        """Every record that is not a blank line, with the line it starts on.

        A quote that is not closed properly is a problem: it may have swallowed a label and a row.
        """
        if not self.quoted:
            for number, line in enumerate(lines, start=1):
                if content := line.rstrip("\r\n"):
                    yield number, content.split(self.delimiter), ""
            return
        csv.field_size_limit(2**31 - 1)  # the default refuses texts over 131,072 characters
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            start = reader.line_num + 1
            try:
                if fields := next(reader):
                    yield start, fields, ""
            except StopIteration:
                return
            except csv.Error as error:  # the reader continues with the next line
                cause = str(error).split(" - ")[0]
                is_quote = not cause.startswith("new-line")
                told = f"has an unclosed quote, which ends in line {reader.line_num}"
                yield start, [], told if is_quote else cause


def find_dialect(source: TextSource, *, wanted: Names, names: Names) -> Dialect:
    """The delimiter that fits the header best, then the quoting that fits every line.

    `names` are the columns of a file that has no header line.
    """
    sample = list(islice(source.lines(), 200))
    ranks = {mark: _rank(mark, sample, wanted, names) for mark in NAMES}
    best = max(ranks, key=lambda mark: ranks[mark])
    width = ranks[best][-1]
    delimiter = best if width > 1 else NO_DELIMITER
    return Dialect(delimiter, quoted=_is_quoted(source, delimiter, width))


def _rank(mark: str, sample: list[str], wanted: Names, names: Names) -> tuple[int, bool, int]:
    """(wanted columns found, nearly all lines have as many fields as the header, columns)."""
    dialects = Dialect(mark), Dialect(mark, quoted=False)
    readings = [[fields for _, fields, _ in each.split(sample)] for each in dialects]
    header = names or tuple(name.strip() for name in readings[0][0])
    fitting = max(
        sum(len(fields) == len(header) for fields in reading) / len(reading) for reading in readings
    )
    # One field in every line is no evidence for a delimiter.
    is_regular = len(header) > 1 and fitting >= 0.9
    return sum(name in header for name in wanted), is_regular, len(header)


def _is_quoted(source: TextSource, delimiter: str, width: int) -> bool:
    """Whether quotes around fields belong to the format (csv) or to the text (GLUE's tsv).

    Only a field that starts with a quote and is not a proper quoted field raises the question:
    it is either a lone quote of the text, or the start of a quoted field that contains a delimiter
    or a line end. The reading with fewer faults wins; without any fault it is quoted.
    """
    raw = Dialect(delimiter, quoted=False)
    suspects = raw.split(line for line in source.lines() if '"' in line)
    if not any(LONE_QUOTE.match(field) for _, fields, _ in suspects for field in fields):
        return True

    def faults(dialect: Dialect) -> int:
        records = dialect.split(source.lines())
        return sum(len(fields) != width for _, fields, _ in records)

    quoted_faults = faults(Dialect(delimiter))
    return quoted_faults == 0 or quoted_faults < faults(raw)
