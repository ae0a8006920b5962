"""Everything a report says, as values: what the page, the text and the files are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mops.papers import PaperView, claim_table, compare_with
from mops.reports.cards import make_cards
from mops.reports.errors import TaskErrors, find_errors
from mops.reports.figures import draw_figures
from mops.reports.honesty import Section, make_honest
from mops.reports.material import Material
from mops.reports.parts import Card, Picture
from mops.reports.tables import make_tables
from mops.tables import Table


@dataclass(frozen=True)
class Contents:
    """A report before it is written."""

    material: Material
    tables: tuple[Table, ...]  # the first is that of the plans
    pictures: tuple[Picture, ...] = ()
    cards: tuple[Card, ...] = ()
    errors: tuple[TaskErrors, ...] = ()
    honesty: tuple[Section, ...] = ()
    papers: tuple[PaperView, ...] = ()

    @property
    def paper_tables(self) -> tuple[Table, ...]:
        """A paper's tables, then its findings."""
        return tuple(table for view in self.papers for table in (*view.tables, claim_table(view)))

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Every table that has a name of its own."""
        slices = tuple(table for of in self.errors for table in (of.by_length, of.by_label))
        return (*self.tables, *slices, *self.paper_tables)


def gather(material: Material, like: Sequence[str] = ()) -> Contents:
    """All parts of the report of a folder, and the views of the named papers."""
    return Contents(
        material,
        tables=make_tables(material),
        pictures=draw_figures(material),
        cards=make_cards(material),
        errors=find_errors(material),
        honesty=make_honest(material),
        papers=tuple(compare_with(name, material) for name in like),
    )
