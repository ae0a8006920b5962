"""Facts about the data that a user should know before training."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from mops.data.checks import examine
from mops.data.dataset import RowsRead
from mops.data.splits import Row
from mops.tasks import Task

SENTIMENT = Task(
    name="sentiment", type="classification", text=("text",), label="y", labels=("0", "1", "2")
)
SIMILARITY = Task(name="sts", type="similarity", text=("a", "b"), label="y", range=(0.0, 5.0))


def read(*rows: tuple[str | float | None, str] | tuple[str | float | None, str, str]) -> RowsRead:
    """Rows given as (label, text, text?); an empty text makes a bad row."""
    made = tuple(
        Row(str(n), texts, label, f"a.csv:{n}", "" if all(texts) else "text is empty")
        for n, (label, *found) in enumerate(rows, start=2)
        for texts in [tuple(found)]
    )
    return RowsRead("a.csv", made, ("a note",))


def test_label_balance_counts_good_rows_and_shows_empty_classes() -> None:
    report = examine(SENTIMENT, {"train": read(("1", "a"), ("1", "b"), ("0", "c"), ("0", ""))})
    train = report.splits["train"]
    assert train.labels == {"0": 1, "1": 2, "2": 0}
    assert (train.rows, train.bad_rows, train.reasons) == (4, 1, ("a.csv:5 text is empty",))
    assert (train.numbers, train.notes) == (None, ("a note",))


def test_numbers_of_a_similarity_are_described() -> None:
    values = [(float(n), f"a{n}", f"b{n}") for n in range(5)]
    numbers = examine(SIMILARITY, {"train": read(*values)}).splits["train"].numbers
    assert numbers is not None
    assert (numbers["lowest"], numbers["highest"], numbers["mean"]) == (0.0, 4.0, 2.0)
    assert numbers["deviation"] == pytest.approx(2**0.5)


def test_duplicates_and_overlap_go_by_normalised_text() -> None:
    train = read((1.0, "One two", "three"), (2.0, "one, two!", "THREE"), (3.0, "x", "y"))
    validation = read((1.0, "Three", "one two"), (1.0, "x", "new"), (1.0, "new", "newer"))
    report = examine(SIMILARITY, {"train": train, "validation": validation})
    assert report.splits["train"].duplicates == 1
    assert report.splits["train"].rows_in_train is None
    assert report.splits["validation"].rows_in_train == 1
    assert report.splits["validation"].rows_sharing_a_sentence_with_train == 2


def test_single_texts_share_no_sentence_beyond_the_row() -> None:
    report = examine(
        SENTIMENT, {"train": read(("1", "a")), "test": read((None, "A."), (None, "b"))}
    )
    test = report.splits["test"]
    assert (test.rows_in_train, test.rows_sharing_a_sentence_with_train) == (1, None)
    assert test.labels == {}


def test_baseline_is_the_most_frequent_class_of_train_on_validation() -> None:
    """Not validation's own majority: nobody knows it when answering."""
    train = read(("1", "a"), ("1", "b"), ("0", "c"))
    validation = read(("0", "d"), ("0", "e"), ("1", "f"), ("2", "g"))
    report = examine(SENTIMENT, {"train": train, "validation": validation})
    assert (report.baseline_class, report.baseline) == ("1", 0.25)


def test_baseline_of_a_similarity_is_no_correlation() -> None:
    rows = read((1.0, "a", "b"), (2.0, "c", "d"))
    report = examine(SIMILARITY, {"train": rows, "validation": rows})
    assert (report.baseline_class, report.baseline) == (None, 0.0)


def test_baseline_needs_labels_on_both_sides() -> None:
    labelled, bare = read(("1", "a")), read((None, "b"))
    assert examine(SENTIMENT, {"train": labelled}).baseline is None
    assert examine(SENTIMENT, {"train": labelled, "validation": bare}).baseline is None
    assert examine(SENTIMENT, {"train": bare, "validation": labelled}).baseline is None


def test_samples_are_the_first_good_rows_shortened() -> None:
    train = read(("1", ""), ("1", "x" * 81), ("0", "y" * 80), ("0", "b"), ("1", "c"))
    samples = examine(SENTIMENT, {"train": train}).samples
    assert [sample["texts"][0] for sample in samples] == ["x" * 79 + "…", "y" * 80, "b"]
    assert (samples[0]["label"], samples[0]["where"]) == ("1", "a.csv:3")


def test_report_is_plain_data() -> None:
    rows = read((1.0, "a", "b"), (2.5, "c", "d"))
    report = asdict(examine(SIMILARITY, {"train": rows, "validation": rows}))
    assert json.loads(json.dumps(report))["splits"]["train"]["numbers"]["highest"] == 2.5


def test_test_rows_that_stand_in_validation_are_counted() -> None:
    """Whoever picks on validation must not have seen the test rows there."""
    splits = {
        "train": read(("1", "a"), ("0", "b")),
        "validation": read(("1", "Same text!"), ("0", "c")),
        "test": read((None, "same text"), (None, "d")),
    }
    report = examine(SENTIMENT, splits)
    assert report.splits["test"].rows_in_validation == 1
    assert report.splits["validation"].rows_in_validation is None
