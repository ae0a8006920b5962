"""The report in a browser: what a person clicks, types, hovers and taps; no request, no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import DESK, PHONE, SMALL, launch, visit
from pages import EVIL, hostile_report

from mops.reports.page import render_page
from mops.reports.report import write_report
from mops.reports.source import Source, read_source
from surveys import make_survey

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MAIN = "#plans table"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch() as found:
        yield found


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_survey(
        tmp_path_factory.mktemp("reports") / "small",
        warnings={"separate": ("the budget is small",)},
    )


@pytest.fixture(scope="module")
def source(survey: Path) -> Source:
    return read_source(survey)


@pytest.fixture(scope="module")
def file(survey: Path) -> Path:
    return write_report(survey)


@pytest.fixture
def desk(browser: Browser, file: Path) -> Iterator[Page]:
    with visit(browser, file) as page:
        yield page


@pytest.fixture
def phone(browser: Browser, file: Path) -> Iterator[Page]:
    with visit(browser, file, PHONE) as page:
        yield page


def names(page: Page) -> list[str]:
    """The plans that the main table shows, from top to bottom."""
    found: list[str] = page.locator(f"{MAIN} tbody tr:visible .plan").all_inner_texts()
    return found


def header(page: Page, title: str) -> Any:
    return page.locator(f"{MAIN} thead th", has=page.get_by_role("button", name=title, exact=True))


def background(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


# ------------------------------------------------------------------ the table


def test_sorted_by_click_and_by_key(desk: Page, source: Source) -> None:
    """By the summary's own means, largest first, then smallest first."""
    before = names(desk)
    assert before == [one.name for one in source.results.candidates]
    means = {one.name: one.overall.mean for one in source.results.candidates}
    header(desk, "overall").get_by_role("button").click()
    assert header(desk, "overall").get_attribute("aria-sort") == "descending"
    assert names(desk) == sorted(means, key=lambda name: -means[name]) == before
    desk.keyboard.press("Enter")
    assert header(desk, "overall").get_attribute("aria-sort") == "ascending"
    assert names(desk) == sorted(means, key=lambda name: means[name])
    header(desk, "candidate").get_by_role("button").focus()
    desk.keyboard.press("Space")
    assert names(desk) == sorted(means)


def test_a_candidate_without_a_number_stands_last(desk: Page, source: Source) -> None:
    """The baseline has no difference to itself, whichever way the column is sorted."""
    for _ in range(2):
        header(desk, "difference").get_by_role("button").click()
        assert names(desk)[-1] == source.results.baseline


def test_filtered_by_words_and_family(desk: Page) -> None:
    bar, everybody = desk.locator("#plans .filters"), names(desk)
    bar.get_by_role("searchbox").fill("HYBRID")
    assert names(desk) == ["hybrid:2"]
    assert bar.locator("output").inner_text() == f"1 of {len(everybody)}"
    bar.get_by_role("searchbox").fill("")
    assert names(desk) == everybody
    bar.get_by_label("Family").select_option("frozen+shared")
    assert names(desk) == ["frozen+shared"]


def test_a_warning_says_what_it_is(desk: Page) -> None:
    desk.locator(f"{MAIN} tr", has_text="separate").locator(".warnings .hint").hover()
    assert desk.locator("#tip").inner_text() == "the budget is small"
    desk.locator("h1").hover()
    assert desk.locator("#tip").is_hidden()


# ------------------------------------------------------------------ pictures and cards


def test_the_switch_shows_one_picture_at_a_time(desk: Page) -> None:
    group = desk.locator(".group").first
    labels = group.locator(".switch label")
    choices = labels.all_inner_texts()
    assert choices[:3] == ["parameters", "latency", "training time"]
    for label in labels.all():
        label.click()
        assert group.locator("figure:visible").count() == 1
    shown = group.locator("figure:visible h3").inner_text()
    group.get_by_role("radio").last.press("ArrowLeft")
    assert group.locator("figure:visible h3").inner_text() != shown


def test_hovering_a_plan_shows_its_card_and_lights_it_up(desk: Page, source: Source) -> None:
    place = [one.name for one in source.results.candidates].index("hybrid:2")
    desk.locator(MAIN).get_by_role("button", name="hybrid:2").hover()
    card = desk.get_by_role("dialog", name="hybrid:2")
    card.wait_for()
    assert (
        card.locator("svg").count() == 1 and "mops train" in card.locator("code").first.inner_text()
    )
    marks = desk.locator("figure:visible svg [data-candidate]")
    lit = desk.locator("figure:visible svg .lit")
    assert 0 < lit.count() < marks.count()
    assert {mark.get_attribute("data-candidate") for mark in lit.all()} == {str(place)}
    desk.locator("h1").hover()
    card.wait_for(state="hidden")
    assert lit.count() == 0


def test_hovering_a_mark_in_a_picture_shows_the_same_card(desk: Page, source: Source) -> None:
    mark = desk.locator("figure:visible svg [data-candidate='1']").first
    mark.dispatch_event("pointerover", {"pointerType": "mouse", "bubbles": True})
    desk.get_by_role("dialog", name=source.results.candidates[1].name).wait_for()
    assert desk.locator(f"{MAIN} tr.lit[data-candidate='1']").count() == 1


def test_by_keyboard_alone(desk: Page) -> None:
    """Focus shows the card, Enter goes into it, Escape goes back to where one was."""
    plan = desk.locator(MAIN).get_by_role("button", name="separate")
    desk.locator(MAIN).get_by_role("button", name="shared", exact=True).focus()
    desk.keyboard.press("Shift+Tab")
    plan.focus()
    desk.keyboard.press("Enter")
    card = desk.get_by_role("dialog", name="separate")
    card.wait_for()
    desk.keyboard.press("Tab")
    desk.keyboard.press("Tab")
    assert desk.evaluate("document.activeElement.textContent") == "Copy"
    desk.keyboard.press("Escape")
    assert card.is_hidden()
    assert desk.evaluate("document.activeElement.textContent") == "separate"


def test_tapped_on_a_phone_and_copied(phone: Page) -> None:
    phone.locator(MAIN).get_by_role("button", name="hybrid:2").tap()
    card = phone.get_by_role("dialog", name="hybrid:2")
    card.wait_for()
    box = card.bounding_box()
    assert box is not None and box["x"] == 0 and box["width"] == PHONE[0]
    card.get_by_role("button", name="Copy").tap()
    card.get_by_role("button", name="Copied").wait_for()
    command = card.locator(".command code").inner_text()
    assert phone.evaluate("navigator.clipboard.readText()") == command
    card.get_by_role("button", name="Close").tap()
    assert card.is_hidden()


# ------------------------------------------------------------------ errors


def test_errors_by_task_and_searched(desk: Page) -> None:
    errors = desk.locator("#errors")
    errors.get_by_text("similarity", exact=True).first.click()
    assert errors.locator("[data-panel]:visible h3").first.inner_text() == "similarity"
    shown = errors.locator(".example:visible")
    everything = shown.count()
    errors.get_by_label("Search").fill("naïve")
    assert 0 < shown.count() < everything
    assert all("naïve" in text for text in shown.all_inner_texts())
    assert errors.locator("output").inner_text() == f"{shown.count()} found"
    errors.get_by_label("Search").fill("")
    marks = set(errors.locator(".example:visible .mark").all_inner_texts())
    assert marks <= {"✓", "✗"} and "✗" in marks


# ------------------------------------------------------------------ how it looks


def test_light_and_dark(browser: Browser, file: Path) -> None:
    with visit(browser, file) as page:
        light = background(page)
        page.get_by_role("button", name="Dark").click()
        dark = background(page)
        page.get_by_role("button", name="Light", exact=True).click()
        assert background(page) == light != dark
    with visit(browser, file, is_dark=True) as page:
        assert background(page) == dark
        page.emulate_media(media="print")
        assert background(page) == light and page.locator(".tools:visible").count() == 0


@pytest.mark.parametrize("size", [SMALL, PHONE, (900, 700), DESK])
def test_no_page_is_wider_than_the_screen(
    browser: Browser, file: Path, size: tuple[int, int]
) -> None:
    """Wide tables move inside their own box."""
    with visit(browser, file, size) as page:
        for task in page.locator("#errors .switch label").all():
            task.click()
        page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true })")
        wide, room = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= room == size[0]
        assert page.locator(".contents").is_visible() == (size[0] >= 1280)


# ------------------------------------------------------------------ hostile data


def test_scripts_in_the_data_do_nothing(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(render_page(hostile_report()), "utf-8")
    with visit(browser, file) as page:
        assert page.locator("h1").inner_text().startswith(f"Use one {EVIL}")
        page.locator(f"{MAIN} .plan").first.hover()
        page.locator("#card").wait_for()
        page.locator(f"{MAIN} .hint").first.hover()
        page.locator(f"{MAIN} thead button").last.click()
        page.locator("#errors").get_by_label("Search").fill("<script>")
        assert page.evaluate("window.taken") is None
        assert page.locator("script").count() == 1 and page.locator("img").count() == 0


def test_a_script_that_came_into_a_picture_is_not_run(browser: Browser, tmp_path: Path) -> None:
    """The policy is a second wall: pictures are our own and are not escaped."""
    text = render_page(hostile_report()).replace("</svg>", "<script>window.taken=1</script></svg>")
    file = tmp_path / "broken.html"
    file.write_text(text, "utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    assert page.evaluate("window.taken") is None and page.locator("svg script").count() > 0
    page.close()
