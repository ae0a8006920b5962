"""A report as files: the page, the text, tables and figures, each of them complete or not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from mops.errors import UsageError
from mops.files import atomic_write
from mops.reports.contents import Contents, gather
from mops.reports.figures import draw
from mops.reports.latex import to_latex
from mops.reports.markdown import to_markdown
from mops.reports.material import read_material
from mops.reports.page import render_page
from mops.reports.plan_picture import draw_plans
from mops.tables import to_csv

NEEDS = ("jinja2", "matplotlib")  # the extra `report`
PAGE = "report.html"


def write_report(
    folder: Path, out: Path | None = None, *, like: Sequence[str] = (), has_png: bool = False
) -> Path:
    """The report of a survey's or a run's folder, there or in `out`; says where its page lies."""
    check_needs()
    contents = gather(read_material(folder), like)
    return write_contents(contents, out or folder, has_png=has_png)[0]


def missing() -> list[str]:
    return [name for name in NEEDS if find_spec(name) is None]


def check_needs() -> None:
    if found := missing():
        raise UsageError(
            f"a report needs {' and '.join(found)}, not installed here: "
            'pip install "mops-nlp[report]", then the same command'
        )


def write_contents(contents: Contents, place: Path, *, has_png: bool = False) -> list[Path]:
    """All files, the page first; it is written last, when all that it speaks of is there."""
    texts = {place / name: text.encode() for name, text in texts_of(contents)}
    page = texts.pop(place / PAGE)
    images = {place / name: image for name, image in images_of(contents)} if has_png else {}
    for path, data in (texts | images | {place / PAGE: page}).items():
        with atomic_write(path) as draft:
            draft.write_bytes(data)
    return [place / PAGE, *texts, *images]


def texts_of(contents: Contents) -> Iterator[tuple[str, str]]:
    yield PAGE, render_page(contents)
    yield (
        "report.md",
        to_markdown(
            contents.material,
            tables=(*contents.tables, *contents.paper_tables),
            pictures=contents.pictures,
            errors=contents.errors,
            honest=contents.honesty,
        ),
    )
    for table in contents.all_tables:
        yield f"tables/{table.name}.csv", to_csv(table)
        yield f"tables/{table.name}.tex", to_latex(table)
    for picture in (*contents.pictures, *draw_plans(contents.material)):
        yield f"figures/{picture.name}.svg", picture.file


def images_of(contents: Contents) -> Iterator[tuple[str, bytes]]:
    for drawn in draw(contents.material):
        yield f"figures/{drawn.name}.png", drawn.png()
