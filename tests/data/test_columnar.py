"""Parquet files and hub data sets give the same records as text does, without being required."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from mops.data.tables import DataTable, open_table
from mops.errors import DataError


def values(table: DataTable) -> list[tuple[str, ...]]:
    return [tuple(record.values[name] for name in table.columns) for record in table.records()]


def refusal(source: Path | str) -> str:
    """The one line with which a source is refused."""
    with pytest.raises(DataError) as caught:
        open_table(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_parquet_round_trip(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"text": ["a", " b "], "score": [3.8, None], "label": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    read = open_table(tmp_path / "a.parquet")
    assert values(read) == [("a", "3.8", "1"), ("b", "", "2")]
    assert read.count() == 2
    assert [record.line for record in read.records()] == [1, 2]
    parquet.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    assert "no rows" in refusal(tmp_path / "b.parquet")
    broken = tmp_path / "c.parquet"
    broken.write_text("text,label")
    assert "not a parquet file" in refusal(broken)


def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_text("PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install pyarrow" in refusal(tmp_path / "a.parquet")
    assert 'pip install "mops-nlp[hub]"' in refusal("hub:nyu-mll/glue:sst2:train")


class FakeDataset(list[dict[str, object]]):
    column_names = ("sentence", "label")


def fake_datasets(calls: list[tuple[object, ...]]) -> types.ModuleType:
    def load_dataset(*names: str, split: str) -> FakeDataset:
        calls.append((*names, split))
        if names[0] == "unknown":
            raise ConnectionError("Couldn't reach the hub.\nmore") if split == "a" else OSError
        return FakeDataset([{"sentence": "a", "label": -1}, {"sentence": "b", "label": 1}])

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    return module


def test_hub_data_set_is_named_with_or_without_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setitem(sys.modules, "datasets", fake_datasets(calls))
    table = open_table("hub:nyu-mll/glue:sst2:train")
    assert values(table) == [("a", "-1"), ("b", "1")]
    assert table.count() == 2
    open_table("hub:imdb:test")
    assert calls == [("nyu-mll/glue", "sst2", "train"), ("imdb", "test")]


def test_hub_failure_is_one_line_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", fake_datasets([]))
    message = refusal("hub:unknown:a")
    assert "Couldn't reach the hub;" in message and "pass a local file" in message
    assert "OSError" in refusal("hub:unknown:b")
    assert "hub:NAME:SPLIT" in refusal("hub:imdb")
