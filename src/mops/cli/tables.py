"""Scores as tables on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mops.cli.screen import duration, million, print_table

if TYPE_CHECKING:
    from mops.records import Record

PARTS = ("report", "selection", "validation", "test", "train")
NOTE = "report: the half of validation that picked nothing; ± is one standard error"


def print_scores(title: str, scores: Mapping[str, Any]) -> None:
    """A row per task, a column per part; both overall scores below."""
    parts = [part for part in PARTS if any(part in of for of in scores["tasks"].values())]
    rows = [
        [name, scores["main"][name], *(cell(of, part, scores["main"][name]) for part in parts)]
        for name, of in scores["tasks"].items()
    ]
    for name in ("overall", "overall_normalised"):
        values = (scores["overall"][part].get(name) for part in parts)
        rows.append([name, "", *("" if value is None else f"{value:.4f}" for value in values)])
    print_table(title, ["task", "score", *parts], rows, NOTE)


def cell(of: Mapping[str, Mapping[str, float]], part: str, name: str) -> str:
    if part not in of:
        return ""
    return f"{of[part][name]:.4f} ± {of[part]['stderr']:.3f}"


def print_comparison(title: str, records: Sequence[Record], note: str) -> None:
    """A row per run: scores on the report half, and what they cost."""
    tasks = list(records[0].scores["tasks"])
    columns = ["plan", "overall", "normalised", *tasks, "parameters", "training", "step", "peak"]
    rows = []
    for record in records:
        overall, costs = record.scores["overall"]["report"], record.costs
        rows.append(
            [
                record.run_info["plan"],
                f"{overall['overall']:.3f}",
                f"{overall['overall_normalised']:.3f}",
                *(
                    cell(record.scores["tasks"][name], "report", record.scores["main"][name])
                    for name in tasks
                ),
                million(costs["parameters"]),
                duration(costs["train_seconds"]),
                f"{1000 * costs['step_seconds_median']:.0f} ms",
                f"{costs['peak_memory_bytes'] / 2**30:.2f} GiB",
            ]
        )
    print_table(title, columns, rows, note)
