"""The report of a survey or run as files: page, text, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mops.errors import UsageError
from mops.files import atomic_write
from mops.papers import PaperView, claim_table, compare_with
from mops.reports.cards import Card, make_cards
from mops.reports.caveats import Section, make_caveats
from mops.reports.errors import TaskErrors, find_errors
from mops.reports.figures.answers import draw_answers
from mops.reports.figures.conflicts import draw_conflicts
from mops.reports.figures.curves import draw_curves
from mops.reports.figures.response import draw_responses
from mops.reports.figures.scores import draw_pareto, draw_scores
from mops.reports.figures.style import Picture, house_style, to_png
from mops.reports.source import Source, read_source
from mops.reports.tables import make_tables
from mops.tables import Table, to_csv, to_latex

FIGURES: tuple[Callable[[Source], Iterator[Picture | str]], ...] = (
    draw_pareto, draw_scores, draw_curves, draw_responses, draw_answers, draw_conflicts,
)  # fmt: skip
PACKAGES = ("jinja2", "matplotlib")  # the extra `report`


@dataclass(frozen=True)
class Report:
    """Everything a report shows, before it is written."""

    source: Source
    tables: tuple[Table, ...]  # the first is the table of plans
    pictures: tuple[Picture, ...] = ()
    cards: tuple[Card, ...] = ()
    errors: tuple[TaskErrors, ...] = ()
    caveats: tuple[Section, ...] = ()
    papers: tuple[PaperView, ...] = ()

    @property
    def paper_tables(self) -> tuple[Table, ...]:
        return tuple(table for view in self.papers for table in (*view.tables, claim_table(view)))


def write_report(
    folder: Path, out: Path | None = None, *, like: Sequence[str] = (), has_png: bool = False
) -> Path:
    """Write the report of a survey's or run's folder, there or into `out`; returns the page."""
    check_packages()
    return write_files(make_report(read_source(folder), like), out or folder, has_png=has_png)[0]


def missing_packages() -> list[str]:
    return [name for name in PACKAGES if find_spec(name) is None]


def check_packages() -> None:
    if missing := missing_packages():
        raise UsageError(
            f"a report needs {' and '.join(missing)}: install with `pip install "
            '"mops-nlp[report]"` and run the same command again'
        )


def make_report(source: Source, like: Sequence[str] = ()) -> Report:
    """All parts of the report, and comparisons with the named papers."""
    charts, analyses = draw_charts(source), list(find_errors(source))
    left_out = [text for text in (*charts, *analyses) if isinstance(text, str)]
    return Report(
        source,
        tables=make_tables(source),
        pictures=tuple(chart for chart in charts if isinstance(chart, Picture)),
        cards=make_cards(source),
        errors=tuple(analysis for analysis in analyses if isinstance(analysis, TaskErrors)),
        caveats=make_caveats(source, left_out),
        papers=tuple(compare_with(name, source.results, source.records) for name in like),
    )


def draw_charts(source: Source) -> list[Picture | str]:
    """All charts that the results have data for, and sentences about what they leave out."""
    with house_style():
        return [chart for draw in FIGURES for chart in draw(source)]


def write_files(report: Report, place: Path, *, has_png: bool = False) -> list[Path]:
    """Each file is complete or absent; the page is written last and returned first."""
    from mops.reports.page import render_markdown, render_page

    files = {"report.md": render_markdown(report).encode()}
    slices = (table for one in report.errors for table in (one.by_length, one.by_label))
    for table in (*report.tables, *slices, *report.paper_tables):
        files[f"tables/{table.name}.csv"] = to_csv(table).encode()
        files[f"tables/{table.name}.tex"] = to_latex(table).encode()
    plans = {card.picture.name: card.picture for card in report.cards if card.picture}
    for picture in (*report.pictures, *plans.values()):
        files[f"figures/{picture.name}.svg"] = picture.file.encode()
        if has_png and picture.figure:
            files[f"figures/{picture.name}.png"] = to_png(picture.figure)
    files["report.html"] = render_page(report).encode()
    for name, data in files.items():
        with atomic_write(place / name) as draft:
            draft.write_bytes(data)
    return [place / name for name in dict.fromkeys(("report.html", *files))]
