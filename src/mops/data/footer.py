"""What the footer of a parquet file declares, read without its library.

The library ends the process where the facts about a column contradict each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAIL = 8  # bytes: the length of the footer, and the mark
MOST_FOOTER = 2**24  # bytes
MOST_DEPTH = 20  # of structures within structures; the format has 7
DOUBLE, BINARY, LIST, SET, STRUCT = 7, 8, 9, 10, 12  # types of Thrift's compact protocol
TRUE, FALSE, BYTE, WHOLE = 1, 2, 3, (4, 5, 6)


@dataclass(frozen=True)
class Declared:
    rows: int
    parts: list[tuple[int, int]]  # values and uncompressed bytes of each column of each row group


def read_footer(path: Path) -> Declared:
    """What a file declares; ValueError if that cannot be read."""
    with path.open("rb") as file:
        end = file.seek(0, 2) - TAIL
        file.seek(max(0, end))
        size = int.from_bytes(file.read(4), "little")
        if not 0 < size <= min(end, MOST_FOOTER) or file.read() != b"PAR1":
            raise ValueError("no footer, or one that is too long")
        file.seek(end - size)
        content = file.read(size)
    try:
        facts = Compact(content).struct()
        columns = [column[3] for group in facts[4] for column in group[1]]
        return Declared(int(facts[3]), [(int(part[5]), int(part[6])) for part in columns])
    except (LookupError, TypeError) as error:
        raise ValueError("its footer does not say what it holds") from error


class Compact:
    """Values of Thrift's compact protocol; a structure is a mapping by the numbers of fields."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.depth = data, 0, 0

    def struct(self) -> dict[int, Any]:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError("structures are nested too deep")
        found = dict(self.fields())
        self.depth -= 1
        return found

    def fields(self) -> Iterator[tuple[int, Any]]:
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.whole()
            kind = head & 15
            yield number, kind == TRUE if kind in (TRUE, FALSE) else self.value(kind)

    def value(self, kind: int) -> Any:
        if kind in WHOLE:
            return self.whole()
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            return self.items()
        if kind in (BINARY, DOUBLE):
            size = self.natural() if kind == BINARY else 8
            self.at += size  # not needed
            if self.at > len(self.data):
                raise IndexError("the footer ends before its values")
            return None
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        raise ValueError(f"a value of the unknown type {kind}")

    def items(self) -> list[Any]:
        head = self.byte()
        count = head >> 4 if head >> 4 < 15 else self.natural()
        return [self.value(head & 15) for _ in range(count)]

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def natural(self) -> int:
        found = shift = 0
        while (part := self.byte()) > 127:
            found, shift = found | (part & 127) << shift, shift + 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")
        return found | part << shift

    def whole(self) -> int:
        found = self.natural()
        return found >> 1 ^ -(found & 1)
