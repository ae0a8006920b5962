"""The advice that follows from cells, and the file they are written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mops.errors import UsageError
from mops.evaluate.conflicts import Conflicts, CosineCell, advise, read_conflicts

PAIRS = (("a", "b"), ("a", "c"))


def one_cell(place: str, mean: float, is_conflict: bool, pair: tuple[str, str]) -> CosineCell:
    return CosineCell(
        place=place, part="all", tasks=pair, mean=mean, stderr=0.01, negative=0.5, norm_ratio=2.0,
        own=(0.5, 0.32), steps=20, p=0.2, p_holm=0.4, is_conflict=is_conflict,
    )  # fmt: skip


def cells(*conflicting: str, places: tuple[str, ...] = ("embeddings", *"0123")) -> list[CosineCell]:
    """Of two pairs; in the named places the second pair conflicts."""
    named = [f"layer {p}" if p.isdigit() else p for p in places]
    bad = {f"layer {p}" if p.isdigit() else p for p in conflicting}
    return [
        one_cell(place, -0.1 - n / 100 if is_bad else 0.05, is_bad, pair)
        for n, place in enumerate(named)
        for pair in PAIRS
        if (is_bad := place in bad and pair == PAIRS[1]) or True
    ]


def test_no_conflict() -> None:
    (sentence,) = advise(cells())
    assert sentence.startswith("No layer shows a significant conflict")
    assert "10 cells" in sentence and "0.050 ± 0.010" in sentence


def test_the_worst_place_is_named_with_its_ceiling() -> None:
    first, _ = advise(cells("2", "3"))
    assert "most in layer 3: a and c" in first and "-0.140 ± 0.010" in first
    assert "about 0.40" in first  # sqrt(0.5 x 0.32)
    assert "2 of 10 cells" in first


@pytest.mark.parametrize(
    ("conflicting", "first_own"),
    [(("3",), 3), (("2", "3"), 2), (("0", "2", "3"), 2), (("0", "1", "2", "3"), 0)],
)
def test_a_split_begins_where_all_layers_above_conflict(
    conflicting: tuple[str, ...], first_own: int
) -> None:
    _, sentence = advise(cells(*conflicting))
    assert f"a copy per task from layer {first_own} on" in sentence


@pytest.mark.parametrize("conflicting", [("1", "2"), ("embeddings",), ("late1", "0")])
def test_no_split_when_the_top_agrees(conflicting: tuple[str, ...]) -> None:
    _, sentence = advise(cells(*conflicting, places=("embeddings", *"0123", "late1")))
    assert "do not reach the top layer" in sentence
    assert all((f"layer {p}" if p.isdigit() else p) in sentence for p in conflicting)


def test_only_shared_layers_count() -> None:
    """With own copies of the upper layers, the split may begin lower."""
    _, sentence = advise(cells("1", places=("embeddings", "0", "1")))
    assert "from layer 1 on" in sentence


def whole(**changes: Any) -> Conflicts:
    found = tuple(cells("3"))
    plain = Conflicts({"plan": "x"}, {"tasks": {}}, {}, found, found, ("one", "two"))
    return Conflicts(**{**vars(plain), **changes})


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "conflicts.json"
    path.write_text(whole().to_json(), "utf-8")
    assert read_conflicts(path) == whole()
    json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"owners": [], "places": [1]}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "conflicts.json").write_text(text, "utf-8")
    with pytest.raises(UsageError, match="not a measurement of conflicts"):
        read_conflicts(tmp_path / "conflicts.json")
