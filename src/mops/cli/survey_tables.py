"""A survey's summary and its decision on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mops.cli.screen import OUT, print_table, print_warnings

if TYPE_CHECKING:
    from mops.surveys.results.recommend import Decision
    from mops.surveys.results.results import Results


def print_summary(summary: Results) -> None:
    """What is known so far: scores by tie, gains, costs, and what is missing."""
    from mops.surveys.results.tables import (
        cost_table,
        describe_rows,
        difference_table,
        gain_table,
        missing_table,
        score_table,
    )

    for title, table in {
        f"{summary.name}: scores": score_table(summary),
        "differences": difference_table(summary),
        "gain of each task over a model of its own": gain_table(summary),
        "what they cost": cost_table(summary),
        "trials without a result": missing_table(summary),
    }.items():
        if table.rows:
            print_table(title, table.columns, table.texts, table.note)
            OUT.print()
    if summary.candidates:
        OUT.print(describe_rows(summary))
    print_warnings([finding.text for finding in summary.caveats])


def print_decision(decision: Decision) -> None:
    from mops.surveys.results.tables import front_table

    for line in decision.lines:
        OUT.print(line, soft_wrap=True)
    OUT.print()
    front = front_table(decision)
    print_table(front.title, front.columns, front.texts, front.note)
