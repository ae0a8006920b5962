"""The pages in a browser: what a person types, drops and watches; no other request, no error."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import DESK, PHONE, launch, open_window

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from serving import RunningSurvey, served

from building import build_network, tiny_tokenizer
from mops.kinds.answers import TAGS
from mops.kinds.tags import WordTags
from mops.plans.shapes import Reading
from mops.predict.bundle import Bundle, Predictor
from mops.serve.app import Limits, Service, build_app
from mops.serve.survey import SurveyService, build_survey_app
from mops.tables import without_formula
from mops.tasks import Task

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
TEXTS = ("a ban, the bin", "bully. the den?")
ROWS = [
    ("bat the fin", "a fin, bat"),
    ('"go" said the dog', "a\nline"),
    ("naïve, ☃", ""),
    *((f"the ban {n} bin", f"do {n} re") for n in range(130)),
]
SLOW = 120_000  # milliseconds; other programs may have the processor
AXE = os.environ.get("MOPS_AXE", "")  # where axe.min.js lies: `npm install axe-core`


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch() as found:
        yield found


@pytest.fixture(scope="module")
def predictor(encoder_folder: Any) -> Predictor:
    folder = encoder_folder("bert")
    network = build_network("hybrid:2", folder, reading=Reading(max_length=24))
    return Predictor(Bundle(folder, network, tiny_tokenizer(), {}, {}))


@pytest.fixture(scope="module")
def model(predictor: Predictor) -> Iterator[str]:
    with served(build_app(Service(predictor, Limits()))) as address:
        yield address


@contextmanager
def visit(
    browser: Browser, address: str, size: tuple[int, int] = DESK, *, is_dark: bool = False
) -> Iterator[Page]:
    """The page in a fresh window; at the end it must have asked this server alone."""
    with open_window(browser, address, size, is_dark=is_dark) as (page, asked):
        page.set_default_timeout(SLOW)
        yield page
    others = [url for url in asked if not url.startswith((address, f"blob:{address}", "data:"))]
    assert others == []


def answer(page: Page, first: str, second: str = "") -> None:
    page.get_by_role("textbox", name="Text", exact=True).fill(first)
    page.get_by_role("textbox", name="Second text").fill(second)
    page.locator("#timing").evaluate("element => { element.textContent = '' }")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.get_by_text("ms in the server").wait_for()


def passed(page: Page) -> set[str]:
    """The users of the copies that the picture shows as passed."""
    boxes = page.locator("#picture .passed").all()
    return {box.get_attribute("data-for") or "" for box in boxes}


def has_room(page: Page) -> bool:
    wide: bool = page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return wide


# ------------------------------------------------------------------ the model


def test_two_sentences_are_answered_by_all_tasks(
    browser: Browser, model: str, predictor: Predictor
) -> None:
    with visit(browser, model) as page:
        answer(page, *TEXTS)
        cards = page.locator(".cards > div")
        assert cards.locator("h3").all_inner_texts() == list(predictor.tasks)
        sentiment, paraphrase = (
            predictor.predict_tasks({task: [texts]})[task]
            for task, texts in (("sentiment", TEXTS[:1]), ("paraphrase", TEXTS))
        )
        for place, found in enumerate((sentiment, paraphrase)):
            shares = cards.nth(place).locator(".bars span:last-child").all_inner_texts()
            assert shares == [f"{100 * share:.1f} %" for share in found.probabilities[0]]
            assert cards.nth(place).locator(".value").inner_text() == found.as_strings()[0]
        (value,) = predictor.predict("similarity", [TEXTS])
        dial = cards.nth(2).get_by_role("img", name=f"{float(value):.2f} on a scale from 0 to 5")
        assert dial.is_visible()
        assert "similarity" in page.locator("#spoken").inner_text()


KINDS = [
    Task(name="price", type="regression", text=("text",), label="y", scale=(550.0, 80.0)),
    Task(name="moods", type="multilabel", text=("text",), label="y", labels=("a", "e")),
    Task(
        name="spans", type="tagging", text=("text",), label="y",
        labels=("B-LOC", "B-PER", "I-LOC", "I-PER", "O"),
    ),
    Task(name="words", type="tagging", text=("text",), label="y", labels=("N", "O", "V")),
]  # fmt: skip


def predictor_of(folder: Path, tasks: list[Task]) -> Predictor:
    network = build_network("shared", folder, reading=Reading(max_length=24), tasks=tasks)
    return Predictor(Bundle(folder, network, tiny_tokenizer(), {}, {}))


def test_a_number_labels_and_tags_are_shown(browser: Browser, encoder_folder: Any) -> None:
    """A value without a range has no dial but the mean of the training labels."""
    own, text = predictor_of(encoder_folder("bert"), KINDS), "a ban, the bin"
    with served(build_app(Service(own, Limits()))) as address, visit(browser, address) as page:
        answer(page, text)
        cards = page.locator(".cards > div")
        (value,) = own.predict("price", [text])
        assert cards.nth(0).locator(".value").inner_text() == f"{float(value):.1f}"
        assert "training labels are 550.0 ± 80.0" in cards.nth(0).inner_text()
        (labels,) = own.predict("moods", [text])
        assert cards.nth(1).locator(".value").inner_text() == (", ".join(labels) or "none")
        (tags,) = own.predict("words", [text])
        marked = cards.nth(3).locator("mark small").all_inner_texts()
        assert marked == [tag for tag in tags if tag != "O"]


@pytest.mark.parametrize(
    "tags",
    [
        "B-PER I-PER O B-LOC B-LOC I-LOC",
        "I-PER I-LOC O O I-LOC B-LOC",
        "O O O O O O",
        "B-LOC I-LOC I-LOC I-LOC I-LOC I-PER",
    ],
)
def test_entities_are_marked_as_in_the_report(
    browser: Browser, encoder_folder: Any, tags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One mark for an entity of several words, with its kind in words and its colour."""
    own, text = predictor_of(encoder_folder("bert"), [KINDS[2]]), "ban bat bet bin bit don"
    label = tags.split()
    monkeypatch.setattr(WordTags, "decode", lambda *_: [label])
    wanted = [piece for piece in TAGS.show(KINDS[2], tuple(label), [text]) if piece.kind]
    with served(build_app(Service(own, Limits()))) as address, visit(browser, address) as page:
        answer(page, text)
        marks = page.locator(".tagged mark")
        found = [(m.inner_text(), m.get_attribute("class")) for m in marks.all()]
        assert found == [(f"{own.text} {own.kind}", f"entity-{own.colour}") for own in wanted]
        assert page.locator(".tagged").inner_text().split() == [
            word
            for piece in TAGS.show(KINDS[2], tuple(label), [text])
            for word in (*piece.text.split(), *([piece.kind] if piece.kind else []))
        ]
        spoken = ", ".join(f"{own.text} ({own.kind})" for own in wanted) or "no tag"
        assert page.locator("#spoken").inner_text() == f"spans: {spoken}"


def test_warnings_of_a_text_are_shown(browser: Browser, model: str) -> None:
    with visit(browser, model) as page:
        answer(page, "a " * 30)
        said = "longer than 24 tokens, the rest is not read: sentiment"
        assert page.locator("#warnings").inner_text() == said
        answer(page, TEXTS[0])
        assert page.locator("#warnings").inner_text() == ""


def test_the_picture_shows_the_path_of_an_answer(browser: Browser, model: str) -> None:
    """hybrid:2: embeddings and two layers are everybody's, what is above is a task's own."""
    everybody = "sentiment paraphrase similarity"
    with visit(browser, model) as page:
        answer(page, *TEXTS)
        assert passed(page) == {everybody, *everybody.split()}
        page.locator("#paths").get_by_text("paraphrase").click()
        assert passed(page) == {everybody, "paraphrase"}
        lines = page.locator("#shared li").all_inner_texts()
        assert lines == [
            "emb to 1: paraphrase shares with sentiment, similarity",
            "2 to head: paraphrase alone",
        ]
        answer(page, TEXTS[0])
        assert passed(page) == {everybody, "sentiment"}


def test_by_keyboard_alone(browser: Browser, model: str) -> None:
    with visit(browser, model) as page:
        page.locator("#picture svg").wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the answers"
        page.keyboard.press("Tab")
        page.keyboard.type(TEXTS[0])
        page.keyboard.press("Tab")
        page.keyboard.type(TEXTS[1])
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator(".cards h3").nth(2).wait_for()
        page.get_by_role("radio", name="all answers").focus()
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("radio", name="sentiment").is_checked()


def test_a_dropped_file_gives_the_answers_of_the_predictor(
    browser: Browser, model: str, predictor: Predictor, tmp_path: Path
) -> None:
    """More rows than a request has; quotes, line breaks and an empty cell."""
    given = tmp_path / "rows.csv"
    with given.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2"), *ROWS])
    with visit(browser, model) as page:
        page.locator("#picture svg").wait_for()
        drop(page, given)
        assert page.locator("#status").inner_text() == f"rows.csv: {len(ROWS)} rows"
        assert page.locator("#file").evaluate("input => input.files[0].name") == "rows.csv"
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Answer all rows").click()
            page.get_by_role("link", name="Download predictions.csv").click(timeout=SLOW)
        assert page.locator("#status").inner_text().startswith(f"{len(ROWS)} of {len(ROWS)} rows")
        assert page.locator("#progress").evaluate("bar => bar.value") == 1
        waiting.value.save_as(tmp_path / "found.csv")
    with (tmp_path / "found.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["sentence1"], row["sentence2"]) for row in rows] == ROWS
    assert [row["predicted sentiment"] for row in rows] == predictor.predict(
        "sentiment", [first for first, _ in ROWS]
    )
    pairs = [n for n, row in enumerate(ROWS) if row[1]]
    for task in ("paraphrase", "similarity"):
        found = [rows[n][f"predicted {task}"] for n in pairs]
        expected = predictor.predict(task, [ROWS[n] for n in pairs])
        assert list(map(float, found)) == list(map(float, expected))
    assert "error" not in rows[0]


def test_a_server_that_takes_few_items_at_a_time(
    browser: Browser, predictor: Predictor, tmp_path: Path
) -> None:
    given = tmp_path / "rows.csv"
    given.write_text("text\n" + "the ban\n" * 70 + "the bans\n", "utf-8")
    limits = Limits(max_items=30, max_characters=7)
    with served(build_app(Service(predictor, limits))) as address:
        page = browser.new_page()
        page.set_default_timeout(SLOW)
        page.goto(address)
        page.locator("#picture svg").wait_for()
        drop(page, given)
        page.get_by_role("button", name="Answer all rows").click()
        page.get_by_text("71 of 71 rows answered in").wait_for()
        assert "s; 1 with an error" in page.locator("#status").inner_text()
        assert page.locator("#preview thead th").all_inner_texts()[-1] == "error"
        page.close()


def download(page: Page, given: Path, into: Path) -> list[dict[str, str]]:
    """The rows of the file that the page gives back for one that is dropped on it."""
    page.locator("#picture svg").wait_for()
    drop(page, given)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Answer all rows").click()
        page.get_by_role("link", name="Download predictions.csv").click(timeout=SLOW)
    waiting.value.save_as(into)
    with into.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_of_a_file_is_found(
    browser: Browser, model: str, separator: str, tmp_path: Path
) -> None:
    """The other signs are in the cells, and in a quoted name of the header."""
    rows = [("1", "the ban, a bin; a fin | a bat"), ("2", "a\tden"), ("3", 'the "gun"')]
    head = ("n,,,,;;;;||||\t\t\t\t", "text")
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows([head, *rows])
    with visit(browser, model) as page:
        found = download(page, tmp_path / "rows.csv", tmp_path / "found.csv")
    assert [(row[head[0]], row["text"]) for row in found] == rows


def test_a_file_of_one_column_has_no_separator(
    browser: Browser, model: str, predictor: Predictor, tmp_path: Path
) -> None:
    texts = ["the ban, a bin", "a fin; a bat"]
    (tmp_path / "rows.csv").write_text("\n".join(["text", *texts]), "utf-8")
    with visit(browser, model) as page:
        found = download(page, tmp_path / "rows.csv", tmp_path / "found.csv")
    assert [row["text"] for row in found] == texts
    assert [row["predicted sentiment"] for row in found] == predictor.predict("sentiment", texts)


def test_no_cell_of_the_download_is_a_formula(browser: Browser, model: str, tmp_path: Path) -> None:
    """By the rule of `mops predict`: `'` before what begins like one and is no number."""
    cells = (
        """=1+1|+x|-x|@x|'=x|''-1|'a|-1|+1.5|-.5|-1e5|-1_000|-1__0|-inf|-nan|+1,5|-1.|1|＝x|-x1"""
    )
    cells = [*cells.split("|"), "-", "+", "\tx", "\t1", "-e5", "+Infinity", "-1.5e+3", "a=1", ""]
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("=name", "text"), *((cell, "a ban") for cell in cells)])
    with visit(browser, model) as page:
        found = download(page, tmp_path / "rows.csv", tmp_path / "found.csv")
    assert [row["'=name"] for row in found] == list(map(without_formula, cells))


def test_warnings_of_rows_are_in_the_download(browser: Browser, model: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"text,n\na ban,1\n,2\n{'a ' * 30},3\n", "utf-8")
    with visit(browser, model) as page:
        found = download(page, tmp_path / "rows.csv", tmp_path / "found.csv")
        assert "; 2 with warnings, see the file" in page.locator("#status").inner_text()
    cut = "longer than 24 tokens, the rest is not read: sentiment"
    assert [row["warnings"] for row in found] == ["", "text is empty", cut]


def drop(page: Page, file: Path) -> None:
    """What the browser tells a page on which a file is dropped."""
    data = page.evaluate_handle(
        """([name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name, { type: "text/csv" }));
            return data;
        }""",
        [file.name, file.read_bytes().decode()],
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": data})
    page.get_by_text(f"{file.name}:").wait_for()


def test_a_key_is_asked_for_where_the_server_wants_one(
    browser: Browser, predictor: Predictor
) -> None:
    with served(build_app(Service(predictor, Limits(), api_key="cheese"))) as address:
        page = browser.new_page()
        page.set_default_timeout(SLOW)
        page.goto(address)
        page.get_by_label("API key").fill("cheese")
        answer(page, *TEXTS)
        assert page.locator(".cards h3").count() == 3
        assert "cheese" not in page.url
        page.close()


# ------------------------------------------------------------------ a survey


@pytest.fixture
def running(tmp_path: Path) -> RunningSurvey:
    return RunningSurvey(tmp_path)


def test_a_running_survey_advances_before_the_eyes(
    browser: Browser, running: RunningSurvey
) -> None:
    first, last = running.trials[-2:]
    running.take_away(first, last)
    app = build_survey_app(SurveyService(running.folder))
    with served(app) as address, visit(browser, address) as page:
        page.get_by_text("4 finished, 2 waiting").wait_for()
        page.get_by_text("No training is running at the moment").wait_for()
        with running.ledger.claim([first.id]):
            running.write_curve(first, count=2)
            page.get_by_text("step 4 of 8").wait_for()
            assert page.locator("#now").get_by_text(f"{first.candidate.name}, seed").is_visible()
            assert page.locator("#left").inner_text().startswith("About")
            before = page.locator("#curves .line").count()
            assert page.get_by_role("img", name=f"seed {first.seed}: running").count() == 1
        running.bring_back(first)
        page.get_by_text("5 finished, 1 waiting").wait_for()
        assert page.locator("#curves .line").count() == before
        running.bring_back(last)
        page.get_by_text("6 trainings: 6 finished").wait_for()
        page.get_by_text("The survey is finished.").wait_for()
        assert page.locator("#curves .line").count() == before + 1 == 6
        assert page.locator("#candidates .near").all_inner_texts() != [""] * 3


def test_the_curves_of_one_candidate(browser: Browser, running: RunningSurvey) -> None:
    """By keyboard; the focus stays where it is when the table is shown again."""
    app = build_survey_app(SurveyService(running.folder))
    with served(app) as address, visit(browser, address) as page:
        page.get_by_text("The survey is finished.").wait_for()
        name = page.locator("#candidates").get_by_role("button", name="separate")
        name.focus()
        page.keyboard.press("Enter")
        assert name.get_attribute("aria-pressed") == "true"
        assert page.locator("#curves .line:not(.dim)").count() == 2
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(500)
        assert page.evaluate("document.activeElement.textContent") == "separate"


# ------------------------------------------------------------------ how they look


@pytest.fixture(params=["model", "survey"])
def address(request: pytest.FixtureRequest, running: RunningSurvey) -> Iterator[str]:
    if request.param == "model":
        yield request.getfixturevalue("model")
        return
    running.take_away(running.trials[-1])
    running.write_curve(running.trials[-1], count=2)
    with (
        running.ledger.claim([running.trials[-1].id]),
        served(build_survey_app(SurveyService(running.folder))) as found,
    ):
        yield found


def fill(page: Page, tmp_path: Path) -> None:
    """Everything that the page can show."""
    if page.locator("#ask").count():
        answer(page, *TEXTS)
        given = tmp_path / "few.csv"
        given.write_text(f"text,{'x' * 60}\nthe ban,{'y' * 80}\n", "utf-8")
        drop(page, given)
        page.get_by_role("button", name="Answer all rows").click()
        page.locator("#preview td").first.wait_for()
    else:
        page.locator("#now li").wait_for()
        page.locator("#candidates .track").first.wait_for()


@pytest.mark.parametrize("size", [(360, 640), PHONE, (900, 700), DESK])
def test_no_page_is_wider_than_the_screen(
    browser: Browser, address: str, size: tuple[int, int], tmp_path: Path
) -> None:
    with visit(browser, address, size) as page:
        fill(page, tmp_path)
        assert has_room(page)


def test_light_and_dark(browser: Browser, address: str) -> None:
    colours = []
    for is_dark in (False, True):
        with visit(browser, address, is_dark=is_dark) as page:
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, colour[4:-1].split(","))) for colour in colours)
    assert light > 600 > 150 > dark


@pytest.mark.skipif(not AXE, reason="no axe-core: MOPS_AXE names no axe.min.js")
@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("size", [PHONE, DESK])
def test_no_problem_of_accessibility(
    browser: Browser, address: str, size: tuple[int, int], is_dark: bool, tmp_path: Path
) -> None:
    with visit(browser, address, size, is_dark=is_dark) as page:
        fill(page, tmp_path)
        page.evaluate(Path(AXE).read_text("utf-8"))
        found = page.evaluate("axe.run()")
    problems = [
        (one["id"], one["impact"], [node["html"] for node in one["nodes"]])
        for one in found["violations"]
    ]
    assert len(found["passes"]) > 15
    assert problems == [], json.dumps(problems, indent=1)
