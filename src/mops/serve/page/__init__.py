"""The page: static files that load nothing from elsewhere, and the picture of the plan."""

from functools import partial
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from mops.plans.layout import Layout
from mops.reports.cards import draw_plan
from mops.reports.figures.style import THEME
from mops.reports.page import read_asset

HERE = Path(__file__).parent
KINDS = {".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def static_files(page: str) -> APIRouter:
    """A page at / and what it loads; none of it is secret."""
    router = APIRouter(include_in_schema=False)
    html = (HERE / page).read_text("utf-8")
    router.get("/")(lambda: HTMLResponse(html))
    files = {path.name: path.read_text("utf-8") for path in HERE.iterdir() if path.suffix in KINDS}
    for name, content in (("report.css", read_asset("style.css")), *files.items()):
        answer = partial(Response, content, media_type=KINDS[Path(name).suffix])
        router.get(f"/page/{name}")(lambda answer=answer: answer())
    return router


def picture_of(layout: Layout) -> Response:
    """The plan in the colours of the page around it, or in its own where there is none."""
    svg = draw_plan(layout).svg
    for colour, variable in THEME.items():
        if variable.endswith(")"):
            svg = svg.replace(variable, f"{variable[:-1]}, {colour})")
    return Response(svg, media_type="image/svg+xml")
