"""Scores as a table on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mops.cli.screen import print_table

if TYPE_CHECKING:
    from mops.record import RunScores

OVERALL = ("overall", "overall_normalised")
PARTS = ("report", "validation", "test", "train")
NOTE = (
    "report: the half of validation that picked nothing, ± one standard error; "
    "train: a fixed sample"
)


def print_scores(title: str, scores: RunScores) -> None:
    """A row per task, a column per part; both overall scores below."""
    parts = [part for part in PARTS if any(part in of for of in scores.tasks.values())]
    rows = []
    for name, of in scores.tasks.items():
        main = scores.main[name]
        rows.append([f"{name} ({main})", *(cell(of, part, main) for part in parts)])
    for name in OVERALL:
        values = (scores.overall[part].get(name) for part in parts)
        rows.append([name, *("" if value is None else f"{value:.3f}" for value in values)])
    print_table(title, ["score", *parts], rows, NOTE)


def cell(of: Mapping[str, Mapping[str, float]], part: str, name: str) -> str:
    if part not in of:
        return ""
    error = f" ± {of[part]['stderr']:.3f}" if part == "report" else ""
    return f"{of[part][name]:.3f}{error}"
