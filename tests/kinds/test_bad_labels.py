"""What is wrong with a label is one line with file and row, for every kind."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import mops
from mops.data.dataset import read_dataset
from mops.errors import DataError

GOOD: dict[str, Any] = {
    "classification": lambda n: "ab"[n % 2],
    "pair_classification": lambda n: "ab"[n % 2],
    "regression": lambda n: n / 2,
    "similarity": lambda n: n / 10,
    "multilabel": lambda n: ["a"] if n % 3 else ["b"],
    "tagging": lambda n: ["O", "B-X", "O"],
}
KEYS: dict[str, dict[str, Any]] = {
    "pair_classification": {"text": ["one", "two"]},
    "similarity": {"text": ["one", "two"], "range": [0, 5]},
}


def read(folder: Path, kind: str, given: list[Any], **keys: Any) -> None:
    rows = [{"one": f"some words {n}", "two": f"row {n}", "y": y} for n, y in enumerate(given)]
    file, config = folder / "rows.jsonl", folder / "mops.yaml"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    entry = {"type": kind, "text": "one", "label": "y", "train": str(file), "split": 0.2}
    config.write_text(json.dumps({"tasks": {"t": {**entry, **KEYS.get(kind, {}), **keys}}}))
    read_dataset(mops.recipe(config=config))


@pytest.mark.parametrize(
    ("kind", "label", "problem"),
    [
        *((kind, None, "has no y") for kind in GOOD),
        *((kind, math.nan, "has no y (NaN)") for kind in GOOD),
        *((kind, "nan", "has no y (nan)") for kind in GOOD),
        ("classification", [], "y is an empty list"),
        ("regression", [], "'[]' is not a number"),
        ("regression", "many", "'many' is not a number"),
        ("similarity", 9, "9 is not between 0 and 5"),
        ("multilabel", '["a"', "y is '[\"a\"', which is no JSON list"),
        ("multilabel", {"a": 1}, "y is '{\"a\": 1}', which is no JSON list"),
        ("multilabel", [["a"]], 'y has ["a"] in a list, which is no word or number'),
        ("multilabel", ["a", None], "y has null in a list"),
        ("tagging", [], "y: an empty list"),
        ("tagging", ["O", None, "O"], "y has null in a list"),
        ("tagging", ["O", "O"], "2 tags for 3 words"),
    ],
)
def test_a_bad_label_is_named_with_its_row(
    tmp_path: Path, kind: str, label: Any, problem: str
) -> None:
    labels = [GOOD[kind](n) for n in range(30)]
    with pytest.raises(DataError) as caught:
        read(tmp_path, kind, [*labels[:6], label, *labels[6:]])
    assert f"rows.jsonl:7 {problem}" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["classification", "pair_classification", "multilabel", "tagging"])
def test_an_unknown_label_is_named_with_its_row(tmp_path: Path, kind: str) -> None:
    labels = [GOOD[kind](n) for n in range(30)]
    odd = {"multilabel": ["a", "z"], "tagging": ["O", "z", "O"]}.get(kind, "z")
    known = ["O", "B-X"] if kind == "tagging" else ["a", "b"]
    with pytest.raises(DataError, match=r"rows\.jsonl:31 y (is|has) 'z', (which is )?not one of"):
        read(tmp_path, kind, [*labels, odd], labels=known)


@pytest.mark.parametrize("kind", GOOD)
def test_a_constant_label_is_nothing_to_learn(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError, match=r"all 30 training rows of .*rows\.jsonl have the label"):
        read(tmp_path, kind, [GOOD[kind](0)] * 30)


def test_an_empty_list_of_labels_is_a_row_without_any(tmp_path: Path) -> None:
    read(tmp_path, "multilabel", [["a"] if n % 2 else [] for n in range(30)])
