"""Scores and costs as tables on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mops.cli.screen import OUT, duration, million, print_table

if TYPE_CHECKING:
    from mops.records import Record

OVERALL = ("overall", "overall_normalised")
PARTS = ("report", "validation", "test", "train")
NOTE = (
    "report: the half of validation that picked nothing, ± one standard error; "
    "train: a fixed sample"
)


def print_scores(title: str, scores: Mapping[str, Any]) -> None:
    """A row per task, a column per part; both overall scores below."""
    parts = [part for part in PARTS if any(part in of for of in scores["tasks"].values())]
    rows = []
    for name, of in scores["tasks"].items():
        main = scores["main"][name]
        rows.append([f"{name} ({main})", *(cell(of, part, main) for part in parts)])
    for name in OVERALL:
        values = (scores["overall"][part].get(name) for part in parts)
        rows.append([name, *("" if value is None else f"{value:.3f}" for value in values)])
    print_table(title, ["score", *parts], rows, NOTE)


def cell(of: Mapping[str, Mapping[str, float]], part: str, name: str) -> str:
    if part not in of:
        return ""
    error = f" ± {of[part]['stderr']:.3f}" if part == "report" else ""
    return f"{of[part][name]:.3f}{error}"


def print_comparison(title: str, records: Sequence[Record], note: str) -> None:
    """A row per run: scores on the report half; then what they cost."""
    main = records[0].scores["main"]
    rows = []
    for record in records:
        overall, of = record.scores["overall"]["report"], record.scores["tasks"]
        rows.append(
            [
                record.run_info["plan"],
                *(f"{overall[name]:.3f}" if overall else "" for name in OVERALL),
                *(cell(of[name], "report", score) for name, score in main.items()),
            ]
        )
    print_table(title, ["plan", "overall", "normalised", *main], rows, note)
    OUT.print()
    print_table(
        "what they cost",
        ["plan", "parameters", "weights", "training", "a step", "peak memory"],
        [[record.run_info["plan"], *cost_cells(record.costs)] for record in records],
    )


def cost_cells(costs: Mapping[str, Any]) -> list[str]:
    return [
        million(costs["parameters"]),
        f"{costs['weight_bytes'] / 1e6:.0f} MB",
        duration(costs["train_seconds"]),
        f"{1000 * costs['step_seconds_median']:.0f} ms",
        f"{costs['peak_memory_bytes'] / 2**30:.2f} GiB",
    ]
