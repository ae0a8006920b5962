"""Scores of some of the rows: by the length of their texts, and by their label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mops.evaluate.metrics import score
from mops.reports.compared import Side, Values
from mops.reports.texts import Texts
from mops.tables import Cell, Table, number_cell

Where = NDArray[np.bool_]
Groups = Sequence[tuple[str, Where]]
QUARTILES = (0.25, 0.5, 0.75)
PARTS = 5  # of a similarity's range
FEWEST = 3  # rows of a correlation


def by_length(side: Side, texts: Sequence[Texts]) -> Table:
    """The task's own score in each quarter of the rows, the shortest texts first."""
    task = side.task

    def own_score(where: Where, numbers: Values) -> float | None:
        if where.sum() < FEWEST and task.is_similarity:
            return None
        return score(task, side.targets[where], numbers[where])[task.score_name]

    groups = list(quarters(np.array([words_in(row) for row in texts]))) if texts else []
    note = f"By {task.score_name}, in quarters of the rows, by the words of their texts."
    return sliced(side, "length", "words", groups, own_score, note)


def words_in(texts: Texts) -> int:
    return sum(len(text.split()) for text in texts)


def quarters(lengths: NDArray[np.int64]) -> Iterator[tuple[str, Where]]:
    """Rows of equal length stay together, so quarters may be uneven, or fewer than four."""
    bounds = np.unique(np.quantile(lengths, QUARTILES, method="inverted_cdf"))
    place = np.searchsorted(bounds, lengths)  # a bound belongs to the shorter ones
    for n in range(len(bounds) + 1):
        where = place == n
        if where.any():
            low, high = lengths[where].min(), lengths[where].max()
            yield (f"{low}" if low == high else f"{low} to {high}"), where


def by_label(side: Side) -> Table:
    """The share of right answers to each class; of a similarity how far answers are off."""
    groups = parts_of(side, *side.task.range) if side.task.range else classes_of(side)
    note = (
        "Mean distance between answer and label: the smaller the better."
        if side.task.range
        else "Share of the rows of a label that are answered right."
    )

    def measure(where: Where, numbers: Values) -> float:
        if side.task.range:
            return float(np.abs(numbers - side.targets)[where].mean())
        return float((numbers == side.targets)[where].mean())

    return sliced(side, "label", "label", groups, measure, note)


def classes_of(side: Side) -> Groups:
    return [(label, side.targets == n) for n, label in enumerate(side.task.labels)]


def parts_of(side: Side, low: float, high: float) -> Groups:
    """A range in equal parts."""
    edges = np.linspace(low, high, PARTS + 1)
    place = np.clip(np.searchsorted(edges, side.targets, side="right") - 1, 0, PARTS - 1)
    return [(f"{edges[n]:g} to {edges[n + 1]:g}", place == n) for n in range(PARTS)]


def sliced(
    side: Side,
    by: str,
    column: str,
    groups: Groups,
    measure: Callable[[Where, Values], float | None],
    note: str,
) -> Table:
    """A row for each group of rows that is not empty, a column for each candidate."""
    rows = tuple(
        (
            Cell(words),
            number_cell(int(where.sum()), "{:,}"),
            *(number_cell(measure(where, one.numbers), "{:.3f}") for one in side.answered),
        )
        for words, where in groups
        if where.any()
    )
    name = side.task.name
    columns = (column, "rows", *side.names)
    return Table(f"{name}-by-{by}", f"{name} by {by}", columns, rows, note)
