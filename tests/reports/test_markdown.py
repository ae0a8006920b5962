"""The Markdown of a report, as a Markdown parser reads it."""

from __future__ import annotations

import html
import re

import pytest
from markdown_it import MarkdownIt
from survey_data import HOSTILE

from mops.reports.page import render_markdown
from mops.reports.report import make_report
from mops.reports.source import read_source
from mops.tables import Cell, Table, escape_markdown, markdown_table
from surveys import make_survey

SIGNS = (*HOSTILE, "# no heading", "~~not struck~~", "[a](b)", "![a](b)", "a \\\\| b", "__init__")


def shown(source: str) -> str:
    return (
        MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(source)
    )


def cells_in(page: str) -> list[str]:
    found = re.findall(r"<t[dh](?: [^>]*)?>(.*?)</t[dh]>", page, flags=re.DOTALL)
    assert not any("<" in cell for cell in found)  # nothing but text
    return [html.unescape(cell) for cell in found]


@pytest.mark.parametrize("text", SIGNS)
def test_a_cell_shows_the_text_itself(text: str) -> None:
    table = Table("t", "t", ("a", text), ((Cell(text), Cell("1", 1)),))
    assert cells_in(shown(markdown_table(table))) == [
        "a", " ".join(text.split()), " ".join(text.split()), "1",
    ]  # fmt: skip


@pytest.mark.parametrize("text", SIGNS)
def test_a_line_shows_the_text_itself(text: str) -> None:
    page = shown(escape_markdown(text))
    assert page.startswith("<p>") and page.count("<") == 2
    assert html.unescape(page[3:-5]) == " ".join(text.split())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = make_survey(tmp_path_factory.mktemp("page"), broken=[("separate", 2)])
    report = make_report(read_source(folder))
    assert render_markdown(report) == render_markdown(report)
    return render_markdown(report)


def test_the_page_has_everything(source: str) -> None:
    page = shown(source)
    assert '<img src="figures/scores.svg" alt="Scores of all candidates" />' in page
    assert re.search(r"<h1>.*</h1>\n<p>Use shared", page)
    headings = re.findall(r"<h[23]>(.*?)</h[23]>", page)
    for words in ("Plans", "Costs", "Trials without a result", "Errors: sentiment", "Data"):
        assert words in headings
    assert "separate, seed 2" in page


def test_texts_of_the_data_are_only_text(source: str) -> None:
    page = shown(source)
    assert set(re.findall(r"</?([a-z0-9]+)", page)) <= {
        "h1", "h2", "h3", "p", "img", "table", "thead", "tbody", "tr", "th", "td", "ul", "li",
    }  # fmt: skip
    cells = cells_in(page)
    for text in HOSTILE:
        assert any(cell.startswith(" ".join(text.split())) for cell in cells), text
