"""The embedded sample data: shape, balance, separation of the splits, overlap baselines."""

from __future__ import annotations

import csv
import importlib.util
import re
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import correlation
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "src" / "mops" / "data" / "sample"
SPLITS = ("train", "validation", "test")
COLUMNS = {
    "sentiment": ["id", "sentence", "sentiment"],
    "paraphrase": ["id", "sentence1", "sentence2", "is_duplicate"],
    "similarity": ["id", "sentence1", "sentence2", "similarity"],
}
SMALLEST = {"train": 600, "validation": 200, "test": 200}
FILES = [(task, split) for task in COLUMNS for split in SPLITS]
VOWEL_SOUNDS = r"(?:apple|old|egg|hour|honest|oak|owl|app|evening|account|average|office|umbrella)"


@cache
def table(task: str, split: str) -> tuple[list[str], ...]:
    with (SAMPLE / f"{task}-{split}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.reader(file))


def rows(task: str, split: str) -> tuple[list[str], ...]:
    return table(task, split)[1:]


def texts(task: str, split: str) -> list[str]:
    return [text for row in rows(task, split) for text in row[1:-1]]


def normalised(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def overlap(row: list[str]) -> float:
    one, two = (set(re.findall(r"[a-z0-9']+", text.lower())) for text in row[1:3])
    return len(one & two) / len(one | two)


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sample", ROOT / "scripts/make_sample.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("task", "split"), FILES)
def test_columns_sizes_and_bytes(task: str, split: str) -> None:
    header, *body = table(task, split)
    assert header == COLUMNS[task]
    assert len(body) >= SMALLEST[split]
    assert all(len(row) == len(header) and all(row) for row in body)
    assert b"\r" not in (SAMPLE / f"{task}-{split}.csv").read_bytes()


@pytest.mark.parametrize("split", SPLITS)
def test_sentiment_is_balanced(split: str) -> None:
    labels = Counter(row[-1] for row in rows("sentiment", split))
    assert sorted(labels) == ["0", "1", "2", "3", "4"]
    assert max(labels.values()) <= 0.26 * labels.total()


@pytest.mark.parametrize("split", SPLITS)
def test_paraphrase_is_balanced(split: str) -> None:
    labels = Counter(row[-1] for row in rows("paraphrase", split))
    assert sorted(labels) == ["0", "1"]
    assert 0.40 <= labels["1"] / labels.total() <= 0.55


@pytest.mark.parametrize("split", SPLITS)
def test_similarity_covers_the_range(split: str) -> None:
    labels = [row[-1] for row in rows("similarity", split)]
    assert all(re.fullmatch(r"[0-4]\.[0-9]|5\.0", label) for label in labels)
    grades = Counter(label[0] for label in labels)
    assert sorted(grades) == ["0", "1", "2", "3", "4", "5"]
    assert min(grades.values()) >= 0.08 * len(labels)
    assert any(not label.endswith(".0") for label in labels)


@pytest.mark.parametrize("task", COLUMNS)
def test_ids_and_rows_are_unique(task: str) -> None:
    every = [row for split in SPLITS for row in rows(task, split)]
    assert len({row[0] for row in every}) == len(every)
    assert len({frozenset(map(normalised, row[1:-1])) for row in every}) == len(every)
    assert all(len(set(map(normalised, row[1:-1]))) == len(row) - 2 for row in every)


@pytest.mark.parametrize("task", COLUMNS)
def test_no_text_occurs_in_two_splits(task: str) -> None:
    seen: dict[str, str] = {}
    for split in SPLITS:
        for text in texts(task, split):
            assert seen.setdefault(normalised(text), split) == split, text


@pytest.mark.parametrize("upward", [True, False])
def test_overlap_does_not_solve_paraphrase(upward: bool) -> None:
    def accuracy(split: str, cut: float) -> float:
        pairs = [(overlap(row), row[-1] == "1") for row in rows("paraphrase", split)]
        return sum(((value >= cut) == upward) == label for value, label in pairs) / len(pairs)

    best = max((step / 100 for step in range(102)), key=lambda cut: accuracy("train", cut))
    for split in SPLITS:
        assert accuracy(split, best) <= 0.68


@pytest.mark.parametrize("split", SPLITS)
def test_overlap_does_not_solve_similarity(split: str) -> None:
    pairs = [(overlap(row), float(row[-1])) for row in rows("similarity", split)]
    value = correlation([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    print(f"Pearson correlation of overlap and similarity, {split}: {value:.3f}")
    assert value <= 0.70


@pytest.mark.parametrize(("task", "split"), FILES)
def test_texts_are_well_formed(task: str, split: str) -> None:
    for text in texts(task, split):
        assert text == text.strip(), text
        assert "  " not in text, text
        assert not re.search(r"[{}|]| [,.;:?!]", text), text
        assert text[0].isupper() or text[0].isdigit() or text[0] == '"', text
        assert re.search(r'[.?!]"?$', text), text
        assert not re.search(r"[.?!] [a-z]", text), text
        assert not re.search(rf"\ba {VOWEL_SOUNDS}\b", text, re.IGNORECASE), text
        assert not re.search(r"\ban? (?:an?|the)\b", text, re.IGNORECASE), text


def test_files_are_what_the_script_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert script().main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_changed_file_is_noticed(tmp_path: Path) -> None:
    script().write(tmp_path)
    assert script().differences(tmp_path) == []
    (tmp_path / "sentiment-test.csv").write_text("id\n", encoding="utf-8")
    assert script().differences(tmp_path) == ["sentiment-test.csv"]
