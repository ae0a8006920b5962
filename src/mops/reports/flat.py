"""A table as CSV: a number in each cell, at full precision."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterator

from mops.reports.parts import Table

NO_LETTER = re.compile(r"[^a-z0-9]+")


def to_csv(table: Table) -> str:
    """Columns of the table, each followed by what stands behind its cells: `overall_stderr`."""
    names = ascii_names(table.columns)
    behind = [
        tuple(dict.fromkeys(name for row in table.rows for name, _ in row[n].more))
        for n in range(len(names))
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            column
            for name, more in zip(names, behind, strict=True)
            for column in (name, *(f"{name}_{other}" for other in more))
        ]
    )
    for row in table.rows:
        writer.writerow(
            [
                value
                for cell, more in zip(row, behind, strict=True)
                for value in (cell.key, *(dict(cell.more).get(name, "") for name in more))
            ]
        )
    return out.getvalue()


def ascii_names(columns: tuple[str, ...]) -> list[str]:
    """Small letters, digits and underscores; each name once."""
    return list(unique([ascii_name(column) for column in columns]))


def ascii_name(column: str) -> str:
    plain = unicodedata.normalize("NFKD", column).encode("ascii", "ignore").decode().lower()
    return NO_LETTER.sub("_", plain.replace("/", " per ")).strip("_") or "column"


def unique(names: list[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"
