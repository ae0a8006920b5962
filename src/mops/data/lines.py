"""The first step from a file to rows: bytes as numbered lines of UTF-8."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

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
