"""`mops report`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON
from mops.papers import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mops.reports.report import Report


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder; default DIR itself.")
@click.option("--open", "is_open", is_flag=True, help="Open the page in the browser.")
@click.option("--like", type=click.Choice(NAMES), multiple=True,
              help="Add and print a paper's tables beside ours. Repeatable.")  # fmt: skip
@click.option("--png", "has_png", is_flag=True, help="Write the charts as PNG too.")
@JSON
def command(
    folder: Path,
    out: Path | None,
    is_open: bool,
    like: tuple[str, ...],
    has_png: bool,
    as_json: bool,
) -> None:
    """Write the report of a survey or of a run: what to use, and everything behind it.

    DIR is the folder of a survey, finished or not, or of a run. Its report is report.html, one
    page that needs no network; the same as report.md, tables/ (CSV and LaTeX) and figures/ (SVG).

    \b
    Example:
      mops report surveys/quickstart --open
      mops report surveys/late-frozen --like mops --out paper/
    """
    from mops.cli.screen import ERR, print_warnings
    from mops.reports.material import read_material
    from mops.reports.report import check_packages, make_report, write_files

    check_packages()
    with ERR.status("reading the records") as status:
        material = read_material(folder)
        status.update("drawing the figures")
        report = make_report(material, like)
        status.update("writing the files")
        files = write_files(report, out or folder, has_png=has_png)
    print_warnings([f"left out: {reason}" for reason in material.broken])
    show_json(report, files) if as_json else show(report, files[0])
    if is_open:
        open_page(files[0])


def show(report: Report, page: Path) -> None:
    from mops.cli.paper_screen import print_paper
    from mops.cli.screen import OUT

    for view in report.papers:
        print_paper(view)
    OUT.print(f"report: {page}", soft_wrap=True)


def show_json(report: Report, files: Sequence[Path]) -> None:
    decision = report.material.decision
    echo_json(
        {
            "report": str(files[0]),
            "files": [str(path) for path in files],
            "candidate": decision.candidate if decision else None,
            "left_out": list(report.material.broken),
            "papers": [asdict(view) for view in report.papers],
        }
    )


def open_page(page: Path) -> None:
    import webbrowser

    from mops.cli.screen import print_warnings

    if not webbrowser.open(page.resolve().as_uri()):
        print_warnings([f"no browser was found; open {page} yourself"])


# ------------------------------------------------------------------ at the end of a survey


def report_of(folder: Path) -> Path | None:
    """The report of a survey that was just judged, where the extra is installed."""
    from mops.cli.screen import ERR
    from mops.reports.report import missing_packages, write_report

    if missing_packages():
        return None
    with ERR.status("writing the report"):
        return write_report(folder)
