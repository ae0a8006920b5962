"""The report as one HTML page that loads nothing, and as one Markdown file."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from mops import tables
from mops.reports.source import JUDGES
from mops.tables import Cell, Table

if TYPE_CHECKING:
    from mops.reports.report import Report

HERE = Path(__file__).parent
CHOSEN = "recommended"  # the tag of the chosen candidate
# 0.550 | ± 0.030 | (+0.012*), or +0.053 | | [+0.011, +0.094]*
PIECES = re.compile(r"([^±\[(]+?)(?: (± [^\[(]+?))?(?: ([\[(].+))?")


def render_page(report: Report) -> str:
    """Every text is escaped; only our own drawings, style and script are inserted as they are."""
    body = load_template("body.html").render(
        report=report,
        chosen=next((card for card in report.cards if CHOSEN in card.tags), None),
        cards={card.candidate: card for card in report.cards},
    )
    script = read_asset("script.js")
    return load_template("page.html").render(
        source=report.source,
        judges=JUDGES[report.source.results.on],
        chapters=re.findall(r'<section id="([^"]+)">\s*<h2>(.*?)</h2>', body),
        body=body,
        style=read_asset("style.css"),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def render_markdown(report: Report) -> str:
    """The page's content as Markdown; pictures are links to figures/NAME.svg."""
    text = load_template("report.md").render(report=report)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def render_latex(table: Table) -> str:
    """A table with title, note and the label `tab:NAME`."""
    return load_template("table.tex").render(table=table) + "\n"


@cache
def load_template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=name.endswith(("html", "svg")),  # others escape by filters of their own
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (
        split_number, sort_key, tables.escape_markdown, tables.markdown_table,
        tables.escape_latex, tables.latex_cell,
    )  # fmt: skip
    environment.filters |= {function.__name__: function for function in functions}
    return environment.get_template(name)


def read_asset(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def split_number(cell: Cell) -> Sequence[str]:
    """The number, its error, and its interval or gain; a text stays whole."""
    match = PIECES.fullmatch(cell.text) if cell.is_number else None
    return match.groups("") if match else (cell.text, "", "")


def sort_key(cell: Cell) -> str:
    """Empty for what stands last however the column is sorted."""
    if isinstance(cell.key, str):
        return cell.key
    return repr(float(cell.key)) if cell.text and math.isfinite(cell.key) else ""
