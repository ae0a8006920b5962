"""Cached token tables equal new ones, and their key depends on everything they follow from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import tiny_tokenizer
from mops.data import batches as batches_module
from mops.data.batches import cache_key, tokenise, tokenise_cached
from mops.plans.shapes import Reading

ROWS = [(f"ban den {'fit ' * (n % 9)}", f"gut {n}") for n in range(60)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("MOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(batches_module, "WORTH_KEEPING", 50)
    return tmp_path / "cache"


@pytest.mark.parametrize("pair", ["bi", "cross"])
def test_cached_tables_equal_new_ones(pair: str, folder: Path, monkeypatch: Any) -> None:
    reading = Reading(pair=pair, max_length=8)
    expected = tokenise(tiny_tokenizer(), ROWS, reading)
    assert expected.cut > 0
    first = tokenise_cached(tiny_tokenizer(), ROWS, reading)
    monkeypatch.setattr(batches_module, "tokenise", None)  # must not be called again
    again = tokenise_cached(tiny_tokenizer(), ROWS, reading)
    for found in (first, again):
        assert (found.per_row, found.cut) == (expected.per_row, expected.cut)
        for name in ("ids", "types", "starts"):
            assert np.array_equal(getattr(found, name), getattr(expected, name))
            assert getattr(found, name).dtype == getattr(expected, name).dtype


def test_few_rows_and_a_store_that_is_off(folder: Path, monkeypatch: Any) -> None:
    tokenise_cached(tiny_tokenizer(), ROWS[:49], Reading())
    monkeypatch.setenv("MOPS_CACHE", "off")
    tokenise_cached(tiny_tokenizer(), ROWS, Reading())
    assert not folder.exists()


def test_the_key_follows_from_everything() -> None:
    other = tiny_tokenizer()
    other.add_tokens(["gutter"])
    cut = tiny_tokenizer()
    cut.enable_truncation(4)
    plain = cache_key(tiny_tokenizer(), ROWS, Reading())
    assert cache_key(cut, ROWS, Reading()) == plain
    assert cache_key(tiny_tokenizer(), list(ROWS), Reading(pool="cls")) == plain
    different = [
        cache_key(other, ROWS, Reading()),
        cache_key(tiny_tokenizer(), ROWS[1:], Reading()),
        cache_key(tiny_tokenizer(), ROWS, Reading(max_length=9)),
        cache_key(tiny_tokenizer(), ROWS, Reading(pair="bi")),
        cache_key(tiny_tokenizer(), [("ab", "c")], Reading()),
        cache_key(tiny_tokenizer(), [("a", "bc")], Reading()),
    ]
    assert len({plain, *different}) == 1 + len(different)


def test_the_key_depends_on_row_boundaries() -> None:
    """Two pairs and four single texts have the same texts in the same order."""
    pairs, singles = [("a", "b"), ("c", "d")], [("a",), ("b",), ("c",), ("d",)]
    keys = {cache_key(tiny_tokenizer(), rows, Reading()) for rows in (pairs, singles)}
    assert len(keys) == 2
