"""A paper's table with our numbers beside its own."""

from __future__ import annotations

from collections.abc import Iterator

from mops.papers.measures import MEASURES, Asked
from mops.papers.ours import Ours
from mops.papers.paper import OURS, Column, PaperRow, PaperTable
from mops.surveys.results.results import CandidateResult
from mops.tables import Cell, Table

WRONG = "†"
EMPTY = Cell("")
OVERALL = ("overall", "overall_normalised")
SPLITS = {"validation": "the dev rows", "train": "a sample of the training rows",
          "test": "the test rows"}  # fmt: skip


def beside(table: PaperTable, ours: Ours) -> Table:
    return Table(
        table.name,
        table.title,
        ("model", *(name for column in table.columns for name in names_of(column))),
        tuple(tuple(row_cells(table, row, ours)) for row in table.rows),
        " ".join(notes(table, ours)),
    )


def names_of(column: Column) -> list[str]:
    names = [f"{column.name}, paper", f"{column.name}{OURS}"]
    return [*names, f"{column.name}{OURS} judged"] if column.measure in OVERALL else names


def row_cells(table: PaperTable, row: PaperRow, ours: Ours) -> Iterator[Cell]:
    yield Cell(row.label, hint=row.remark)
    base = ours.find(table.base.match)
    for measure in (column.measure for column in table.columns):
        yield paper_cell(row, measure)
        one = ours.find(row.matches.get(measure, row.match))
        is_told = measure in row.numbers or measure in row.should
        asked = Asked(ours, one, base, row.split) if one and is_told else None
        yield our_cell(asked, measure) if asked else EMPTY
        if measure in OVERALL:
            yield judged_cell(asked, measure) if asked else EMPTY


def paper_cell(row: PaperRow, measure: str) -> Cell:
    number, right = row.numbers.get(measure), row.should.get(measure)
    text = "-" if number is None else as_printed(measure, number)
    if right is None:
        return EMPTY if number is None else Cell(text, number, row.remark)
    return Cell(f"{text}{WRONG}", number, f"should be {as_printed(measure, right)}")


def as_printed(measure: str, number: float) -> str:
    found = MEASURES[measure]
    return (found.printed or found.words)(number)


def our_cell(asked: Asked, measure: str) -> Cell:
    value = MEASURES[measure].of(asked)
    if value is None:
        return EMPTY
    count = len(asked.one.trials)
    hint = f"{asked.one.name}, {count} seed{'s' if count > 1 else ''}"
    if measure in asked.one.scores:
        hint += f", on {SPLITS[asked.split]}"
    return Cell(MEASURES[measure].words(value), value, hint)


def judged_cell(asked: Asked, measure: str) -> Cell:
    """Of the rows that took no part in choosing a state, beside the paper's dev scores."""
    if asked.split != "validation" or not asked.ours.is_comparable(asked.one):
        return EMPTY
    found, is_half = asked.one.scores[measure], asked.ours.summary.on == "report"
    rows = "the judging half of the dev rows" if is_half else "the test rows"
    hint = f"{asked.one.name}, on {rows}, with its standard error"
    return Cell(f"{found.mean:.3f} ± {found.stderr:.3f}", found.mean, hint)


# ------------------------------------------------------------------ what the numbers are


def notes(table: PaperTable, ours: Ours) -> Iterator[str]:
    if table.note:
        yield table.note
    yield from wrong_numbers(table)
    yield from called(table, ours)
    others = len(ours.summary.candidates) - len({one.name for one in shown(table, ours)})
    if others:
        yield f"Candidates of ours that are not in this table: {others}."


def wrong_numbers(table: PaperTable) -> Iterator[str]:
    for row in table.rows:
        for measure, right in row.should.items():
            printed = row.numbers.get(measure)
            told = "not printed" if printed is None else f"printed {as_printed(measure, printed)}"
            why = f" ({row.remark})" if row.remark else ""
            yield f"{WRONG} {row.label}: {told}, should be {as_printed(measure, right)}{why}."


def shown(table: PaperTable, ours: Ours) -> list[CandidateResult]:
    matches = [m for row in table.rows for m in (row.match, *row.matches.values())]
    return [one for match in matches if (one := ours.find(match))]


def called(table: PaperTable, ours: Ours) -> Iterator[str]:
    """Which candidate is meant, where its name is more than its plan."""
    pairs = {
        row.label: one.name
        for row in table.rows
        if (one := ours.find(row.match)) and one.name != one.plan
    }
    if pairs:
        yield f"Ours: {'; '.join(f'{label} is {name}' for label, name in pairs.items())}."
