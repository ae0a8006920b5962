"""`mops report`"""

import webbrowser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from mops.cli.options import JSON, PATH
from mops.cli.screen import ERR, OUT, print_table, print_warnings, respond
from mops.papers import NAMES, PaperView, claim_table
from mops.reports import check_packages, missing_packages
from mops.reports.source import read_source
from mops.surveys.pack import read_pack
from mops.surveys.results.results import LEFT_OUT


@click.command()
@click.argument("folder", metavar="DIR|FILE", type=PATH)
@click.option("--out", type=PATH, help="Output folder; default DIR, or FILE without its ending.")
@click.option("--open", "is_open", is_flag=True, help="Open the page in the browser.")
@click.option("--like", type=click.Choice(NAMES), multiple=True,
              help="Compare with a paper: its tables next to ours. Repeatable.")  # fmt: skip
@click.option("--png", is_flag=True, help="Also write the charts as PNG.")
@JSON
def command(
    folder: Path, out: Path | None, is_open: bool, like: tuple[str, ...], png: bool, as_json: bool
) -> None:
    """Write the report of a survey or run: the recommendation and the evidence for it.

    DIR is the folder of a survey, finished or not, or of a run; FILE is a packed survey (`mops
    survey --pack`). Writes report.html, a page that works offline, report.md with the same content,
    tables/ (CSV and LaTeX) and figures/ (SVG).

    \b
    Example:
      mops report surveys/quickstart --open
      mops report surveys/late-frozen --like mops --out paper/
    """
    check_packages()
    from mops.reports.report import make_report, write_files

    if folder.is_file():
        pack, folder = folder, out or folder.with_suffix("")
        read_pack(pack, folder)
    with ERR.status("reading the records") as status:
        source = read_source(folder)
        status.update("drawing the figures")
        report = make_report(source, like)
        status.update("writing the files")
        files = write_files(report, out or folder, has_png=png)
    left_out = [f"{trial.name}: {trial.reason}" for trial in source.results.in_state(LEFT_OUT)]
    print_warnings([f"left out: {reason}" for reason in left_out])
    facts = {
        "report": str(files[0]),
        "files": [str(path) for path in files],
        "candidate": source.decision.candidate if source.decision else None,
        "left_out": left_out,
        "papers": [asdict(view) for view in report.papers],
    }
    respond(as_json, facts, show, report.papers, files[0])
    if is_open and not webbrowser.open(files[0].resolve().as_uri()):
        print_warnings([f"no browser found; open {files[0]} yourself"])


def show(papers: Sequence[PaperView], page: Path) -> None:
    for view in papers:
        print_paper(view)
    click.echo(f"report: {page}")


def print_paper(view: PaperView) -> None:
    """The tables that have a number of ours, findings with verdicts, and differences."""
    OUT.print(f"{view.title} ({view.source})", soft_wrap=True)
    OUT.print(f"Repeated by `mops survey NAME`; NAME is one of {', '.join(view.surveys)}\n")
    for table in view.matched:
        print_table(table.title, list(map(short_name, table.columns)), table.texts, table.note)
        OUT.print()
    if others := [table.title for table in view.tables if table not in view.matched]:
        OUT.print(f"Tables without a number of ours: {'; '.join(others)}.\n")
    claims = claim_table(view)
    print_table(claims.title, claims.columns, claims.texts, claims.note)
    OUT.print("\nDifferences:")
    for difference in view.differences:
        OUT.print(f"- {difference}")


def short_name(column: str) -> str:
    """Our columns follow the paper's, so on a narrow terminal their names need not repeat it."""
    name, _, whose = column.rpartition(", ")
    return {"paper": name, "ours": "ours", "ours judged": "judged"}.get(whose, column)


def report_of(folder: Path) -> Path | None:
    """Write the report of a finished survey, if the extra `report` is installed."""
    if missing_packages():
        return None
    from mops.reports.report import write_report

    with ERR.status("writing the report"):
        return write_report(folder)
