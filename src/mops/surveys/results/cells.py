"""Cells of a survey's tables: estimates, differences and costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mops.evaluate.compare import Difference, Estimate
from mops.tables import EMPTY, Cell
from mops.units import format_bytes, format_count, format_seconds

COSTS = {  # fact -> (column, how it reads, how it reads in full)
    "parameters": ("parameters", format_count, "{:,.0f}"),
    "trained_parameters": ("trained", format_count, "{:,.0f}"),
    "weight_bytes": ("weights", format_bytes, "{:,.0f} bytes"),
    "peak_memory_bytes": ("memory", format_bytes, "{:,.0f} bytes"),
    "step_seconds": ("a step", format_seconds, ""),
    "train_seconds": ("training", format_seconds, ""),
    "latency_seconds": ("latency", format_seconds, ""),
    "throughput": ("rows / s", lambda rows: f"{rows:,.0f}", ""),
}


def estimate_cell(found: Estimate | None) -> Cell:
    """A score with one standard error."""
    if found is None:
        return EMPTY
    text = f"{found.mean:.3f} ± {found.stderr:.3f}"
    return Cell(text, found.mean, more=(("stderr", found.stderr),))


def interval_cell(found: Difference | None) -> Cell:
    """A difference with its 95 % interval."""
    if found is None:
        return EMPTY
    text = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]{star(found)}"
    return Cell(text, found.mean, p_words(found), behind(found))


def change_cell(found: Difference | None) -> Cell:
    """A difference without its interval."""
    if found is None:
        return EMPTY
    hint = f"95 % interval {found.low:+.3f} to {found.high:+.3f}, {p_words(found)}"
    return Cell(f"{found.mean:+.3f}{star(found)}", found.mean, hint, behind(found))


def p_cell(found: Difference | None) -> Cell:
    return EMPTY if found is None else Cell(f"{found.p_holm:.2g}", found.p_holm)


def p_words(found: Difference) -> str:
    return f"p {found.p_holm:.2g} after Holm's correction"


def star(found: Difference) -> str:
    return "*" if found.is_real else ""


def behind(found: Difference, prefix: str = "") -> tuple[tuple[str, float], ...]:
    """What a difference was called real by."""
    names = ("stderr", "low", "high", "p", "p_holm", "is_real")
    return tuple((f"{prefix}{name}", getattr(found, name)) for name in names)


def cost_cell(costs: Mapping[str, Any], key: str) -> Cell:
    """Nothing where it was not measured."""
    value = costs.get(key)
    if not value:
        return EMPTY
    _, words, full = COSTS[key]
    return Cell(words(value), value, full.format(value))
