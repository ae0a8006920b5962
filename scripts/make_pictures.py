"""Write the pictures of docs/report.md: the report of a survey as a browser shows it.

python scripts/make_pictures.py SURVEY

Needs playwright and a chromium; the page is made in a folder of its own.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mops.reports.report import write_report

IMAGES = Path(__file__).parent.parent / "docs" / "img"


@dataclass(frozen=True)
class Shot:
    """A window, and what it looks at: the top, or the chapter with this title."""

    width: int
    height: int
    scheme: str = "light"
    chapter: str = ""


SHOTS = {
    "report-desktop": Shot(1280, 1180),
    "report-dark": Shot(1280, 900, "dark", "All plans"),
    "report-errors": Shot(1280, 900, chapter="Errors"),
    "report-phone": Shot(390, 844),
}


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("survey", type=Path, metavar="SURVEY")
    survey = parser.parse_args().survey
    with tempfile.TemporaryDirectory() as place, sync_playwright() as play:
        page = write_report(survey, Path(place)).as_uri()
        browser = play.chromium.launch(executable_path=shutil.which("chromium"))
        for name, shot in SHOTS.items():
            take(browser, page, shot, IMAGES / f"{name}.png")
            print(IMAGES / f"{name}.png")
        browser.close()


def take(browser: Any, page: str, shot: Shot, path: Path) -> None:
    window = {"width": shot.width, "height": shot.height}
    tab = browser.new_page(viewport=window, color_scheme=shot.scheme, reduced_motion="reduce")
    tab.goto(page)
    if shot.chapter:
        tab.get_by_role("heading", name=shot.chapter, exact=True).evaluate(
            "h => h.scrollIntoView()"
        )
    tab.screenshot(path=path)
    tab.close()


if __name__ == "__main__":
    main()
