"""The report as one Markdown page, as GitHub shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mops.reports.errors import Example, TaskErrors
from mops.reports.honesty import Section
from mops.reports.material import Material
from mops.reports.parts import Picture
from mops.surveys.results.wording import decided
from mops.tables import Table, escape_markdown, markdown_lines, markdown_table

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
        f"# {escape_markdown(material.summary.name)}",
        *(escape_markdown(line) for line in decision),
        *(part for picture in pictures for part in picture_parts(picture)),
        *(part for table in tables for part in table_parts(table, "##")),
        *(part for found in errors for part in error_parts(found)),
        "## What to know before believing this" if honest else "",
        *(part for section in honest for part in section_parts(section)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def picture_parts(picture: Picture) -> Iterator[str]:
    yield f"![{escape_markdown(picture.title)}](figures/{picture.name}.svg)"
    yield escape_markdown(picture.caption)


def table_parts(table: Table, level: str) -> Iterator[str]:
    if table.rows:
        yield f"{level} {escape_markdown(table.title)}"
        yield markdown_table(table)
        yield escape_markdown(table.note)


def error_parts(found: TaskErrors) -> Iterator[str]:
    yield f"## Errors: {escape_markdown(found.task)}"
    yield escape_markdown(found.note)
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
    return markdown_lines(columns, rows)


def section_parts(section: Section) -> Iterator[str]:
    yield f"### {escape_markdown(section.title)}"
    yield "\n".join(f"- {escape_markdown(line)}" for line in section.lines)
    if section.table and section.table.rows:
        yield markdown_table(section.table)
        yield escape_markdown(section.table.note)
