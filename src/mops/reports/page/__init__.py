"""The report as one HTML page that loads nothing, and as one Markdown file."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mops.reports.source import JUDGES, Source
from mops.tables import Cell, Table, escape_markdown, markdown_lines, markdown_table

if TYPE_CHECKING:
    from jinja2 import Template

    from mops.reports.errors import Example
    from mops.reports.report import Report

HERE = Path(__file__).parent
LONG = 60  # characters of a text that gets a wide column
MOST_ROWS = 10  # worst rows of a task in the Markdown file
# 0.550 | ± 0.030 | (+0.012*), or +0.053 | | [+0.011, +0.094]*
PIECES = re.compile(r"([^±\[(]+?)(?: (± [^\[(]+?))?(?: ([\[(].+))?")


def render_page(report: Report) -> str:
    """Every text is escaped; only our own drawings, style and script are inserted as they are."""
    source, results = report.source, report.source.results
    lead, *notes = headline(source)
    sizes = f"{len(results.candidates)} candidates, {len(results.seeds)} seeds, "
    kind, counted = ("Survey", sizes) if source.survey else ("Run", "")
    judged = f"judged on {JUDGES[results.on]} of {', '.join(results.tasks)}"
    script = read_asset("script.js")
    # Nothing is loaded, and only our own script runs (CSP level 2: hash of its bytes).
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    candidates = page_candidates(source)
    body = load_template("body.html").render(
        report=report,
        chosen=next((c for c in report.cards if candidates[c.candidate].is_chosen), None),
        rows=partial(table_rows, candidates=candidates),
    )
    return load_template("page.html").render(
        title=results.name,
        eyebrow=f"{kind} {results.name}: {counted}{judged}",
        lead=lead,
        notes=notes,
        chapters=re.findall(r'<section id="([^"]+)">\s*<h2>(.*?)</h2>', body),
        body=body,
        policy=policy,
        style=read_asset("style.css"),
        script=script,
    )


def render_markdown(report: Report) -> str:
    """The page's content as Markdown; pictures are links to figures/NAME.svg."""
    text = load_template("report.md").render(
        report=report,
        title=report.source.results.name,
        lead=headline(report.source),
        most_rows=MOST_ROWS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def load_template(name: str) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=not name.endswith(".md"),  # report.md escapes by its own filter
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (split_number, sort_key, column_classes, escape_markdown, markdown_table,
                 example_table)  # fmt: skip
    environment.filters |= {function.__name__: function for function in functions}
    environment.tests["in_chapter"] = str.startswith
    return environment.get_template(name)


def read_asset(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def headline(source: Source) -> Sequence[str]:
    """The decision, then notes on it."""
    return source.decision.lines if source.decision else ["No trial is finished yet."]


# ------------------------------------------------------------------ tables


class PageCandidate(NamedTuple):
    """A candidate wherever its name appears on the page."""

    number: int
    name: str
    tie: int
    family: str
    tags: tuple[str, ...]
    is_chosen: bool


def page_candidates(source: Source) -> Mapping[str, PageCandidate]:
    results = source.results
    roles = {
        "recommended": source.chosen,
        "baseline": results.baseline,
        "a model per task": results.single,
    }
    candidates = {}
    for number, one in enumerate(results.candidates):
        tags = [role for role, name in roles.items() if name == one.name and source.survey]
        is_chosen = "recommended" in tags
        if one.missing_seeds:
            tags.append(f"{len(one.trials)} of {len(results.seeds)} seeds")
        family = one.plan.partition(":")[0]
        candidates[one.name] = PageCandidate(
            number, one.name, one.tie, family, tuple(tags), is_chosen
        )
    return candidates


def table_rows(
    table: Table, candidates: Mapping[str, PageCandidate]
) -> list[tuple[PageCandidate | None, str, tuple[Cell, ...]]]:
    """Each row with its candidate and its CSS classes: first and last of a block, chosen."""
    place = table.columns.index("candidate") if "candidate" in table.columns else None
    about = [None if place is None else candidates.get(str(r[place].key)) for r in table.rows]
    ties = [None, *(one.tie if one else 0 for one in about), None]
    rows = []
    for n, (one, cells) in enumerate(zip(about, table.rows, strict=True), start=1):
        marks = ["first"] if ties[n - 1] != ties[n] else []
        marks += ["last"] if ties[n + 1] != ties[n] else []
        marks += ["chosen"] if one and one.is_chosen else []
        rows.append((one, " ".join(marks), cells))
    return rows


def column_classes(table: Table) -> list[str]:
    """Number, word or long word; columns that the style knows by name also have their name."""
    classes = []
    for n, (title, is_number) in enumerate(zip(table.columns, table.number_columns, strict=True)):
        is_long = any(len(row[n].text) > LONG for row in table.rows)
        kind = "number" if is_number else "word long" if is_long else "word"
        classes.append(f"{kind} {title}" if title in ("tie", "warnings") else kind)
    return classes


def split_number(cell: Cell) -> Sequence[str]:
    """The number, its error, and its interval or gain; a text stays whole."""
    match = PIECES.fullmatch(cell.text) if cell.is_number else None
    return match.groups("") if match else (cell.text, "", "")


def sort_key(cell: Cell) -> str:
    """Empty for what stands last however the column is sorted."""
    if isinstance(cell.key, str):
        return cell.key
    return repr(float(cell.key)) if cell.text and math.isfinite(cell.key) else ""


def example_table(examples: Sequence[Example], candidates: Sequence[str]) -> str:
    """Rows with their answers in Markdown; a wrong answer has a mark."""
    rows = [
        [" / ".join(one.texts) or one.id, one.label,
         *(f"{answer}{'' if is_right else ' ✗'}" for _, answer, is_right in one.answers)]
        for one in examples
    ]  # fmt: skip
    return markdown_lines(("row", "label", *candidates), rows)
