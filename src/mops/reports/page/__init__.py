"""The report as one HTML page that loads nothing, and as one Markdown file."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mops.papers import Claim
from mops.surveys.results.wording import decided
from mops.tables import Cell, Table, escape_markdown, markdown_lines, markdown_table

if TYPE_CHECKING:
    from jinja2 import Template

    from mops.reports.cards import Card
    from mops.reports.caveats import Section
    from mops.reports.errors import Example, TaskErrors
    from mops.reports.figures import Picture
    from mops.reports.material import Material
    from mops.reports.report import Report

HERE = Path(__file__).parent
JUDGES = {"report": "the report half of validation", "test": "the test files"}
PLANS, OUTSIDE = "plans", "outside"  # tables with chapters of their own
CHARTS = {  # chapter -> its title; its pictures have a name that begins so
    "pareto": "Score against cost",
    "scores": "Scores by task",
    "curves": "Learning curves",
    "response": "Effect of the settings",
    "answers": "Predictions against labels",
    "calibration": "Calibration",
    "conflicts": "Gradient conflicts",
}
CHART_TABLES = {"convergence": "curves"}  # tables that belong below charts
LONG = 60  # characters of a text that gets a wide column
MOST_ROWS = 10  # worst rows of a task in the Markdown file
# 0.550 | ± 0.030 | (+0.012*), or +0.053 | | [+0.011, +0.094]*
PIECES = re.compile(r"([^±\[(]+?)(?: (± [^\[(]+?))?(?: ([\[(].+))?")


@dataclass(frozen=True)
class Chapter:
    """A part of the page; it is shown only if it has content."""

    id: str
    title: str
    lines: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    sections: tuple[Section, ...] = ()
    errors: tuple[TaskErrors, ...] = ()
    claims: tuple[Claim, ...] = ()
    cards: tuple[Card, ...] = ()
    aside: Card | None = None  # beside the pictures

    @property
    def has_content(self) -> bool:
        return any((self.pictures, self.tables, self.sections, self.errors, self.cards))


def render_page(report: Report) -> str:
    """Every text is escaped; only our own drawings, style and script are inserted as they are."""
    lead, *notes = headline(report.material)
    script = read_asset("script.js")
    rows = partial(table_rows, candidates=page_candidates(report.material))
    return load_template("page.html").render(
        title=report.material.summary.name,
        eyebrow=eyebrow(report.material),
        lead=lead,
        notes=notes,
        chapters=[chapter for chapter in make_chapters(report) if chapter.has_content],
        policy=content_policy(script),
        style=read_asset("style.css"),
        script=script,
        rows=rows,
    )


def render_markdown(report: Report) -> str:
    """The page's content as Markdown; pictures are links to figures/NAME.svg."""
    text = load_template("report.md").render(
        report=report,
        title=report.material.summary.name,
        lead=headline(report.material),
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
    return environment.get_template(name)


def read_asset(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def content_policy(script: str) -> str:
    """Nothing is loaded, and only our own script runs (CSP level 2: hash of its bytes)."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def headline(material: Material) -> Sequence[str]:
    """The decision, then notes on it."""
    if material.decision is None:
        return ["No trial is finished yet."]
    return list(decided(material.decision))


def eyebrow(material: Material) -> str:
    summary = material.summary
    judged = f"judged on {JUDGES[summary.on]} of {', '.join(summary.tasks)}"
    if not material.survey:
        return f"Run {summary.name}: {judged}"
    return (
        f"Survey {summary.name}: {len(summary.standings)} candidates, {len(summary.seeds)} seeds, "
        f"{judged}"
    )


# ------------------------------------------------------------------ chapters


def make_chapters(report: Report) -> Iterator[Chapter]:
    """In the order in which readers ask; the table of plans follows the first charts."""
    pareto, *others = chart_chapters(report)
    yield pareto
    yield Chapter(PLANS, "All plans", tables=select_tables(report, (PLANS,)))
    yield from others
    elsewhere = (PLANS, OUTSIDE, *CHART_TABLES)
    names = [table.name for table in report.tables if table.name not in elsewhere]
    yield Chapter("tables", "Tables", tables=select_tables(report, names))
    yield Chapter("errors", "Errors", errors=report.errors)
    for n, view in enumerate(report.papers):
        sections = (to_section("Differences between the paper and this survey", view.differences),)
        yield Chapter(
            f"paper-{n}", f"Comparison with {view.title}", (view.source,), tables=view.tables,
            claims=view.claims, sections=sections,
        )  # fmt: skip
    yield Chapter("caveats", "Caveats", sections=report.caveats)
    yield Chapter("outside", "Trials without a result", tables=select_tables(report, (OUTSIDE,)))
    yield Chapter("cards", "Plan by plan", cards=report.cards)


def chart_chapters(report: Report) -> Iterator[Chapter]:
    decision = report.material.decision
    chosen = decision.candidate if decision and report.material.survey else None
    card = next((card for card in report.cards if card.candidate == chosen), None)
    for name, title in CHARTS.items():
        yield Chapter(
            name,
            title,
            pictures=tuple(one for one in report.pictures if one.name.startswith(name)),
            tables=select_tables(report, [t for t, where in CHART_TABLES.items() if where == name]),
            aside=card if name == "pareto" else None,
        )


def to_section(title: str, lines: tuple[str, ...]) -> Section:
    from mops.reports.caveats import Section

    return Section(title, lines)


def select_tables(report: Report, names: Sequence[str]) -> tuple[Table, ...]:
    return tuple(table for table in report.tables if table.name in names)


# ------------------------------------------------------------------ tables


@dataclass(frozen=True)
class PageCandidate:
    """A candidate wherever its name appears on the page."""

    number: int
    name: str
    tie: int
    family: str
    tags: tuple[str, ...]
    is_chosen: bool


def page_candidates(material: Material) -> Mapping[str, PageCandidate]:
    summary = material.summary
    chosen = material.decision.candidate if material.decision and material.survey else None
    roles = {"recommended": chosen}
    if material.survey:
        roles |= {"baseline": summary.baseline, "a model per task": summary.single}
    candidates = {}
    for number, one in enumerate(summary.standings):
        tags = [role for role, name in roles.items() if name == one.name]
        if one.missing_seeds:
            tags.append(f"{len(one.trials)} of {len(summary.seeds)} seeds")
        family = one.plan.partition(":")[0]
        candidates[one.name] = PageCandidate(
            number, one.name, one.tie, family, tuple(tags), one.name == chosen
        )
    return candidates


def table_rows(
    table: Table, candidates: Mapping[str, PageCandidate]
) -> list[tuple[PageCandidate | None, str, tuple[Cell, ...]]]:
    """Each row with its candidate and its CSS classes: first and last of a block, chosen."""
    place = table.columns.index("candidate") if "candidate" in table.columns else None
    about = [None if place is None else candidates.get(str(r[place].key)) for r in table.rows]
    ties = [one.tie if one else 0 for one in about]
    classes = [
        " ".join(
            name
            for name, is_on in {
                "first": n == 0 or ties[n - 1] != tie,
                "last": n == len(ties) - 1 or ties[n + 1] != tie,
                "chosen": one is not None and one.is_chosen,
            }.items()
            if is_on
        )
        for n, (tie, one) in enumerate(zip(ties, about, strict=True))
    ]
    return list(zip(about, classes, table.rows, strict=True))


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
    rows: list[list[Any]] = [
        [" / ".join(one.texts) or one.id, one.label,
         *(f"{answer}{'' if is_right else ' ✗'}" for _, answer, is_right in one.answers)]
        for one in examples
    ]  # fmt: skip
    return markdown_lines(("row", "label", *candidates), rows)
