"""The record of a run: typed, with a format number, and one line for what is no record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mops.errors import UsageError
from mops.record import read_curve, read_record
from surveying import Skill, made_record, plain_recipe


def test_a_record_reads_back_as_it_was(tmp_path: Path) -> None:
    record = made_record(plain_recipe(), {}, Skill())
    (tmp_path / "record.json").write_text(record.to_json(), "utf-8")
    assert read_record(tmp_path / "record.json") == record


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 0}, "its format is 0, expected 2; make it again"),
        ({"warnings": 3}, "warnings must be a list; found 3"),
        ({"train_info": {}}, "train_info.steps is missing"),
    ],
)
def test_what_is_no_record_is_one_line(tmp_path: Path, change: dict, problem: str) -> None:
    path = tmp_path / "record.json"
    data = json.loads(made_record(plain_recipe(), {}, Skill()).to_json())
    path.write_text(json.dumps(data | change), "utf-8")
    with pytest.raises(UsageError) as caught:
        read_record(path)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_torn_line_ends_a_curve(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    assert list(read_curve(path)) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st', "utf-8")
    assert [line["step"] for line in read_curve(path)] == [1, 2]
