"""The contents of a report become one HTML file: no request, no script but its own."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mops.reports.contents import Contents
from mops.reports.material import Material
from mops.reports.page.chapters import chapters_of
from mops.surveys.results.wording import decided

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent
JUDGES = {"report": "the report half of validation", "test": "the test files"}


def render_page(contents: Contents) -> str:
    """Every text is escaped; only drawings, style and script, all our own, go in as they are."""
    lead, *notes = headline(contents.material)
    script = asset("script.js")
    return template().render(
        title=contents.material.summary.name,
        eyebrow=eyebrow(contents.material),
        lead=lead,
        notes=notes,
        chapters=chapters_of(contents),
        policy=policy(script),
        style=asset("style.css"),
        script=script,
    )


@cache
def template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    around = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return around.get_template("page.html")


def asset(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def policy(script: str) -> str:
    """Nothing is loaded, and of all scripts only this one runs (CSP level 2: hash of its bytes)."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def headline(material: Material) -> list[str]:
    """The decision, then what else is said of it."""
    if material.decision is None:
        return ["No trial is finished: nothing can be said yet."]
    return list(decided(material.decision))


def eyebrow(material: Material) -> str:
    """What was compared, on what."""
    summary = material.summary
    tasks = ", ".join(summary.tasks)
    what = (
        f"{len(summary.standings)} candidates, {len(summary.seeds)} seeds, "
        if material.survey
        else ""
    )
    kind = "Survey" if material.survey else "Run"
    return f"{kind} {summary.name}: {what}judged on {JUDGES[summary.on]} of {tasks}"
