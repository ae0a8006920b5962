"""The chapters of the page, in the order in which a person asks: each only where it has content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mops.papers import Claim
from mops.reports.contents import Contents
from mops.reports.errors import Example, TaskErrors
from mops.reports.page.shown import MAIN, Candidate, ShownTable, candidates_of, show_table
from mops.reports.parts import Card, Picture
from mops.tables import Table

OUTSIDE = "outside"  # the table of trials without a result
PICTURES = {  # chapter -> its title; its pictures are of a group or have a name that begins so
    "pareto": "Score against cost",
    "scores": "Task by task",
    "curves": "How they learn",
    "response": "What the settings do",
    "answers": "What is taken for what",
    "calibration": "How sure, and how right",
    "conflicts": "Where the tasks disagree",
}
REST = ("pictures", "More pictures")
PLACED = {"convergence": "curves"}  # tables that stand below pictures


@dataclass(frozen=True)
class Group:
    """Pictures that are shown one at a time; without choices: one picture."""

    id: str
    legend: str
    choices: tuple[str, ...]
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class ShownSection:
    title: str
    lines: tuple[str, ...]
    table: ShownTable | None


@dataclass(frozen=True)
class ShownErrors:
    task: str
    note: str
    worst: tuple[Example, ...]
    only: tuple[tuple[str, tuple[Example, ...]], ...]  # who alone errs, where
    by_length: ShownTable
    by_label: ShownTable


@dataclass(frozen=True)
class Chapter:
    id: str
    title: str
    lines: tuple[str, ...] = ()
    figures: tuple[Group, ...] = ()
    tables: tuple[ShownTable, ...] = ()
    sections: tuple[ShownSection, ...] = ()
    tasks: tuple[ShownErrors, ...] = ()
    claims: tuple[Claim, ...] = ()
    cards: tuple[tuple[int, Card], ...] = ()
    beside: Card | None = None  # of the recommended candidate, beside the pictures

    @property
    def has_content(self) -> bool:
        parts = (self.figures, self.tables, self.sections, self.tasks, self.claims, self.cards)
        return any(parts)


def chapters_of(contents: Contents) -> list[Chapter]:
    known = candidates_of(contents.material)
    first, *others = picture_chapters(contents, known)
    found = [
        replace(first, beside=recommended(contents)),
        Chapter("plans", "The plans", tables=shown(contents.tables, known, (MAIN,))),
        *others,
        other_tables(contents, known),
        Chapter("errors", "Errors", tasks=tuple(show_errors(e, known) for e in contents.errors)),
        *paper_chapters(contents, known),
        honesty(contents, known),
        Chapter(
            "outside", "Trials without a result", tables=shown(contents.tables, known, (OUTSIDE,))
        ),
        Chapter("cards", "Plan by plan", cards=numbered(contents.cards, known)),
    ]
    return [chapter for chapter in found if chapter.has_content]


def shown(
    tables: Sequence[Table], known: Mapping[str, Candidate], names: Sequence[str]
) -> tuple[ShownTable, ...]:
    return tuple(show_table(table, known) for table in tables if table.name in names and table.rows)


def other_tables(contents: Contents, known: Mapping[str, Candidate]) -> Chapter:
    elsewhere = (MAIN, OUTSIDE, *PLACED)
    names = [table.name for table in contents.tables if table.name not in elsewhere]
    return Chapter("tables", "Tables", tables=shown(contents.tables, known, names))


def honesty(contents: Contents, known: Mapping[str, Candidate]) -> Chapter:
    sections = tuple(
        ShownSection(one.title, one.lines, show_table(one.table, known) if one.table else None)
        for one in contents.honesty
    )
    return Chapter("honesty", "How far to trust this", sections=sections)


def paper_chapters(contents: Contents, known: Mapping[str, Candidate]) -> Iterator[Chapter]:
    for n, view in enumerate(contents.papers):
        tables = tuple(show_table(table, known) for table in view.tables)
        yield Chapter(
            f"paper-{n}",
            f"Beside {view.title}",
            (view.source,),
            tables=tables,
            claims=view.claims,
            sections=(ShownSection("What differs", view.differences, None),),
        )


def recommended(contents: Contents) -> Card | None:
    decision = contents.material.decision
    chosen = decision.candidate if decision and contents.material.survey else None
    return next((card for card in contents.cards if card.candidate == chosen), None)


def numbered(cards: Sequence[Card], known: Mapping[str, Candidate]) -> tuple[tuple[int, Card], ...]:
    return tuple((known[card.candidate].number, card) for card in cards)


# ------------------------------------------------------------------ pictures


def picture_chapters(contents: Contents, known: Mapping[str, Candidate]) -> Iterator[Chapter]:
    """Those of a chapter in the order they come; what no chapter asks for comes last."""
    left = list(contents.pictures)
    for name, title in PICTURES.items():
        mine = [one for one in left if (one.group or one.name).startswith(name)]
        left = [one for one in left if one not in mine]
        tables = [table for table, place in PLACED.items() if place == name]
        yield Chapter(
            name,
            title,
            figures=tuple(groups_of(mine)),
            tables=shown(contents.tables, known, tables),
        )
    yield Chapter(*REST, figures=tuple(groups_of(left)))


def groups_of(pictures: Sequence[Picture]) -> Iterator[Group]:
    groups: dict[str, list[Picture]] = {}
    for one in pictures:
        groups.setdefault(one.group or f"one-{one.name}", []).append(one)
    for name, found in groups.items():
        choices = tuple(one.choice for one in found) if len(found) > 1 else ()
        yield Group(f"figures-{name}", found[0].title, choices, tuple(found))


# ------------------------------------------------------------------ errors


def show_errors(found: TaskErrors, known: Mapping[str, Candidate]) -> ShownErrors:
    alone: dict[str, list[Example]] = {}
    for example in found.only:
        alone.setdefault(example.only, []).append(example)
    return ShownErrors(
        found.task,
        found.note,
        found.worst,
        tuple((who, tuple(examples)) for who, examples in alone.items()),
        show_table(found.by_length, known),
        show_table(found.by_label, known),
    )
