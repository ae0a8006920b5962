"""Rows are read by column name, validated once, and none is dropped silently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mops.config.training import TaskEntry
from mops.data.dataset import SPLITS, RowsRead, read_rows, read_task, stream_rows
from mops.data.tables import open_table
from mops.errors import DataError
from mops.tasks import Task

SENTIMENT = Task(name="sentiment", type="classification", text=("text",), label="label")
BINARY = replace(SENTIMENT, labels=("0", "1"))
SIMILARITY = Task(
    name="similarity", type="similarity", text=("a", "b"), label="score", range=(0.0, 5.0)
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(path: Path, task: Task = BINARY, *, needs_label: bool = True) -> RowsRead:
    return read_rows(path, task, needs_label=needs_label, on_bad_row="skip")


def problems(read: RowsRead) -> list[str]:
    return [row.problem for row in read.rows]


def refusal(path: Path, task: Task = BINARY, on_bad_row: str = "error") -> str:
    with pytest.raises(DataError) as caught:
        read_rows(path, task, needs_label=True, on_bad_row=on_bad_row)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_columns_go_by_name_and_a_row_knows_where_it_stood(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "label,id,text", "1,x7,good", "0,x8,bad")
    first, second = read(path).rows
    assert (first.id, first.texts, first.label, first.where) == ("x7", ("good",), "1", "a.csv:2")
    assert (second.id, second.problem) == ("x8", "")


def test_id_is_the_row_number_where_no_column_names_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "a,1", "", "b,0")
    assert [row.id for row in read(path).rows] == ["1", "2"]
    idx = write(tmp_path / "b.csv", "idx,text,label", "40,a,1", ",b,0")
    assert [row.id for row in read(idx).rows] == ["40", "2"]


def test_duplicate_ids_are_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,text,label", *(f"{number},a,1" for number in "11222"))
    assert read(path).notes == ("2 ids occur twice or more",)


def test_one_class_has_one_spelling(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "a,1.0", "b,1", "c, 0.0 ")
    assert [row.label for row in read(path).rows] == ["1", "1", "0"]
    named = replace(SENTIMENT, labels=("0", "1"))
    assert [row.label for row in read(path, named).rows] == ["1", "1", "0"]


def test_labels_are_never_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "a,1.5", "b,not_entailment", "c,1.25")
    assert [row.label for row in read(path, SENTIMENT).rows] == ["1.5", "not_entailment", "1.25"]


def test_similarity_keeps_its_fraction(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,score", "x,y,3.8", "x,z,0", "y,z,5.0")
    assert [row.label for row in read(path, SIMILARITY).rows] == [3.8, 0.0, 5.0]


def test_every_kind_of_bad_row_says_why(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "a,1", " ,1", "b,", "c,2", "d", "e,0,f")
    assert problems(read(path)) == [
        "",
        "text is empty",
        "has no label",
        "label is '2', not one of 0, 1",
        "1 fields instead of 2",
        "3 fields instead of 2",
    ]
    assert len(read(path).good) == 1 and len(read(path).bad) == 5
    assert "5 of 6 rows left out" in read(path).notes[0]


def test_every_kind_of_bad_number_says_why(tmp_path: Path) -> None:
    lines = [f"x,y,{value}" for value in ("2.5", "good", "nan", "5.1", "-0.1", "inf")]
    found = problems(read(write(tmp_path / "a.csv", "a,b,score", *lines), SIMILARITY))
    assert found[:2] == ["", "'good' is not a number"]
    assert found[2] == "has no score (nan)"
    assert found[3:] == [f"{v} is not between 0 and 5" for v in ("5.1", "-0.1", "inf")]


def test_bad_rows_are_an_error_that_shows_the_first_three(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "a,1", "b,", "c,", ",1", "d,7")
    message = refusal(path)
    assert "4 of 5 rows" in message and "set on_bad_row: skip" in message
    shown = "a.csv:3 has no label, a.csv:4 has no label, a.csv:5 text is empty, ..."
    assert shown in message and "a.csv:6" not in message


def test_skipping_every_row_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "a,x", "b,y")
    assert "2 of 2 rows cannot be used" in refusal(path, on_bad_row="skip")


def test_label_may_be_absent_where_none_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text", "a", "b")
    found = read(path, needs_label=False)
    assert [row.label for row in found.rows] == [None, None]
    assert not any(row.label for row in found.rows) and not found.bad


def test_label_that_is_present_must_be_valid(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.csv", "text,label", "a,1", "b,", "c,9"), needs_label=False)
    assert [bool(row.problem) for row in found.rows] == [False, False, True]
    assert any(row.label for row in found.rows)


def test_minus_one_is_no_label_unless_it_is_a_class(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "a,-1", "b,-1.0")
    for task in (SENTIMENT, BINARY):
        found = read(path, task, needs_label=False)
        assert [(row.label, row.problem) for row in found.rows] == [(None, ""), (None, "")]
    signs = replace(SENTIMENT, labels=("-1", "1"))
    assert [row.label for row in read(path, signs, needs_label=False).rows] == ["-1", "-1"]
    assert "not one of 0, 1" in refusal(path)


def test_minus_one_is_no_similarity_unless_the_range_holds_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,score", "x,y,-1")
    assert read(path, SIMILARITY, needs_label=False).rows[0].label is None
    cosine = Task(name="c", type="similarity", text=("a", "b"), label="score", range=(-1.0, 1.0))
    assert read(path, cosine, needs_label=False).rows[0].label == -1.0


def test_missing_column_names_file_columns_and_delimiter(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "a.csv", "\ttxt\tlabel", "0\ta\t1"))
    assert "no column 'text'" in message and "(unnamed), txt, label" in message
    assert "tab-separated" in message and "Did you mean 'txt'?" in message
    assert "no column 'label'" in refusal(write(tmp_path / "b.csv", "text,x", "a,1"))


def test_missing_column_is_refused_before_the_first_row(tmp_path: Path) -> None:
    table = open_table(write(tmp_path / "a.csv", "x,label", "a,1"))
    with pytest.raises(DataError, match="no column 'text'"):
        stream_rows(table, BINARY, needs_label=False)


def test_file_without_header_is_read_with_given_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "gj04\t1\tA b.", "gj04\t0\tB a.")
    found = read_rows(path, BINARY, needs_label=True, columns=("source", "label", "text"))
    assert [(row.texts, row.label) for row in found.rows] == [(("A b.",), "1"), (("B a.",), "0")]


def test_sparse_keys_of_json_matter_only_to_the_task_that_reads_them(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", '{"text": "a", "label": 1, "note": "x"}', '{"text": "b", "label": 0}'
    )
    assert problems(read(path)) == ["", ""]


def splits_of(entry: dict[str, object]) -> dict[str, RowsRead]:
    value = TaskEntry(**({"type": "classification", "text": "text", "label": "label"} | entry))  # type: ignore[arg-type]
    return read_task(value, value.task("task"), SPLITS)[1]


def test_split_column_divides_the_rows_of_one_file(tmp_path: Path) -> None:
    lines = ("a,1,train", "b,0,Dev", "c,,test", "d,0,training", "e,1,valid")
    file = str(write(tmp_path / "a.csv", "text,label,part", *lines))
    both = {"train": file, "validation": file, "split_column": "part"}
    found = splits_of({**both, "test": file})
    assert {name: [row.texts[0] for row in read.rows] for name, read in found.items()} == {
        "train": ["a", "d"], "validation": ["b", "e"], "test": ["c"]
    }  # fmt: skip
    assert [row.where for row in found["validation"].rows] == ["a.csv:3", "a.csv:6"]
    assert [row.texts[0] for row in splits_of(both)["train"].rows] == ["a", "d"]
    with pytest.raises(DataError, match=r"no column 'part' .*Did you mean 'parts'"):
        other = str(write(tmp_path / "b.csv", "text,label,parts", *lines))
        splits_of({"train": other, "validation": other, "split_column": "part"})


def test_split_column_with_a_word_that_is_no_split_is_a_bad_row(tmp_path: Path) -> None:
    file = str(write(tmp_path / "a.csv", "text,label,part", "a,1,train", "b,0,train", "c,1,later"))
    entry = {"train": file, "split": 0.5, "split_column": "part"}
    with pytest.raises(DataError, match=r"a\.csv:4 has the unknown split 'later'"):
        splits_of(entry)
    assert sum(len(read.good) for read in splits_of({**entry, "on_bad_row": "skip"}).values()) == 2
    with pytest.raises(DataError, match="no row has the split test"):
        splits_of({**entry, "on_bad_row": "skip", "test": file})


def test_decimal_commas_of_a_label_are_points(tmp_path: Path) -> None:
    lines = ("eins, zwei;b;2,5", "c;d;3", "e;f;0,25", "g;h;1.234,5", "i;j;2.500", "k;l;1.5")
    file = str(write(tmp_path / "a.csv", "x;y;note", *lines))
    entry = {"type": "similarity", "text": ("x", "y"), "label": "note", "range": (0, 5000)}
    found = splits_of({**entry, "train": file, "validation": file, "decimal": ","})["train"]
    assert [row.label for row in found.rows] == [2.5, 3.0, 0.25, 1234.5, 2500.0, 1.5]
    assert found.rows[0].texts == ("eins, zwei", "b")
    with pytest.raises(DataError, match="'2,5' is not a number"):
        splits_of({**entry, "train": file, "validation": file})
