"""A survey beside a paper, on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from mops.cli.screen import OUT, print_table
from mops.papers import PaperView, claim_table
from mops.tables import Table


def print_paper(view: PaperView) -> None:
    """The tables that have a number of ours, findings with verdicts, and what differs."""
    OUT.print(f"{view.title} ({view.source})", soft_wrap=True)
    OUT.print(f"Repeated by `mops survey NAME` with NAME one of {', '.join(view.surveys)}\n")
    for table in view.matched:
        print_part(table, [short(column) for column in table.columns])
    if others := [table.title for table in view.tables if table not in view.matched]:
        OUT.print(f"Without a number of ours: {'; '.join(others)}.\n")
    claims = claim_table(view)
    print_part(claims, claims.columns)
    OUT.print("What differs:")
    for difference in view.differences:
        OUT.print(f"- {difference}")


def print_part(table: Table, columns: Sequence[str]) -> None:
    rows = [[cell.text for cell in row] for row in table.rows]
    print_table(table.title, columns, rows, table.note)
    OUT.print()


def short(column: str) -> str:
    """A terminal is narrow: of ours the name says only that, right of the paper's."""
    name, _, whose = column.rpartition(", ")
    return {"paper": name, "ours": "ours", "ours judged": "judged"}.get(whose, column)
