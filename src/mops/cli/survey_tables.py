"""A survey's summary and its decision on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mops.cli.screen import OUT, print_table, print_warnings

if TYPE_CHECKING:
    from mops.surveys.results.recommend import Decision
    from mops.surveys.results.standings import Summary


def print_summary(summary: Summary) -> None:
    """What is known so far: scores by tie, gains, costs, and what is missing."""
    from mops.surveys.results.tables import (
        cost_table,
        difference_table,
        gain_table,
        outside_table,
        score_table,
    )
    from mops.surveys.results.wording import what_was_chosen

    for title, table in {
        f"{summary.name}: scores": score_table(summary),
        "differences": difference_table(summary),
        "gain of each task over a model of its own": gain_table(summary),
        "what they cost": cost_table(summary),
        "trials without a result": outside_table(summary),
    }.items():
        if table.rows:
            print_table(title, table.columns, table.texts, table.note)
            OUT.print()
    if summary.standings:
        OUT.print(what_was_chosen(summary))
    print_warnings([finding.text for finding in summary.findings])


def print_decision(decision: Decision) -> None:
    from mops.surveys.results.tables import front_table
    from mops.surveys.results.wording import decided

    for line in decided(decision):
        OUT.print(line, soft_wrap=True)
    OUT.print()
    front = front_table(decision)
    print_table(front.title, front.columns, front.texts, front.note)
