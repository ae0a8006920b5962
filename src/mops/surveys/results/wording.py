"""The sentences of a summary, for the screen, for summary.md and for reports alike."""

from __future__ import annotations

from collections.abc import Sequence

from mops.surveys.results.recommend import Decision
from mops.surveys.results.standings import Summary


def what_was_chosen(summary: Summary) -> str:
    """Which rows chose the best evaluation, and which judge it: never the same."""
    judges = {"report": "the report half of validation", "test": "the test files"}[summary.on]
    chose = ", ".join(f"{task} {rows.chose:,}" for task, rows in summary.rows.items())
    judge = ", ".join(f"{task} {rows.judge:,}" for task, rows in summary.rows.items())
    return (
        f"The best evaluation of each training was chosen on the selection half of validation "
        f"(rows: {chose}; of a large half evaluations take a fixed sample) and is judged on "
        f"{judges} (rows: {judge})."
    )


# ------------------------------------------------------------------ the decision


def decided(decision: Decision) -> Sequence[str]:
    """The decision in a few lines."""
    lines = [sentence(decision.reason)]
    if decision.tied:
        lines.append(f"Tied with it: {', '.join(decision.tied)}.")
    lines += [f"Excluded: {one.name}: {one.reason}." for one in decision.excluded]
    lines += [sentence(note) for note in decision.notes]
    return lines


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
