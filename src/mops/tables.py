"""Tables as values, and their writers: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")  # the sign of a number, not of its exponent
MARKDOWN_SIGNS = re.compile(r"([\\`*_\[\]|~#$])")
HTML_SIGNS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


@dataclass(frozen=True)
class Cell:
    """The text of a cell and the value behind it, at full precision."""

    text: str
    value: float | str | None = None  # what the column is sorted by; None: the text
    hint: str = ""  # details that the text leaves out
    more: tuple[tuple[str, float], ...] = ()  # further values for the CSV file: name, value

    @property
    def key(self) -> float | str:
        return self.text if self.value is None else self.value

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float)


EMPTY = Cell("")


def number_cell(value: float | None, form: str) -> Cell:
    return EMPTY if value is None else Cell(form.format(value), value)


@dataclass(frozen=True)
class Table:
    """A table for the screen, the page, and files in Markdown, LaTeX and CSV."""

    name: str  # file stem
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        return [[cell.text for cell in row] for row in self.rows]

    @property
    def number_columns(self) -> list[bool]:
        """Which columns hold only numbers and empty cells."""
        return [
            any(row[n].text for row in self.rows)
            and all(row[n].is_number or not row[n].text for row in self.rows)
            for n in range(len(self.columns))
        ]

    def select(self, columns: Iterable[int]) -> Table:
        """The same rows with only these columns."""
        kept = list(columns)
        return replace(
            self,
            columns=tuple(self.columns[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in self.rows),
        )


def without_empty_columns(table: Table) -> Table:
    columns = range(len(table.columns))
    return table.select(n for n in columns if any(row[n].text for row in table.rows))


def with_minus_signs(table: Table) -> Table:
    """Numbers with a typographic minus instead of a hyphen."""
    rows = tuple(
        tuple(replace(cell, text=to_minus(cell.text)) if cell.is_number else cell for cell in row)
        for row in table.rows
    )
    return replace(table, rows=rows)


def to_minus(text: str) -> str:
    return MINUS.sub("−", text)


# ------------------------------------------------------------------ Markdown


def markdown_table(table: Table) -> str:
    """A GitHub table; number columns are aligned right."""
    marks = ["---:" if is_number else "---" for is_number in table.number_columns]
    return markdown_lines(table.columns, table.texts, marks)


def markdown_lines(
    columns: Sequence[str], rows: Iterable[Sequence[str]], marks: Sequence[str] = ()
) -> str:
    lines = [[escape_markdown(text) for text in line] for line in (columns, *rows)]
    lines.insert(1, list(marks) or ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape_markdown(text: str) -> str:
    """Text that no Markdown reader takes for markup, on one line."""
    flat = MARKDOWN_SIGNS.sub(r"\\\1", " ".join(text.split()))
    return "".join(HTML_SIGNS.get(letter, letter) for letter in flat)


# ------------------------------------------------------------------ CSV


def to_csv(table: Table) -> str:
    """Values at full precision; a cell's further values follow as columns like overall_stderr."""
    names = list(unique_names([ascii_name(column) for column in table.columns]))
    further = [
        tuple(dict.fromkeys(name for row in table.rows for name, _ in row[n].more))
        for n in range(len(names))
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = [
        (name, *(f"{name}_{m}" for m in more)) for name, more in zip(names, further, strict=True)
    ]
    writer.writerow([column for group in header for column in group])
    for row in table.rows:
        cells = zip(row, further, strict=True)
        groups = [(cell.key, *(dict(cell.more).get(m, "") for m in more)) for cell, more in cells]
        writer.writerow([value for group in groups for value in group])
    return out.getvalue()


def ascii_name(column: str) -> str:
    """Lower-case letters, digits and underscores."""
    plain = unicodedata.normalize("NFKD", column).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", plain.replace("/", " per ")).strip("_") or "column"


def unique_names(names: Sequence[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"
