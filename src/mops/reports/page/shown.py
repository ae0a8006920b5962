"""Tables as the page shows them: which candidate a row is about, by what a column is sorted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mops.reports.material import Material
from mops.surveys.results.standings import Standing
from mops.tables import Cell, Table

PLAN, TIE, WARNINGS = "candidate", "tie", "warnings"  # columns that the page knows
CHOSEN = "recommended"
LONG = 60  # letters; such words get room before they are broken into lines
MAIN = "plans"  # the table that is filtered and shows ties as blocks
# 0.550 | ± 0.030 | (+0.012*), or +0.053 | | [+0.011, +0.094]*
PIECES = re.compile(r"([^±\[(]+?)(?: (± [^\[(]+?))?(?: ([\[(].+))?")


@dataclass(frozen=True)
class ShownCell:
    main: str
    error: str  # set paler beside it
    below: str  # an interval or a gain: paler, below it where the table is wide
    hint: str
    key: str  # by which it is sorted; empty: always last
    is_plan: bool


@dataclass(frozen=True)
class ShownColumn:
    title: str
    kind: str  # classes
    is_order: bool  # the rows stand in its order


@dataclass(frozen=True)
class ShownRow:
    candidate: int | None  # place in the standings
    name: str
    tie: int
    family: str
    tags: tuple[str, ...]
    classes: str
    cells: tuple[ShownCell, ...]


@dataclass(frozen=True)
class ShownTable:
    name: str
    title: str
    note: str
    columns: tuple[ShownColumn, ...]
    rows: tuple[ShownRow, ...]
    filters: tuple[tuple[str, str, tuple[str, ...]], ...]  # name, legend, choices
    has_ties: bool


@dataclass(frozen=True)
class Candidate:
    """What the page knows of a candidate wherever its name stands."""

    number: int
    standing: Standing
    family: str
    tags: tuple[str, ...]


def candidates_of(material: Material) -> Mapping[str, Candidate]:
    return {
        one.name: Candidate(number, one, family_of(one.plan), tuple(tags_of(one, material)))
        for number, one in enumerate(material.summary.standings)
    }


def tags_of(one: Standing, material: Material) -> Iterator[str]:
    """What a reader should know of a candidate beside its name."""
    summary, decision = material.summary, material.decision
    if material.survey is None:
        return
    roles = {
        CHOSEN: decision.candidate if decision else None,
        "baseline": summary.baseline,
        "a model per task": summary.single,
    }
    yield from (tag for tag, name in roles.items() if name == one.name)
    if one.missing_seeds:
        yield f"{len(one.trials)} of {len(summary.seeds)} seeds"


def family_of(plan: str) -> str:
    """The short form without what follows its colon."""
    return plan.partition(":")[0]


def show_table(table: Table, known: Mapping[str, Candidate]) -> ShownTable:
    is_main = table.name == MAIN
    kinds = [kind_of([row[n] for row in table.rows]) for n in range(len(table.columns))]
    columns = tuple(
        ShownColumn(
            title, f"{kind} {title}" if title in (TIE, WARNINGS) else kind, is_main and title == TIE
        )
        for title, kind in zip(table.columns, kinds, strict=True)
    )
    rows = tuple(show_rows(table, known))
    ties = tuple(str(tie) for tie in sorted({row.tie for row in rows}))
    families = tuple(sorted({row.family for row in rows}))
    filters = (("tie", "Tie", ties), ("family", "Family", families)) if is_main else ()
    return ShownTable(table.name, table.title, table.note, columns, rows, filters, is_main)


def kind_of(cells: Sequence[Cell]) -> str:
    known = [cell for cell in cells if cell.text]
    if known and not any(isinstance(cell.key, str) for cell in known):
        return "number"
    return "word long" if any(len(cell.text) > LONG for cell in known) else "word"


def show_rows(table: Table, known: Mapping[str, Candidate]) -> Iterator[ShownRow]:
    place = table.columns.index(PLAN) if PLAN in table.columns else None
    about = [None if place is None else known.get(str(row[place].key)) for row in table.rows]
    ties = [one.standing.tie if one else 0 for one in about]
    for n, (row, one) in enumerate(zip(table.rows, about, strict=True)):
        marks = {
            "first": n == 0 or ties[n - 1] != ties[n],
            "last": n == len(ties) - 1 or ties[n + 1] != ties[n],
            "chosen": one is not None and CHOSEN in one.tags,
        }
        yield ShownRow(
            candidate=one.number if one else None,
            name=one.standing.name if one else "",
            tie=ties[n],
            family=one.family if one else "",
            tags=one.tags if one and table.name == MAIN else (),
            classes=" ".join(mark for mark, is_on in marks.items() if is_on),
            cells=tuple(
                show_cell(cell, one is not None and i == place) for i, cell in enumerate(row)
            ),
        )


def show_cell(cell: Cell, is_plan: bool) -> ShownCell:
    pieces = None if isinstance(cell.key, str) else PIECES.fullmatch(cell.text)
    main, error, below = pieces.groups("") if pieces else (cell.text, "", "")
    return ShownCell(main, error, below, cell.hint, key_of(cell), is_plan)


def key_of(cell: Cell) -> str:
    """As the script compares it; what is not a number stands last."""
    if isinstance(cell.key, str):
        return cell.key
    return repr(float(cell.key)) if cell.text and math.isfinite(cell.key) else ""
