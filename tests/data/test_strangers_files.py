"""Data files of strangers: huge declarations, damaged pages, long fields, halves of letters."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from building import tiny_tokenizer
from mops.data import batches, parquet
from mops.data.batches import LONGEST_WORD, full_lengths, tokenise
from mops.data.tables import open_table
from mops.errors import DataError
from mops.plans.shapes import Reading

READING = Reading(max_length=8)


def read(path: Path) -> list[Any]:
    return list(open_table(path).records())


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_repeated(path: Path, text: str, rows: int) -> Path:
    """One text for all rows: a few hundred bytes, whatever its length and their number."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    pq.write_table(pa.table({"text": column}), path, compression="zstd")
    return path


def test_a_small_file_that_stands_for_terabytes_is_refused(tmp_path: Path) -> None:
    path = write_repeated(tmp_path / "bomb.parquet", "a" * 2**22, 500_000)  # 2 TB as texts
    assert path.stat().st_size < 20_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "bytes of text; allowed" in refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


def test_lists_count_too(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), ["a" * 2**20])
    words = pa.ListArray.from_arrays(pa.array(range(0, 4001, 40), pa.int32()), texts)
    path = tmp_path / "lists.parquet"
    pq.write_table(pa.table({"words": words}), path, compression="zstd")
    assert "bytes of text; allowed" in refusal(path)


def test_more_rows_than_a_file_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_repeated(tmp_path / "rows.parquet", "a", 30_000)
    assert len(read(path)) == 30_000
    monkeypatch.setattr(parquet, "MOST_PER_BYTE", 10)
    assert "declares 30,000 values" in refusal(path)


def test_usual_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    rows = [{"text": f"t{n}", "n": n, "words": ["a", "b"], "more": {"x": "y"}} for n in range(9000)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    found = [row.values for row in read(path)]
    assert len(found) == 9000 and found[8999]["text"] == "t8999"
    assert (found[0]["words"], found[0]["more.x"], found[0]["n"]) == ('["a", "b"]', "y", "0")


def test_a_damaged_page_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    texts = [f"text number {n}" for n in range(20_000)]
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=False)
    whole = path.read_bytes()
    for place in range(4, len(whole), len(whole) // 40):
        path.write_bytes(whole[:place] + bytes(64) + whole[place + 64 :])
        try:
            read(path)
        except DataError as error:
            assert "\n" not in str(error)


def test_a_long_field_is_cut_before_it_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    inner = batches.whole
    monkeypatch.setattr(batches, "whole", lambda text: seen.append(len(text)) or inner(text))
    texts = [("ban " * 4_000_000,), ("ban",), (" " * 9000 + "ban",)]
    table = tokenise(tiny_tokenizer(), texts, READING)
    assert max(seen) == LONGEST_WORD * 8
    assert (table.cut, table.lengths.tolist()) == (2, [8, 3, 2])
    lengths = full_lengths(tiny_tokenizer(), texts, READING, table)
    assert abs(lengths[0] - 4_000_000) < 400  # counted in a part of the text


def test_halves_of_surrogate_pairs_are_a_problem_of_the_row(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a\\ud83db"}\n{"text": "fine \\ud83d\\ude00"}\n')
    first, second = read(path)
    assert first.values["text"] == "a?b" and "surrogate" in first.problem
    assert second.values["text"] == "fine 😀" and not second.problem
    assert len(tokenise(tiny_tokenizer(), [("\ud83d",)], READING)) == 1  # from a program


def test_deep_json_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"text": "a"}}\n{{"text": {"[" * 90_000}{"]" * 90_000}}}\n')
    assert [bool(row.problem) for row in read(path)] == [False, True]
