"""A headless browser for tests; where there is none they are skipped, in CI they fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
DESK, PHONE, SMALL = (1280, 900), (390, 844), (360, 640)


def find_program() -> str:
    """Where the browser lies."""
    found = [path for path in map(shutil.which, PROGRAMS) if path]
    if found:
        return found[0]
    why = f"no browser: none of {', '.join(PROGRAMS)} is installed"
    if os.environ.get("MOPS_BROWSER") == "required":
        pytest.fail(f"{why}, and MOPS_BROWSER=required", pytrace=False)
    pytest.skip(why)


@contextmanager
def launch() -> Iterator[Browser]:
    program = find_program()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def visit(
    browser: Browser, file: Path, size: tuple[int, int] = DESK, *, is_dark: bool = False
) -> Iterator[Page]:
    """The file in a fresh window; at the end it must have asked for nothing else, and no error."""
    with open_window(browser, file.as_uri(), size, is_dark=is_dark) as (page, asked):
        yield page
    assert asked == [file.as_uri()]


@contextmanager
def open_window(
    browser: Browser, address: str, size: tuple[int, int] = DESK, *, is_dark: bool = False
) -> Iterator[tuple[Page, list[str]]]:
    """A fresh window, and all that it asks for; at the end there must have been no error."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        has_touch=width < 600,
        color_scheme="dark" if is_dark else "light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page = context.new_page()
    page.set_default_timeout(120_000)  # other programs may have the processor
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    page.on("console", lambda said: errors.append(said.text) if said.type != "log" else None)
    page.goto(address)
    yield page, asked
    context.close()
    assert errors == []
