"""A survey's summary and its decision on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mops.cli.screen import OUT, print_table, print_warnings

if TYPE_CHECKING:
    from mops.survey.judged.recommend import Decision
    from mops.survey.judged.standings import Summary


def print_summary(summary: Summary) -> None:
    """What is known so far: scores by tie, gains, costs, and what is missing."""
    from mops.survey.judged.wording import (
        cost_rows,
        difference_rows,
        gain_rows,
        outside_rows,
        score_rows,
        what_was_chosen,
    )

    for title, (columns, rows, note) in {
        f"{summary.name}: scores": score_rows(summary),
        "differences": difference_rows(summary),
        "gain of each task over a model of its own": gain_rows(summary),
        "what they cost": cost_rows(summary),
    }.items():
        if rows:
            print_table(title, columns, rows, note)
            OUT.print()
    outside = outside_rows(summary)
    if outside:
        print_table("trials without a result", ["trial", "state", "why"], outside)
        OUT.print()
    if summary.standings:
        OUT.print(what_was_chosen(summary))
    print_warnings([finding.text for finding in summary.findings])


def print_decision(decision: Decision) -> None:
    from mops.survey.judged.wording import decided, front_rows

    for line in decided(decision):
        OUT.print(line, soft_wrap=True)
    OUT.print()
    columns, rows, note = front_rows(decision)
    print_table("Pareto front", columns, rows, note)
