"""`mops report`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON, PATH
from mops.cli.screen import ERR, OUT, print_table, print_warnings
from mops.papers import NAMES, claim_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mops.papers import PaperView
    from mops.reports.report import Report
    from mops.tables import Table


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--out", type=PATH, help="Output folder; default DIR.")
@click.option("--open", "is_open", is_flag=True, help="Open the page in the browser.")
@click.option("--like", type=click.Choice(NAMES), multiple=True,
              help="Compare with a paper: its tables next to ours. Repeatable.")  # fmt: skip
@click.option("--png", "has_png", is_flag=True, help="Also write the charts as PNG.")
@JSON
def command(
    folder: Path,
    out: Path | None,
    is_open: bool,
    like: tuple[str, ...],
    has_png: bool,
    as_json: bool,
) -> None:
    """Write the report of a survey or run: the recommendation and the evidence for it.

    DIR is the folder of a survey, finished or not, or of a run. Writes report.html, a page that
    works offline, report.md with the same content, tables/ (CSV and LaTeX) and figures/ (SVG).

    \b
    Example:
      mops report surveys/quickstart --open
      mops report surveys/late-frozen --like mops --out paper/
    """
    from mops.reports.report import check_packages, make_report, write_files
    from mops.reports.source import read_source

    check_packages()
    with ERR.status("reading the records") as status:
        source = read_source(folder)
        status.update("drawing the figures")
        report = make_report(source, like)
        status.update("writing the files")
        files = write_files(report, out or folder, has_png=has_png)
    print_warnings([f"left out: {reason}" for reason in source.unreadable])
    show_json(report, files) if as_json else show(report, files[0])
    if is_open:
        open_page(files[0])


def show(report: Report, page: Path) -> None:
    for view in report.papers:
        print_paper(view)
    OUT.print(f"report: {page}", soft_wrap=True)


def show_json(report: Report, files: Sequence[Path]) -> None:
    decision = report.source.decision
    echo_json(
        {
            "report": str(files[0]),
            "files": [str(path) for path in files],
            "candidate": decision.candidate if decision else None,
            "left_out": list(report.source.unreadable),
            "papers": [asdict(view) for view in report.papers],
        }
    )


def print_paper(view: PaperView) -> None:
    """The tables that have a number of ours, findings with verdicts, and differences."""
    OUT.print(f"{view.title} ({view.source})", soft_wrap=True)
    OUT.print(f"Repeated by `mops survey NAME`; NAME is one of {', '.join(view.surveys)}\n")
    for table in view.matched:
        print_part(table, [short_name(column) for column in table.columns])
    if others := [table.title for table in view.tables if table not in view.matched]:
        OUT.print(f"Tables without a number of ours: {'; '.join(others)}.\n")
    claims = claim_table(view)
    print_part(claims, claims.columns)
    OUT.print("Differences:")
    for difference in view.differences:
        OUT.print(f"- {difference}")


def print_part(table: Table, columns: Sequence[str]) -> None:
    print_table(table.title, columns, table.texts, table.note)
    OUT.print()


def short_name(column: str) -> str:
    """Our columns follow the paper's, so on a narrow terminal their names need not repeat it."""
    name, _, whose = column.rpartition(", ")
    return {"paper": name, "ours": "ours", "ours judged": "judged"}.get(whose, column)


def open_page(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        print_warnings([f"no browser found; open {page} yourself"])


# ------------------------------------------------------------------ at the end of a survey


def report_of(folder: Path) -> Path | None:
    """Write the report of a finished survey, if the extra `report` is installed."""
    from mops.reports.report import missing_packages, write_report

    if missing_packages():
        return None
    with ERR.status("writing the report"):
        return write_report(folder)
