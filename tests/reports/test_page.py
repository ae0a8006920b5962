"""The page as text: complete in itself, every text escaped, same contents same bytes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from pages import EVIL, hostile_report

from mops.reports.page import (
    read_asset,
    render_page,
    sort_key,
    split_number,
)
from mops.tables import Cell, Table


class Reader(HTMLParser):
    """What a browser would see: elements with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.said: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.said).append(data)


@pytest.fixture(scope="module")
def text() -> str:
    return render_page(hostile_report())


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    return Reader(text)


def test_hostile_texts_are_texts(read: Reader) -> None:
    """They are there, whole, as text; no element or attribute came out of them."""
    tags = Counter(tag for tag, _ in read.found)
    assert tags["script"] == 1 and tags["img"] == 0 and tags["title"] == 1
    assert not [name for _, attrs in read.found for name in attrs if name.startswith("on")]
    said = "".join(read.said)
    places = (
        "survey one two title caption size time cell word column number note task first second "
        "label answer other section line claim why source differs plan says recipe command fact "
        "value warning"
    )
    lost = [place for place in places.split() if f"{place} {EVIL}" not in said]
    assert lost == []


def test_the_policy_lets_only_its_own_script_run(read: Reader) -> None:
    (policy,) = [
        attrs["content"]
        for tag, attrs in read.found
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    (script,) = read.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "http" not in policy


def test_nothing_is_fetched(read: Reader) -> None:
    loading = ("src", "srcset", "data", "poster", "action", "background")
    assert not [attrs for _, attrs in read.found if any(name in attrs for name in loading)]
    links = [attrs["href"] for _, attrs in read.found if "href" in attrs]
    assert links and all(link.startswith("#") for link in links)
    assert not [tag for tag, _ in read.found if tag in ("link", "iframe", "object", "embed")]


def test_style_and_script_close_nothing() -> None:
    """They stand in the page as they are, so they must not end their own elements."""
    for name in ("style.css", "script.js"):
        assert not re.search(r"</|<!--|@import|url\(", read_asset(name)), name


def test_ids_are_unique_and_links_lead_somewhere(read: Reader) -> None:
    ids = Counter(attrs["id"] for _, attrs in read.found if "id" in attrs)
    assert [name for name, count in ids.items() if count > 1] == []
    links = {attrs["href"][1:] for tag, attrs in read.found if tag == "a"}
    assert links <= set(ids)


def test_same_contents_same_bytes(text: str) -> None:
    assert render_page(hostile_report()) == text


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        ("0.550 ± 0.030", ("0.550", "± 0.030", "")),
        ("0.550 ± 0.030 (−0.012*)", ("0.550", "± 0.030", "(−0.012*)")),
        ("+0.053 [+0.011, +0.094]*", ("+0.053", "", "[+0.011, +0.094]*")),
        ("22.57 M", ("22.57 M", "", "")),
        ("", ("", "", "")),
    ],
)
def test_a_number_is_split_from_its_error(words: str, pieces: tuple[str, ...]) -> None:
    assert tuple(split_number(Cell(words, 1.0))) == pieces
    assert tuple(split_number(Cell(words))) == (words, "", "")  # texts stay whole


def test_sort_keys() -> None:
    """Numbers by their value, words by themselves; unknown values have no key and come last."""
    rows = (
        (Cell("x"), Cell("1 M", 1e6), Cell("3", 3)),
        (Cell("y"), Cell("", None), Cell("nan", float("nan"))),
    )
    table = Table("t", "T", ("name", "size", "count"), rows)
    assert table.column_kinds() == ["word", "number", "number"]
    assert [[sort_key(cell) for cell in row] for row in rows] == [
        ["x", "1000000.0", "3.0"],
        ["y", "", ""],
    ]
