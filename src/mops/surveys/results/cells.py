"""Tables as values: what a cell says, and the numbers behind it at full precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mops.evaluate.compare import Difference, Estimate
from mops.surveys.results.amounts import byte_words, count_words, second_words

COSTS = {  # fact -> (column, how it reads, how it reads in full)
    "parameters": ("parameters", count_words, "{:,.0f}"),
    "trained_parameters": ("trained", count_words, "{:,.0f}"),
    "weight_bytes": ("weights", byte_words, "{:,.0f} bytes"),
    "peak_memory_bytes": ("memory", byte_words, "{:,.0f} bytes"),
    "step_seconds": ("a step", second_words, ""),
    "train_seconds": ("training", second_words, ""),
    "latency_seconds": ("latency", second_words, ""),
    "throughput": ("rows / s", lambda rows: f"{rows:,.0f}", ""),
}


@dataclass(frozen=True)
class Cell:
    """What a cell says, and the number (or word) by which its column is sorted."""

    text: str
    value: float | str | None = None
    hint: str = ""  # what the text alone does not tell
    more: tuple[tuple[str, float], ...] = ()  # further numbers of the text: name, value

    @property
    def key(self) -> float | str:
        return self.text if self.value is None else self.value


@dataclass(frozen=True)
class Table:
    """A table: on the screen, on the page, as Markdown, LaTeX and CSV."""

    name: str  # file stem
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        return [[cell.text for cell in row] for row in self.rows]


EMPTY = Cell("")


def number_cell(value: float | None, form: str) -> Cell:
    return EMPTY if value is None else Cell(form.format(value), value)


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
