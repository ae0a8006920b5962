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
from mops.data.footer import read_footer
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


def test_texts_of_all_batches_count(tmp_path: Path) -> None:
    path = write_repeated(tmp_path / "x.parquet", "a" * 2000, 80_000)  # 16 MB in a batch
    assert path.stat().st_size < 60_000
    assert "8,192 rows have 16,384,000 bytes of text; allowed: 67,108,864" in refusal(path)


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


def test_facts_about_a_column_that_contradict_each_other_are_one_line(tmp_path: Path) -> None:
    """The histogram of a column's nesting has five entries where it may have four: an abort."""
    path = tmp_path / "x.parquet"
    rows = [{"l": [1, None, 2]}] * 15
    pq.write_table(pa.Table.from_pylist(rows), path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    start, footer = len(whole) - 8 - size, whole[-8 - size : -8]
    histogram = bytes([0x46, 0, 0, 30, 60])  # of 15 empty values, and 30 others
    assert footer.count(histogram) == 1
    longer = bytes([0x56, 0, 0, 0, 30, 60])
    footer = footer.replace(histogram, longer)
    path.write_bytes(whole[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert "not a parquet file, or a damaged one" in refusal(path)


def test_the_footer_declares_what_the_library_says(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table(
        {"text": [f"t{n}" for n in range(900)], "more": [{"x": [n]} for n in range(900)]}
    )
    pq.write_table(table, path, row_group_size=50)  # 18 groups: more than a short list has
    facts, declared = pq.read_metadata(path), read_footer(path)
    parts = [facts.row_group(n).column(c) for n in range(18) for c in range(2)]
    assert declared.rows == 900
    assert declared.parts == [(p.num_values, p.total_uncompressed_size) for p in parts]


ENDLESS = b"\x19\xf7" + b"\xff" * 7 + b"\x0f"  # a list of very many numbers that are not there


@pytest.mark.parametrize(
    "footer", [b"", b"\x1c" * 5000, b"\x19\xfc" + b"\xff" * 8, ENDLESS, b"\x0d", b"\0"]
)
def test_a_footer_that_cannot_be_read_is_refused(tmp_path: Path, footer: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=r"footer|type|deep|bits"):
        read_footer(path)
    assert "damaged" in refusal(path)


def test_an_index_outside_its_dictionary_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a", "b"] * 8}), path, compression="none")
    whole = path.read_bytes()
    words = b"\1\0\0\0a\1\0\0\0b"
    assert whole.count(words) == 1
    for place in range(whole.index(words) - 40, whole.index(words) + 80):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                read(path)
            except DataError as error:
                assert "\n" not in str(error)


def test_a_map_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    kind = pa.map_(pa.string(), pa.string())
    pq.write_table(pa.table({"text": ["a"], "more": pa.array([[("k", "v")]], kind)}), path)
    assert [row.values for row in read(path)] == [{"text": "a", "more": '[["k", "v"]]'}]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "text"]), path)
    with pytest.raises(DataError, match="'text' occurs 2 times"):
        open_table(path, ("text",))


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


def test_of_many_long_texts_a_sample_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [("ban " * n,) for n in range(10, 400)]
    table = tokenise(tiny_tokenizer(), texts, READING)
    exact = full_lengths(tiny_tokenizer(), texts, READING, table)
    assert exact.tolist() == [n + 2 for n in range(10, 400)]
    monkeypatch.setattr(batches, "MOST_IN_ALL", 20_000)
    about = full_lengths(tiny_tokenizer(), texts, READING, table)
    assert (about != exact).sum() > 200 and abs(about - exact).max() < 5


def test_halves_of_surrogate_pairs_are_a_problem_of_the_row(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a\\ud83db"}\n{"text": "fine \\ud83d\\ude00"}\n')
    first, second = read(path)
    assert first.values["text"] == "a?b" and "surrogate" in first.problem
    assert second.values["text"] == "fine 😀" and not second.problem
    assert len(tokenise(tiny_tokenizer(), [("\ud83d",)], READING)) == 1  # from a program


def test_names_lead_50_objects_deep(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "k": ' + '{"a": ' * 400 + "1" + "}" * 401 + "\n")
    table = open_table(path)
    assert len(table.columns) == 52 and max(name.count(".") for name in table.columns) == 50
    assert next(table.records()).values["text"] == "a"


def test_deep_json_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"text": "a"}}\n{{"text": {"[" * 90_000}{"]" * 90_000}}}\n')
    assert [bool(row.problem) for row in read(path)] == [False, True]
