"""Error analysis: hard rows, errors of one candidate only, scores by text length and by label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mops.evaluate.metrics import score
from mops.reports.answers import FAR, Comparison, Texts, Values, compare_answers, read_texts
from mops.reports.source import Source
from mops.tables import Cell, Table, number_cell, with_minus_signs
from mops.tasks import Task

WORST = 30  # rows of a task
ALONE = 10  # rows per candidate that it alone gets wrong
RANGE_PARTS = 5  # of a similarity's range
FEWEST = 3  # rows of a correlation
JUDGES = {"report": "the report half of validation", "test": "the test rows"}
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Example:
    """One row with the answers of the compared candidates."""

    id: str
    texts: Texts  # empty where the data file is gone
    label: str
    loss: float | None  # mean over the candidates
    answers: tuple[tuple[str, str, bool], ...]  # candidate, answer, is it right
    only: str = ""  # the only candidate that is wrong


@dataclass(frozen=True)
class TaskErrors:
    """The error analysis of one task."""

    task: str
    candidates: tuple[str, ...]
    worst: tuple[Example, ...]
    only: tuple[Example, ...]  # rows that one candidate alone gets wrong
    by_length: Table
    by_label: Table
    note: str


def find_errors(source: Source) -> Iterator[TaskErrors | str]:
    """The analysis of each task, or a sentence that says why there is none."""
    for task in source.results.tasks:
        comparison = compare_answers(source, task)
        if comparison is None:
            yield f"No error analysis of {task}: no prediction file can be read."
        else:
            yield analyse(comparison, source.results.on)


def analyse(comparison: Comparison, on: str) -> TaskErrors:
    texts, why_no_texts = read_texts(comparison.answers[0], on)
    known = [own for own in comparison.losses if own is not None]
    losses = np.mean(known, axis=0) if known else None
    return TaskErrors(
        task=comparison.task.name,
        candidates=comparison.names,
        worst=tuple(
            make_example(comparison, row, texts, losses) for row in worst_rows(comparison, losses)
        ),
        only=tuple(
            make_example(comparison, row, texts, losses, only=comparison.names[n])
            for n, row in errors_of_one(comparison)
        ),
        by_length=with_minus_signs(scores_by_length(comparison, texts)),
        by_label=with_minus_signs(scores_by_label(comparison)),
        note=" ".join(notes(comparison, on, why_no_texts)),
    )


def worst_rows(comparison: Comparison, losses: Values | None) -> Sequence[int]:
    """By mean loss; without losses by mean error."""
    badness = comparison.errors.mean(axis=0) if losses is None else np.nan_to_num(losses, nan=-1.0)
    order = np.argsort(-badness, kind="stable")[:WORST]
    return [int(row) for row in order if badness[row] > 0]


def errors_of_one(comparison: Comparison) -> Iterator[tuple[int, int]]:
    """(candidate, row) where all others are right; the worst rows of each candidate first."""
    if len(comparison.answers) < 2:
        return
    wrong = comparison.wrong
    for n, losses in enumerate(comparison.losses):
        rows = np.flatnonzero((wrong.sum(axis=0) == 1) & wrong[n])
        badness = comparison.errors[n] if losses is None else losses
        for row in rows[np.argsort(-badness[rows], kind="stable")][:ALONE]:
            yield n, int(row)


def make_example(
    comparison: Comparison,
    row: int,
    texts: Sequence[Texts],
    losses: Values | None,
    *,
    only: str = "",
) -> Example:
    task, columns = comparison.task, comparison.rows.columns
    answers = zip(comparison.names, comparison.answers, comparison.wrong[:, row], strict=True)
    return Example(
        id=columns["id"][row],
        texts=texts[row] if texts else (),
        label=format_answer(task, columns["label"][row]),
        loss=None if losses is None else float(losses[row]),
        answers=tuple(
            (name, format_answer(task, one.rows.columns["prediction"][row]), not is_wrong)
            for name, one, is_wrong in answers
        ),
        only=only,
    )


def format_answer(task: Task, word: str) -> str:
    return f"{float(word):.2f}" if task.is_similarity else word


def notes(comparison: Comparison, on: str, why_no_texts: str) -> Iterator[str]:
    seed = "each candidate's first seed" if comparison.seed is None else f"seed {comparison.seed}"
    yield f"{len(comparison.rows.targets):,} rows ({JUDGES[on]}), {seed}."
    if comparison.task.range:
        low, high = comparison.task.range
        yield f"An answer counts as wrong if it is more than {FAR * (high - low):g} off."
    if all(own is None for own in comparison.losses):
        yield "The prediction files have no losses, so rows are ordered by their errors."
    if why_no_texts:
        yield f"Ids are shown instead of texts: {why_no_texts}."
    yield from (f"Left out: {line}." for line in comparison.left_out)


# ------------------------------------------------------------------ scores of some of the rows


def scores_by_length(comparison: Comparison, texts: Sequence[Texts]) -> Table:
    """The task's own score in each quarter of the rows, the shortest texts first."""
    task, targets = comparison.task, comparison.rows.targets

    def own_score(rows: Mask, predictions: Values) -> float | None:
        if rows.sum() < FEWEST and task.is_similarity:
            return None
        return score(task, targets[rows], predictions[rows])[task.score_name]

    words = np.array([sum(len(text.split()) for text in row) for row in texts])
    note = f"{task.score_name} in quarters of the rows, by the number of words in their texts."
    groups = list(quarters(words)) if texts else []
    return slice_table(comparison, ("length", "words"), groups, own_score, note)


def quarters(lengths: NDArray[np.int64]) -> Iterator[tuple[str, Mask]]:
    """Rows of equal length stay together, so quarters may be uneven or fewer than four."""
    bounds = np.unique(np.quantile(lengths, (0.25, 0.5, 0.75), method="inverted_cdf"))
    places = np.searchsorted(bounds, lengths)  # a bound belongs to the shorter quarter
    for n in np.unique(places):
        low, high = lengths[places == n].min(), lengths[places == n].max()
        yield (f"{low}" if low == high else f"{low} to {high}"), places == n


def scores_by_label(comparison: Comparison) -> Table:
    """Accuracy per class; for a similarity the mean distance in equal parts of its range."""
    task, targets = comparison.task, comparison.rows.targets
    groups: list[tuple[str, Mask]]
    if task.range:
        edges = np.linspace(*task.range, RANGE_PARTS + 1)
        places = np.clip(np.searchsorted(edges, targets, side="right") - 1, 0, RANGE_PARTS - 1)
        names = [f"{edges[n]:g} to {edges[n + 1]:g}" for n in range(RANGE_PARTS)]
        groups = [(name, places == n) for n, name in enumerate(names)]
        note = "Mean distance between prediction and label; smaller is better."
    else:
        groups = [(label, targets == n) for n, label in enumerate(task.labels)]
        note = "Fraction of correct answers among the rows of a label."

    def measure(rows: Mask, predictions: Values) -> float:
        is_value = task.range is not None
        own = np.abs(predictions - targets) if is_value else predictions == targets
        return float(own[rows].mean())

    return slice_table(comparison, ("label", "label"), groups, measure, note)


def slice_table(
    comparison: Comparison,
    by: tuple[str, str],  # for the title, for the first column
    groups: Sequence[tuple[str, Mask]],
    measure: Callable[[Mask, Values], float | None],
    note: str,
) -> Table:
    """A row for each group of rows that is not empty, a column for each candidate."""
    rows = tuple(
        (
            Cell(words),
            number_cell(int(mask.sum()), "{:,}"),
            *(number_cell(measure(mask, o.rows.values), "{:.3f}") for o in comparison.answers),
        )
        for words, mask in groups
        if mask.any()
    )
    task, (title, column) = comparison.task.name, by
    columns = (column, "rows", *comparison.names)
    return Table(f"{task}-by-{title}", f"{task} by {title}", columns, rows, note)
