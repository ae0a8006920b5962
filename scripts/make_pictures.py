"""Write the pictures of the docs: reports and pages as a browser shows them.

python scripts/make_pictures.py report SURVEY
python scripts/make_pictures.py model BUNDLE
python scripts/make_pictures.py survey SURVEY

Needs playwright and a chromium; a report is made in a folder of its own.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn
from fastapi import FastAPI

import mops
from mops.reports.report import write_report
from mops.serve.app import Limits, Service, build_app
from mops.serve.survey import SurveyService, build_survey_app

IMAGES = Path(__file__).parent.parent / "docs" / "img"


@dataclass(frozen=True)
class Shot:
    """A window, and what it looks at: the top, or the chapter with this title."""

    width: int
    height: int
    scheme: str = "light"
    chapter: str = ""


SHOTS = {
    "report": {
        "report-desktop": Shot(1280, 1180),
        "report-dark": Shot(1280, 900, "dark", "All plans"),
        "report-errors": Shot(1280, 900, chapter="Errors"),
        "report-phone": Shot(390, 844),
    },
    "model": {"serve-model": Shot(1280, 1060)},
    "survey": {"serve-survey": Shot(1280, 1590)},
}


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=SHOTS)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with MAKERS[given.kind](given.folder) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"))
        for name, shot in SHOTS[given.kind].items():
            take(browser, address, shot, IMAGES / f"{name}.png")
            print(IMAGES / f"{name}.png")
        browser.close()


@contextmanager
def written_report(survey: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as place:
        yield write_report(survey, Path(place)).as_uri()


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


MAKERS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "report": written_report,
    "model": lambda folder: served(build_app(Service(mops.load(folder), Limits()))),
    "survey": lambda folder: served(build_survey_app(SurveyService(folder))),
}


def take(browser: Any, page: str, shot: Shot, path: Path) -> None:
    window = {"width": shot.width, "height": shot.height}
    tab = browser.new_page(viewport=window, color_scheme=shot.scheme, reduced_motion="reduce")
    tab.goto(page)
    if shot.chapter:
        tab.get_by_role("heading", name=shot.chapter, exact=True).evaluate(
            "h => h.scrollIntoView()"
        )
    if tab.locator("#ask").count():  # the example that all tasks answer
        tab.locator("#examples button").nth(1).click()
    if tab.locator("#ask, #candidates").count():
        tab.locator(".cards h3, #candidates .track").first.wait_for()
    tab.screenshot(path=path)
    tab.close()


if __name__ == "__main__":
    main()
