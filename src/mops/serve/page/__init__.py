"""The page: static files that load nothing from elsewhere, and the picture of the plan."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from mops.plans.layout import Layout
from mops.reports.cards import draw_plan
from mops.reports.page import read_asset

HERE = Path(__file__).parent
FILES = {  # address -> kind and content
    "/page/report.css": ("text/css", read_asset("style.css")),
    "/page/try.css": ("text/css", (HERE / "try.css").read_text("utf-8")),
    "/page/try.js": ("text/javascript", (HERE / "try.js").read_text("utf-8")),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def static_files() -> APIRouter:
    """The page and what it loads; none of it is secret."""
    router = APIRouter(include_in_schema=False)
    page = (HERE / "index.html").read_text("utf-8")
    router.get("/")(lambda: HTMLResponse(page))
    for address, (kind, content) in FILES.items():
        router.get(address)(lambda kind=kind, content=content: Response(content, media_type=kind))
    return router


def picture_of(layout: Layout) -> Response:
    return Response(draw_plan(layout).file, media_type="image/svg+xml")
