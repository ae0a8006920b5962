"""Which side a row falls on follows from its text and the seed alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import THREE_TASKS
from mops.config.training import TaskEntry
from mops.data.dataset import Dataset, RowsRead, split_off
from mops.data.splits import (
    COMMON_ROWS,
    HALVES,
    Row,
    cut_halves,
    divide_rows,
    group_rows,
    merge_tasks,
    normalised,
)
from mops.errors import DataError

WORDS = st.text("abcdef", min_size=1, max_size=3)
PAIRS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=60)


def rows_of(*texts: tuple[str, ...]) -> list[Row]:
    return [Row(str(n), each, None, f"a.csv:{n}") for n, each in enumerate(texts)]


def singles(count: int) -> list[Row]:
    return rows_of(*((f"sentence number {number}",) for number in range(count)))


def sentences(rows: tuple[Row, ...], known: list[Row]) -> set[str]:
    """Those that are not so frequent that they link no rows."""
    counts = Counter(text for row in known for text in {normalised(own) for own in row.texts})
    own = {normalised(text) for row in rows for text in row.texts}
    return {text for text in own if counts[text] <= COMMON_ROWS}


def split_rows(
    rows: Sequence[Row], share: float, seed: int
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    parts = divide_rows(rows, (1 - share, share), seed)
    first, second = (
        tuple(row for row, own in zip(rows, parts, strict=True) if own == part) for part in (0, 1)
    )
    return first, second


def labelled(*labels: object) -> list[Row]:
    rows = singles(len(labels))
    return [replace(row, label=label) for row, label in zip(rows, labels, strict=True)]


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
    train, validation = split_rows(rows, share, seed)
    assert not sentences(train, rows) & sentences(validation, rows)
    assert sorted((*train, *validation), key=lambda row: int(row.id)) == rows
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
    rows = rows_of(*texts)
    entry = TaskEntry(type="classification", text="text", label="label", split=0.4)
    with pytest.raises(DataError, match="one side would be empty"):
        split_off(entry, RowsRead("a.csv", tuple(rows)), rows)


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.2,) * 5, (0.5, 0.5)])
def test_every_part_has_its_share_of_every_label(shares: tuple[float, ...]) -> None:
    """To one row, also of a class with few rows; values are even in their fifths."""
    draw = random.Random(3)
    classes = ["rare"] * 10 + ["some"] * 50 + ["most"] * 140
    values = [draw.random() ** 3 for _ in range(200)]
    for labels in (classes, values):
        draw.shuffle(labels)
        parts = divide_rows(labelled(*labels), shares, 1)
        bins = labels if labels is classes else np.digitize(labels, np.quantile(values, [0.2, 0.8]))
        for label, count in Counter(bins).items():
            own = Counter(part for part, other in zip(parts, bins, strict=True) if other == label)
            assert all(abs(own[n] - share * count) <= 1 for n, share in enumerate(shares))


def test_parts_share_the_labels_of_several_tasks() -> None:
    """Rows with a class, labels and none at all, beside a chain of shared sentences."""
    draw = random.Random(4)
    colours = [draw.choice(["red", "blue", None]) for _ in range(400)]
    moods = [tuple(sorted(draw.sample("xyz", draw.randint(0, 2)))) for _ in range(400)]
    rows = merge_tasks({"colour": labelled(*colours), "mood": labelled(*moods)})
    chain = [(f"link {n}", f"link {n + 1}") for n in range(150)]
    chained = [replace(row, where=f"b.csv:{row.id}") for row in rows_of(*chain)]
    parts = np.array(divide_rows([*rows, *chained], (0.2,) * 5, 1))
    assert len(set(parts[400:])) == 1 and min(np.bincount(parts)) >= 0.15 * 550
    others = [part for part in range(5) if part != parts[-1]]
    for label in ("colour red", "colour blue", "mood x", "mood y", "mood z"):
        has = np.array([label in row.label for row in rows])
        own = np.bincount(parts[:400][has], minlength=5)[others]
        assert own.max() - own.min() <= 6


def test_a_stock_text_links_no_pairs() -> None:
    """Ten replies to 300 questions: without this all rows would be one group."""
    rows = rows_of(*((f"question {n}", f"reply {n % 10}") for n in range(300)))
    assert len(group_rows(rows)) == 300
    rare = rows_of(*((f"question {n}", f"reply {n % 100}") for n in range(300)))
    assert len(group_rows(rare)) == 100
    assert len(group_rows(rows_of(*[("thanks", "bye")] * 100))) == 1


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
    assert not sentences(first, rows) & sentences(second, rows)
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
