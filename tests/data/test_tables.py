"""Any file becomes the same stream of records, or one line says why it cannot."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mops.data.dataset import read_rows
from mops.data.readers import NAMES
from mops.data.tables import DataTable, open_table
from mops.errors import DataError
from mops.tasks import Task

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LABELLED = Task(name="mood", type="classification", text=("text",), label="label")
NASTY = st.lists(st.sampled_from(['"', ",", ";", "|", "\t", "\n", "\r", "a", " "])).map("".join)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def values(table: DataTable) -> list[tuple[str, ...]]:
    return [tuple(record.values[name] for name in table.columns) for record in table.records()]


def refusal(path: Path | str, wanted: tuple[str, ...] = ()) -> str:
    """The one line with which a source is refused."""
    with pytest.raises(DataError) as caught:
        list(open_table(path, wanted).records())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("delimiter", NAMES)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(rows=st.lists(st.tuples(ANY_TEXT | NASTY, ANY_TEXT | NASTY), min_size=1))
def test_any_text_survives_csv_quoting(
    tmp_path: Path, delimiter: str, rows: list[tuple[str, str]]
) -> None:
    """What csv.writer wrote is read back, but for the white space around a field."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(("number", "text", "other"))
    writer.writerows((number, *row) for number, row in enumerate(rows))
    table = open_table(write(tmp_path / "rows.csv", out.getvalue()), ("text", "other"))
    assert values(table) == [(str(n), a.strip(), b.strip()) for n, (a, b) in enumerate(rows)]
    assert not any(record.problem for record in table.records())


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "text,label\n" + "yes,1\n" * 70_000, 70_001),
        ("a.jsonl", '{"text": "yes"}\n' * 3, 3),
        ("a.json", '[{"text": "yes"},\n{"text": "no"}]', None),
    ],
)
def test_the_number_of_lines_is_told_without_reading_rows(
    tmp_path: Path, name: str, content: str, expected: int | None
) -> None:
    assert open_table(write(tmp_path / name, content)).count() == expected


def test_quoted_field_may_hold_delimiters_and_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"hello, world\nbye",1\nyes,0\n')
    assert values(open_table(path)) == [("hello, world\nbye", "1"), ("yes", "0")]
    assert [record.line for record in open_table(path).records()] == [2, 4]


def test_cs224n_files_are_tab_separated_quoted_and_start_with_an_unnamed_column(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "quora-train.csv",
        "\tid\tsentence1\tsentence2\tis_duplicate\n"
        '0\te9\tIs Naruto, dead?\t"""Will Naruto die in """"Naruto""""?"""\t0.0\n',
    )
    table = open_table(path, ("sentence1", "sentence2"))
    assert table.columns == ("", "id", "sentence1", "sentence2", "is_duplicate")
    assert table.form == "tab-separated text"
    assert values(table)[0][2:] == ("Is Naruto, dead?", '"Will Naruto die in ""Naruto""?"', "0.0")


def test_lone_quotes_of_glue_belong_to_the_text(tmp_path: Path) -> None:
    path = write(
        tmp_path / "train.tsv",
        'sentence\tlabel\n"Yes," he said.\t1\n"No\t0\n"Never" is long.\t1\n',
    )
    table = open_table(path)
    assert values(table) == [('"Yes," he said.', "1"), ('"No', "0"), ('"Never" is long.', "1")]
    assert table.form == "tab-separated text, without quoting"


def test_an_unclosed_quote_does_not_join_a_text_with_the_label_of_another_row(
    tmp_path: Path,
) -> None:
    lines = ["text,label", *(f'"row, {n}",{n % 2}' for n in range(40))]
    lines[20] = '"never, closed,1'
    table = open_table(write(tmp_path / "a.csv", "\n".join(lines) + "\n"))
    found = list(table.records())
    (broken,) = [record for record in found if record.problem]
    assert len(found) == 39 and broken.line == 21  # its label and the next row are lost: say so
    assert broken.problem == "has an unclosed quote, which ends in line 22"
    with pytest.raises(DataError, match=r"1 of 39 rows cannot be used: a.csv:21 has an unclosed"):
        read_rows(tmp_path / "a.csv", LABELLED, needs_label=True)
    lines[20:] = ['"the last, is open,1']
    last = list(open_table(write(tmp_path / "b.csv", "\n".join(lines) + "\n")).records())[-1]
    assert "unclosed quote" in last.problem


def test_one_ragged_line_does_not_let_lone_quotes_swallow_rows(tmp_path: Path) -> None:
    lines = ["sentence\tlabel", '"Yes," he said.\t1', "torn", '"No\t0', '"Never" again\t1']
    table = open_table(write(tmp_path / "train.tsv", "\n".join(lines)))
    found = list(table.records())
    assert [record.line for record in found] == [2, 3, 4, 5]
    assert [bool(record.problem) for record in found] == [False, True, False, False]


@pytest.mark.parametrize("delimiter", NAMES)
def test_delimiter_is_detected_without_a_hint(tmp_path: Path, delimiter: str) -> None:
    others = "".join(mark for mark in NAMES if mark != delimiter)
    lines = [["id", "text", "label"], ["1", f"a {others} b", "x"], ["2", "c", "y"]]
    path = write(tmp_path / "rows.txt", "\n".join(delimiter.join(fields) for fields in lines))
    assert open_table(path).columns == ("id", "text", "label")
    assert NAMES[delimiter] in open_table(path).form


def test_wanted_columns_decide_the_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text;a,label;b\none, two, three;x,1;2\n")
    assert open_table(path, ("text", "b")).columns == ("text", "a,label", "b")
    assert open_table(path, ("text;a",)).columns == ("text;a", "label;b")


def test_one_column_needs_no_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 'sentence\nHello, you; there | here\n"two\nlines"\n')
    table = open_table(path, ("sentence",))
    assert values(table) == [("Hello, you; there | here",), ("two\nlines",)]
    assert table.form == "text of one column"


def test_file_without_header_gets_its_names(tmp_path: Path) -> None:
    path = write(tmp_path / "CoLA.tsv", "gj04\t1\t\tBill, he left.\ngj04\t0\t*\tLeft he.\n")
    table = open_table(path, ("sentence",), names=("source", "label", "mark", "sentence"))
    assert values(table)[0] == ("gj04", "1", "", "Bill, he left.")
    assert len(values(table)) == 2


def test_carriage_returns_and_blank_lines_are_no_content(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\r\n a ,1\r\n\r\nb,2")
    assert values(open_table(path)) == [("a", "1"), ("b", "2")]
    raw = write(tmp_path / "b.tsv", 'text\tlabel\r\n"a\t1\r\n\r\nb\t2\r\n')
    assert values(open_table(raw)) == [('"a', "1"), ("b", "2")]


def test_byte_order_mark_is_removed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbftext,label\na,1\n")
    assert open_table(path).columns == ("text", "label")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_unicode_text_of_excel_is_read(tmp_path: Path, encoding: str) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path = write(tmp_path / "a.txt", mark + "text\tlabel\r\ngrün \u2028\t1\r\n".encode(encoding))
    assert values(open_table(path)) == [("grün", "1")]
    assert [record.line for record in open_table(path).records()] == [2]


def test_what_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    latin = refusal(write(tmp_path / "a.csv", "text,label\na,1\ncafé,2\n".encode("latin-1")))
    assert "a.csv:3" in latin and "0xe9" in latin and "iconv -f cp1252 -t utf-8" in latin
    assert "not UTF-8" in refusal(write(tmp_path / "b.csv", "text\na\n".encode("utf-16-le")))
    torn = refusal(write(tmp_path / "c.csv", "text\na\n".encode("utf-16")[:-1]))
    assert "starts as UTF-16 text but is not, byte 14" in torn
    nul = refusal(write(tmp_path / "c.csv", b"text,label\na\0b,1\n"))
    assert "c.csv:2" in nul and "NUL" in nul
    assert "d.jsonl:2" in refusal(write(tmp_path / "d.jsonl", b'{"a": 1}\n{"a": "\xe9"}\n'))


@pytest.mark.parametrize("content", ["", "\n\n", "text,label\n", "\ufeff"])
def test_file_without_rows_is_refused(tmp_path: Path, content: str) -> None:
    assert "no rows" in refusal(write(tmp_path / "a.csv", content))


def test_old_mac_line_ends_are_refused(tmp_path: Path) -> None:
    assert "a.csv" in refusal(write(tmp_path / "a.csv", "text,label\ra,1\rb,2\r"))


def test_ragged_records_carry_a_problem_and_what_could_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,text,label\n1,a\n2,b,x,y\n3,c\rd,x\n4,d,z\n")
    short, long, torn, good = open_table(path).records()
    assert short.problem == "2 fields instead of 3"
    assert short.values == {"id": "1", "text": "a", "label": ""}
    assert long.problem == "4 fields instead of 3" and long.values["label"] == "x"
    assert "new-line character" in torn.problem and torn.line == 4
    assert (good.problem, good.line) == ("", 5)


def test_duplicate_column_matters_only_when_it_is_wanted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,note,note,label\na,b,c,1\n")
    assert open_table(path, ("text", "label")).columns.count("note") == 2
    assert "'note' occurs 2 times" in refusal(path, ("note",))


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path / "quora-train.csv", "x")
    missing = refusal(tmp_path / "qura-train.csv")
    assert "does not exist" in missing and "Did you mean 'quora-train.csv'?" in missing
    assert "is a folder" in refusal(tmp_path)
    assert "does not exist" in refusal(tmp_path / "no" / "where.csv")


def test_very_long_texts_are_read_whole(tmp_path: Path) -> None:
    long = "word " * 60_000 + "end"
    assert values(open_table(write(tmp_path / "a.csv", f'text,label\n"{long}",1\n')))[0][0] == long


def test_reading_needs_the_memory_of_a_few_rows(tmp_path: Path) -> None:
    rows = 8_000
    line = "x" * 100
    delimited = write(tmp_path / "a.csv", "text,label\n" + f"{line},1\n" * rows)
    lines = write(tmp_path / "a.jsonl", f'{{"text": "{line}", "label": 1}}\n' * rows)
    for path in (delimited, lines):
        tracemalloc.start()
        assert sum(1 for _ in open_table(path).records()) == rows
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 400_000


def test_json_lines_keep_numbers_and_words(tmp_path: Path) -> None:
    first = {"text": " a ", "score": 3.8, "n": 7, "ok": True, "none": None, "list": ["ä"]}
    path = write(tmp_path / "a.jsonl", json.dumps(first) + "\n\n" + json.dumps({"text": "b"}))
    table = open_table(path)
    full, short = table.records()
    assert tuple(full.values.values()) == ("a", "3.8", "7", "true", "", '["ä"]')
    assert (short.line, short.problem, short.values["score"]) == (3, "no 'score'", "")
    assert not any(record.problem for record in open_table(path, ("text",)).records())


def test_broken_json_lines_carry_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ndjson", '{"text": "a"}\n{"text": \n[1]\n')
    problems = [(record.line, record.problem) for record in open_table(path).records()]
    assert problems == [(1, ""), (2, "not a JSON object"), (3, "not a JSON object")]


def test_json_file_may_be_a_list_or_lines(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 2}]
    as_list = open_table(write(tmp_path / "a.json", json.dumps(rows, indent=1)))
    as_lines = open_table(write(tmp_path / "b.json", "\n".join(map(json.dumps, rows))))
    assert values(as_list) == values(as_lines) == [("a", "1"), ("b", "2")]
    assert (as_list.form, as_lines.form) == ("a JSON list", "JSON lines")


def test_json_without_objects_is_refused(tmp_path: Path) -> None:
    assert "not valid JSON" in refusal(write(tmp_path / "a.json", "[1, "))
    assert "no JSON object" in refusal(write(tmp_path / "b.jsonl", "word\n"))
    assert "no JSON object" in refusal(write(tmp_path / "b.json", "[]"))
    assert "no rows" in refusal(write(tmp_path / "c.jsonl", "\n"))


@pytest.mark.parametrize(
    "content", ["text\tlabel\na\t1\n", '{"text": "a", "label": 1}', '[{"text": "a", "label": 1}]']
)
def test_standard_input_is_text_or_json(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    table = open_table("-")
    assert values(table) == values(table) == [("a", "1")]
    assert table.source == "stdin"


def test_pipe_can_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write, args=(pipe, "text,label\na,1\n"))
    writer.start()
    assert values(open_table(pipe)) == [("a", "1")]
    writer.join()


def test_inner_objects_of_json_have_dotted_columns(tmp_path: Path) -> None:
    rows = [{"id": 1, "data": {"text": "a", "by": {"name": "x"}}}, {"id": 2, "data": {"text": "b"}}]
    table = open_table(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    assert table.columns == ("id", "data", "data.text", "data.by", "data.by.name")
    first, second = table.records()
    assert first.values["data.text"] == "a" and first.values["data.by.name"] == "x"
    assert json.loads(first.values["data"]) == rows[0]["data"]
    assert second.values["data.by.name"] == "" and not second.problem
    wanted = open_table(tmp_path / "a.jsonl", ("data.by.name",))
    assert [record.problem for record in wanted.records()] == ["", "no 'data.by.name'"]


CONLL = (
    "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n"
    "# a longer comment\n# NN O\nPeter NNP B-PER\n. . O\n"
)


@pytest.mark.parametrize("mark", [" ", "\t"])
def test_one_word_per_line_is_one_record_per_sentence(tmp_path: Path, mark: str) -> None:
    content = CONLL.replace(" ", mark).replace(
        f"#{mark}a{mark}longer{mark}comment", "# a longer comment"
    )
    named = open_table(write(tmp_path / "a.txt", content), names=("word", "pos", "tag"))
    expected = [("EU rejects", "NNP VBZ", "B-ORG O"), ("# Peter .", "NN NNP .", "O B-PER O")]
    assert values(named) == expected
    assert [record.line for record in named.records()] == [3, 7]
    by_ending = open_table(write(tmp_path / "a.conll", content))
    assert values(by_ending) == expected
    assert by_ending.columns == ("tokens", "column2", "tags")


def test_parts_of_words_in_conll_u_are_no_words(tmp_path: Path) -> None:
    def word(number: str, form: str, tag: str) -> str:
        return "\t".join((number, form, "_", tag, *"______"))

    one = [word("1-2", "zum", "_"), word("1", "zu", "ADP"), word("2", "dem", "DET"), ""]
    path = write(tmp_path / "de.conllu", "\n".join(["# text = zum", *one, *one]))
    found = [(row.values["form"], row.values["upos"]) for row in open_table(path).records()]
    assert found == [("zu dem", "ADP DET")] * 2


def test_words_with_other_columns_are_a_problem_of_their_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", CONLL + "\n" + CONLL * 600 + "\nlonely\nword O O\n")
    *_, last = open_table(path).records()
    assert "1 columns instead of 3" in last.problem


def test_blank_lines_between_texts_are_still_no_content(tmp_path: Path) -> None:
    lines = ["1\tA good day.", "", "0\tA bad day.", "1\tNot so bad.", "", "0\tBad again."]
    table = open_table(write(tmp_path / "a.tsv", "\n".join(lines)), names=("label", "text"))
    assert len(values(table)) == 4
