"""Which side a row falls on follows from its text and the seed alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mops.data.examples import Row, half, normalised, split_rows
from mops.errors import DataError

WORDS = st.text("abcdef", min_size=1, max_size=3)
PAIRS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=60)


def rows_of(*texts: tuple[str, ...]) -> list[Row]:
    return [Row(str(n), each, None, f"a.csv:{n}") for n, each in enumerate(texts)]


def singles(count: int) -> list[Row]:
    return rows_of(*((f"sentence number {number}",) for number in range(count)))


def sentences(rows: tuple[Row, ...]) -> set[str]:
    return {normalised(text) for row in rows for text in row.texts}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Hello,   WORLD!", "hello world"),
        ("\uff28ello world", "hello world"),
        ("Stra\u00dfe", "strasse"),
        ("snake_case", "snake case"),
        (" :-) ", ":-)"),
    ],
)
def test_normalised_text_ignores_case_signs_and_width(text: str, same: str) -> None:
    assert normalised(text) == same


@settings(deadline=None, max_examples=25)
@given(pairs=PAIRS, seed=st.integers(), share=st.floats(0.05, 0.95))
def test_split_never_shares_a_sentence_and_loses_no_row(
    pairs: list[tuple[str, str]], seed: int, share: float
) -> None:
    """Train and validation are a partition of the rows, with no sentence in both."""
    rows = rows_of(*pairs)
    try:
        train, validation = split_rows(rows, share, seed)
    except DataError as error:
        assert "one side would be empty" in str(error)
        return
    assert not sentences(train) & sentences(validation)
    assert sorted((*train, *validation), key=lambda row: int(row.id)) == rows
    assert train and validation
    assert all(list(side) == [row for row in rows if row in side] for side in (train, validation))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_share_is_reached_exactly_where_all_texts_differ(share: float) -> None:
    assert len(split_rows(singles(1000), share, 1)[1]) == 1000 * share


def test_split_depends_on_the_seed_and_not_on_the_order_of_rows() -> None:
    rows = singles(200)
    shuffled = random.Random(0).sample(rows, len(rows))
    chosen = {row.id for row in split_rows(rows, 0.2, 7)[1]}
    assert {row.id for row in split_rows(shuffled, 0.2, 7)[1]} == chosen
    assert {row.id for row in split_rows(rows, 0.2, 8)[1]} != chosen


def test_chain_of_shared_sentences_does_not_drown_the_split() -> None:
    """Ninety pairs linked one to the next are passed over, whatever the seed draws first."""
    chain = [(f"link {n}", f"link {n + 1}") for n in range(90)]
    free = [(f"left {n}", f"right {n}") for n in range(30)]
    for seed in range(20):
        _, validation = split_rows(rows_of(*chain, *free), 0.1, seed)
        assert len(validation) == 12


def test_rows_without_text_are_no_group() -> None:
    rows = rows_of(("", ""), ("", "a"), ("", "b"), ("", ""))
    assert [len(side) for side in split_rows(rows, 0.5, 3)] == [2, 2]


@pytest.mark.parametrize("texts", [[], [("a",)], [("a", "b"), ("b", "c"), ("C!", "d")]])
def test_split_with_an_empty_side_is_refused(texts: list[tuple[str, ...]]) -> None:
    with pytest.raises(DataError, match="one side would be empty"):
        split_rows(rows_of(*texts), 0.4, 1)


def test_halves_are_about_equal_and_follow_the_text_alone() -> None:
    found = [half(row) for row in singles(2000)]
    assert 900 < found.count("selection") < 1100
    assert set(found) == {"selection", "report"}
    one, same, swapped = rows_of(("One two", "three"), ("one, TWO", "Three."), ("three", "one two"))
    assert half(one) == half(same) == half(swapped)
