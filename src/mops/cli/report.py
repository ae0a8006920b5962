"""`mops report`"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import mops
from mops.api.progress import print_warnings
from mops.cli.options import JSON, PATH
from mops.cli.screen import OUT, echo, print_table, respond
from mops.papers import NAMES, PaperView, claim_table


@click.command()
@click.argument("folder", metavar="DIR|FILE", type=PATH)
@click.option("--out", type=PATH, help="Output folder; default DIR, or FILE without its ending.")
@click.option("--open", is_flag=True, help="Open the page in the browser.")
@click.option("--like", type=click.Choice(NAMES), multiple=True,
              help="Compare with a paper: its tables next to ours. Repeatable.")  # fmt: skip
@click.option("--png", is_flag=True, help="Also write the charts as PNG.")
@JSON
def command(folder: Path, as_json: bool, **options: Any) -> None:
    """Write the report of a survey or run: the recommendation and the evidence for it.

    DIR is the folder of a survey, finished or not, or of a run; FILE is a packed survey (`mops
    survey --pack`). Writes report.html, a page that works offline, report.md with the same content,
    tables/ (CSV and LaTeX) and figures/ (SVG).

    \b
    Example:
      mops report surveys/quickstart --open
      mops report surveys/late-frozen --like mops --out paper/
    """
    report = mops.report(folder, **options)
    print_warnings([f"left out: {reason}" for reason in report.left_out])
    facts = {
        "report": str(report.page),
        "files": [str(path) for path in report.files],
        "candidate": report.candidate,
        "left_out": report.left_out,
        "papers": [asdict(view) for view in report.papers],
    }
    respond(as_json, facts, show, report)


def show(report: mops.WrittenReport) -> None:
    for view in report.papers:
        print_paper(view)
    echo(f"report: {report.page}")


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
