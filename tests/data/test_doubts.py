"""Leaks within and across tasks, and labels that look wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mops.config.recipe import to_recipe
from mops.data.dataset import Dataset, read_dataset

ENTRY = {"type": "classification", "text": "text", "label": "label"}
PAIR = {"type": "pair_classification", "text": ["one", "two"], "label": "label"}
MULTI = {"type": "multilabel", "text": ["one", "two"], "label": "label"}
VALUE = {"type": "similarity", "text": ["one", "two"], "label": "label", "range": [0, 5]}


def write(folder: Path, name: str, entry: dict[str, Any], rows: Sequence[Sequence[str]]) -> str:
    columns = [entry["text"]] if isinstance(entry["text"], str) else entry["text"]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(",".join(row) for row in [[*columns, "label"], *rows]) + "\n")
    return path.name


def dataset(folder: Path, **tasks: Any) -> Dataset:
    """task=(entry, training rows, validation rows)."""
    entries = {
        name: entry
        | {
            split: str(folder / write(folder, f"{name}-{split}", entry, rows))
            for split, rows in (("train", train), ("validation", validation))
        }
        for name, (entry, train, validation) in tasks.items()
    }
    return read_dataset(to_recipe({"tasks": entries}))


def texts(words: str, start: int = 0) -> list[list[str]]:
    return [[f"{word} text", str(n % 2)] for n, word in enumerate(words, start)]


def test_validation_that_is_train_is_told(tmp_path: Path) -> None:
    found = dataset(tmp_path, mood=(ENTRY, texts("abcd"), texts("abcd")))
    assert found.leaks == ("mood: 4 of 4 validation rows are also in train",)
    assert set(found.leaks) <= set(found.doubts) <= set(found.notes)


def test_another_task_that_trains_on_the_validation_rows_is_told(tmp_path: Path) -> None:
    found = dataset(
        tmp_path,
        mood=(ENTRY, texts("abcd"), texts("efgh")),
        topic=(ENTRY, texts("EFij"), texts("klmn")),  # spelt otherwise
    )
    told = "mood: of 4 validation rows, these are also in the training rows of other tasks: "
    assert found.leaks == (f"{told}2 of topic",)


def test_texts_of_pairs_are_texts_too(tmp_path: Path) -> None:
    pairs = [["a text", "b text", "0"], ["c text", "d text", "1"]]
    found = dataset(
        tmp_path,
        mood=(ENTRY, texts("ijkl"), texts("abxy")),
        same=(PAIR, pairs, [["i text", "j text", "1"], ["i text", "z text", "0"]]),
        other=(PAIR, [["a text", "c text", "1"], ["d text", "b text", "0"]], pairs[::-1]),
    )
    assert found.leaks == (
        "mood: of 4 validation rows, these are also in the training rows of other tasks: "
        "2 of same, 2 of other",
        # One of its texts alone is none, and neither are texts that only occur in other pairs.
        "same: of 2 validation rows, these are also in the training rows of other tasks: 1 of mood",
        "other: of 2 validation rows, these are also in the training rows of other tasks: "
        "2 of same",
    )


def test_tasks_on_the_same_rows_leak_nothing(tmp_path: Path) -> None:
    both = (ENTRY, texts("abcd"), texts("efgh"))
    assert dataset(tmp_path, mood=both, topic=both).leaks == ()
    leak = (ENTRY, texts("abcd"), texts("aefg"))
    told = [text.partition(":")[2] for text in dataset(tmp_path, mood=leak, topic=leak).leaks]
    assert told == [" 1 of 4 validation rows are also in train"] * 2


def labelled(labels: Sequence[object], start: int = 0) -> list[list[str]]:
    return [[f"x{n}", f"y{n}", str(label)] for n, label in enumerate(labels, start)]


@pytest.mark.parametrize(
    ("entry", "train", "validation", "told"),
    [
        (VALUE, [0, 1, 2, 5], [0.5, 3.25], "all training labels are whole numbers, and valid"),
        (VALUE, [0, 1, 1, 0], [1, 0], "all training labels are 0 or 1: if they are classes"),
        (
            PAIR,
            [0.5, 1.25, 3.0, 2],
            [0.5, 1.25, 2, 3],
            r"4 classes are numbers \(0.5, 1.25, 2, 3\)",
        ),
        (PAIR, range(25), range(25), r"its 25 classes are numbers \(0, 1, 2, 3, ...\)"),
        (VALUE, [0, 1, 2, 5], [3, 1], ""),
        (VALUE, [0, 1.5, 2, 5], [3, 1], ""),
        (PAIR, [0, 1, 1], [1, 0], ""),
        (PAIR, ["1.5 stars", "b", "b"], ["b", "1.5 stars"], ""),
        (PAIR, [*"abccd"], ["a", "b"], r"no validation row is 'c' \(2 in training\), 'd' \(1 in"),
        (PAIR, [*"abcdef"], ["a"], r"'b' \(1 in training\), .* and 2 more: the score says nothing"),
        (MULTI, ["a;b", "b;c", "c"], ["a;b", "b"], r"no validation row is 'c' \(2 in training\)"),
        (MULTI, ["a;b", "b;c", "c"], ["a;b", "c"], ""),
    ],
)
def test_labels_that_look_wrong(
    tmp_path: Path,
    entry: dict[str, Any],
    train: Sequence[object],
    validation: Sequence[object],
    told: str,
) -> None:
    rows = labelled(train), labelled(validation, 100)
    doubts = dataset(tmp_path, mine=(entry, *rows)).doubts
    assert len(doubts) == bool(told)
    assert all(re.search(told, doubt) for doubt in doubts)
