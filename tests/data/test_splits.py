"""Which side a row falls on follows from its text and the seed alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import THREE_TASKS
from mops.data.dataset import (
    HALVES,
    Dataset,
    Row,
    RowsRead,
    cut_halves,
    group_rows,
    normalised,
    split_rows,
)
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


# ------------------------------------------------------------------ halves of validation rows


@settings(deadline=None, max_examples=50)
@given(pairs=PAIRS)
def test_halves_never_share_a_sentence(pairs: list[tuple[str, str]]) -> None:
    """They differ by the largest group of rows at most."""
    rows = rows_of(*pairs)
    halves = cut_halves(rows)
    first, second = (
        tuple(row for row, half in zip(rows, halves, strict=True) if half == name)
        for name in HALVES
    )
    assert len(first) + len(second) == len(rows)
    assert not sentences(first) & sentences(second)
    largest = max(map(len, group_rows(rows).values()))
    assert abs(len(first) - len(second)) <= largest


@pytest.mark.parametrize("chained", [0, 1, 40, 90])
def test_halves_are_balanced_beside_a_chain_of_shared_sentences(chained: int) -> None:
    """As long as the chain is not the larger half by itself."""
    chain = [(f"link {n}", f"link {n + 1}") for n in range(chained)]
    free = [(f"left {n}", f"right {n}") for n in range(101)]
    halves = cut_halves(rows_of(*chain, *free))
    assert abs(halves.count("a") - halves.count("b")) <= 1
    assert len(set(halves[:chained])) <= 1


def test_halves_follow_the_texts_alone() -> None:
    """Neither the order nor the spelling, ids or labels of rows change them."""
    rows = singles(200)
    halves = {row.texts: half for row, half in zip(rows, cut_halves(rows), strict=True)}
    shuffled = random.Random(0).sample(rows, len(rows))
    assert cut_halves(shuffled) == [halves[row.texts] for row in shuffled]
    spelled = [replace(row, texts=(row.texts[0].upper() + "!",), id="x", label="1") for row in rows]
    assert cut_halves(spelled) == cut_halves(rows)
    pairs = [(f"one {n}", f"two {n}") for n in range(50)]
    assert cut_halves(rows_of(*pairs)) == cut_halves(rows_of(*(pair[::-1] for pair in pairs)))


def test_rows_that_are_also_in_train_are_noted() -> None:
    """Whatever their case, punctuation or order of texts; such scores are too good."""
    train, validation = rows_of(("A cat.", "a dog"), ("x", "y")), rows_of(("A dog!", "a CAT"))
    splits = {"train": RowsRead("t.csv", tuple(train)), "validation": RowsRead("v", (*validation,))}
    task = next(task for task in THREE_TASKS if task.is_pair)
    dataset = Dataset({"pairs": task}, {"pairs": splits}, {})
    assert dataset.notes == ("pairs: 1 of 1 validation rows are also in train",)
