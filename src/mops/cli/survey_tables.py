"""A survey's summary and its decision on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mops.cli.screen import OUT, print_table, print_warnings

if TYPE_CHECKING:
    from mops.survey.recommend import Decision
    from mops.survey.standings import Summary

LONGEST = 34  # letters of a candidate's name, so that a table keeps to the width


def print_summary(summary: Summary) -> None:
    """What is known so far: scores by tie, gains, costs, and what is missing."""
    from mops.survey.wording import cost_rows, gain_rows, outside_rows, what_was_chosen

    for title, (columns, rows, note) in {
        f"{summary.name}: scores": narrow(summary),
        "gain of each task over a model of its own": gain_rows(summary),
        "what they cost": cost_rows(summary),
    }.items():
        if rows:
            print_table(title, columns, [shortened(row) for row in rows], note)
            OUT.print()
    outside = outside_rows(summary)
    if outside:
        print_table("trials without a result", ["trial", "state", "why"], outside)
        OUT.print()
    if summary.standings:
        OUT.print(what_was_chosen(summary))
    print_warnings([finding.text for finding in summary.findings])


def narrow(summary: Summary) -> tuple[list[str], list[list[str]], str]:
    """The normalised score is in the files: here it would cost the intervals their room."""
    from mops.survey.wording import score_rows

    columns, rows, note = score_rows(summary)
    at = columns.index("normalised")
    return drop(columns, at), [drop(row, at) for row in rows], note


def drop(cells: Sequence[str], at: int) -> list[str]:
    return [*cells[:at], *cells[at + 1 :]]


def shortened(row: Sequence[str]) -> list[str]:
    return [cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 1]}…" for cell in row]


def print_decision(decision: Decision) -> None:
    from mops.survey.wording import decided, front_rows

    for line in decided(decision):
        OUT.print(line, soft_wrap=True)
    OUT.print()
    columns, rows, note = front_rows(decision)
    print_table("Pareto front", columns, [shortened(row) for row in rows], note)
