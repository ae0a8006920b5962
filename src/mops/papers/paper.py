"""The words for a paper: its tables number by number, what it found, and where ours is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mops.tables import Table

if TYPE_CHECKING:
    from mops.papers.ours import Ours

Verdict = Literal["holds", "does not hold", "cannot be told"]
Judgement = tuple[Verdict, str]  # and why
Test = Callable[["Ours"], Judgement]
OURS = ", ours"  # ends the name of a column with our numbers
TASKS = ("sentiment", "paraphrase", "similarity")  # of all five papers; ours by these names


@dataclass(frozen=True)
class Match:
    """Which of our candidates is meant."""

    plan: str  # short form; {half} is half the encoder's depth
    needs: Mapping[str, Any] = field(default_factory=dict)  # dotted key -> its value, else no match
    rather: Mapping[str, Any] = field(default_factory=dict)  # of several candidates these
    trains: tuple[str, ...] = ()  # the only tasks that are trained; none: all


@dataclass(frozen=True)
class Column:
    """A column of a paper's table, and what it is of ours."""

    measure: str  # a key of MEASURES
    name: str  # as the paper calls it


@dataclass(frozen=True)
class PaperRow:
    """A row as printed; `should` has what a wrong number ought to be."""

    label: str
    numbers: Mapping[str, float]  # measure -> number
    match: Match
    split: str = "validation"
    should: Mapping[str, float] = field(default_factory=dict)
    matches: Mapping[str, Match] = field(default_factory=dict)  # where a column has another model
    remark: str = ""


@dataclass(frozen=True)
class PaperTable:
    """One table, or some of its columns."""

    name: str  # file stem
    title: str
    columns: tuple[Column, ...]
    rows: tuple[PaperRow, ...]
    note: str = ""

    @property
    def base(self) -> PaperRow:
        """The row that ratios are taken to."""
        return self.rows[0]


@dataclass(frozen=True)
class Stated:
    """A finding as the paper puts it, and how our numbers judge it."""

    text: str
    test: Test


@dataclass(frozen=True)
class Setting:
    """What was trained there, to be set beside what was trained here."""

    encoder: str = "bert-base-uncased"
    depth: int = 12
    width: int = 768
    steps: int | None = None  # of one training; none where the paper does not say
    rows: Mapping[str, int] = field(default_factory=dict)  # training rows of each task
    dev_rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    """A paper as data."""

    name: str
    title: str
    source: str
    surveys: tuple[str, ...]  # named experiments that repeat it
    setting: Setting
    tables: tuple[PaperTable, ...]
    findings: tuple[Stated, ...]
    differences: tuple[str, ...]  # that hold for any survey of ours


@dataclass(frozen=True)
class Claim:
    """A finding of a paper, judged by our survey."""

    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class PaperView:
    """A survey seen as that paper shows its own."""

    name: str
    title: str
    source: str
    surveys: tuple[str, ...]
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    differences: tuple[str, ...]

    @property
    def matched(self) -> tuple[Table, ...]:
        """The tables in which this survey has a number."""
        return tuple(table for table in self.tables if has_ours(table))


def has_ours(table: Table) -> bool:
    places = [n for n, column in enumerate(table.columns) if column.endswith(OURS)]
    return any(row[n].text for row in table.rows for n in places)
