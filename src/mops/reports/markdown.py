"""The report as one Markdown page, as GitHub shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mops.reports.errors import Example, TaskErrors
from mops.reports.honesty import Section
from mops.reports.material import Material
from mops.reports.parts import Cell, Picture, Table
from mops.surveys.results.wording import decided

# Signs that Markdown or HTML would read; a bar also ends a cell.
SIGNS = re.compile(r"([\\`*_\[\]|~#$])")
HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
SHOWN = 10  # worst rows of a task; the page has them all


def to_markdown(
    material: Material,
    *,
    tables: Sequence[Table],
    pictures: Sequence[Picture] = (),
    errors: Sequence[TaskErrors] = (),
    honest: Sequence[Section] = (),
) -> str:
    """Everything of the page that does not move; pictures are links to figures/NAME.svg."""
    decision = decided(material.decision) if material.decision else ["No trial is finished."]
    parts = [
        f"# {escape(material.summary.name)}",
        *(escape(line) for line in decision),
        *(part for picture in pictures for part in picture_parts(picture)),
        *(part for table in tables for part in table_parts(table, "##")),
        *(part for found in errors for part in error_parts(found)),
        "## What to know before believing this" if honest else "",
        *(part for section in honest for part in section_parts(section)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def picture_parts(picture: Picture) -> Iterator[str]:
    yield f"![{escape(picture.title)}](figures/{picture.name}.svg)"
    yield escape(picture.caption)


def table_parts(table: Table, level: str) -> Iterator[str]:
    if table.rows:
        yield f"{level} {escape(table.title)}"
        yield markdown_table(table)
        yield escape(table.note)


def markdown_table(table: Table) -> str:
    """Numbers to the right."""
    columns = zip(*table.rows, strict=True)
    marks = ["---:" if all(map(is_number, cells)) else "---" for cells in columns]
    return as_lines(table.columns, marks, table.texts)


def is_number(cell: Cell) -> bool:
    return isinstance(cell.value, int | float) or not cell.text


def as_lines(columns: Sequence[str], marks: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [[escape(text) for text in line] for line in (columns, *rows)]
    lines = [cells[0], list(marks), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def error_parts(found: TaskErrors) -> Iterator[str]:
    yield f"## Errors: {escape(found.task)}"
    yield escape(found.note)
    for title, examples in (
        ("Worst rows", found.worst[:SHOWN]),
        ("Errors that one candidate alone makes", found.only),
    ):
        if examples:
            yield f"### {title}"
            yield example_lines(found.plans, examples)
    yield from table_parts(found.by_length, "###")
    yield from table_parts(found.by_label, "###")


def example_lines(plans: Sequence[str], examples: Sequence[Example]) -> str:
    """A wrong answer is marked by a sign."""
    columns = ("row", "label", *plans)
    rows = [
        [
            " / ".join(one.texts) or one.id,
            one.label,
            *(f"{answer}{'' if is_right else ' ✗'}" for _, answer, is_right in one.answers),
        ]
        for one in examples
    ]
    return as_lines(columns, ["---"] * len(columns), rows)


def section_parts(section: Section) -> Iterator[str]:
    yield f"### {escape(section.title)}"
    yield "\n".join(f"- {escape(line)}" for line in section.lines)
    if section.table and section.table.rows:
        yield markdown_table(section.table)
        yield escape(section.table.note)


def escape(text: str) -> str:
    """Text that stays text: in a cell, in a line, in a heading."""
    flat = SIGNS.sub(r"\\\1", " ".join(text.split()))
    return "".join(HTML.get(letter, letter) for letter in flat)
