"""Recipes from tables in memory: what is decided, and the files they become."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mops
from mops.data.dataset import read_dataset
from mops.data.folders import infer_tasks
from mops.errors import MopsError

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
TEXT = "the printer of our team is broken again please help invoice amount login fails"
WORDS = TEXT.split()
Rows = list[dict[str, Any]]


def tickets(count: int = 120) -> Rows:
    draw = random.Random(0)
    return [
        {
            "ticket_id": number,
            "body": " ".join(draw.choices(WORDS, k=8)) + f" {number}",
            "urgency": draw.randint(1, 4),
            "tags": draw.sample(["crash", "billing", "login"], draw.randint(0, 2)),
        }
        for number in range(count)
    ]


class HubTable:
    """What a `datasets.Dataset` is to us: names of columns, and rows as it is iterated."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.column_names = rows, list(rows[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def entries(data: Any, **words: Any) -> dict[str, dict[str, Any]]:
    tasks = mops.recipe(data=data, **words).tasks
    return {name: entry.model_dump(exclude_defaults=True) for name, entry in tasks.items()}


def test_all_libraries_give_the_same_tasks_and_the_same_file() -> None:
    rows = tickets()
    forms = [pandas.DataFrame(rows), polars.DataFrame(rows), rows, tuple(rows), HubTable(rows)]
    found = [entries(form) for form in forms]
    assert all(one == found[0] for one in found)
    assert {name: (e["type"], e["text"]) for name, e in found[0].items()} == {
        "urgency": ("classification", "body"),
        "tags": ("multilabel", "body"),
    }
    (file,) = {entry["train"] for entry in found[0].values()}
    assert [json.loads(line) for line in Path(file).read_text("utf-8").splitlines()] == rows
    assert Path(file).parent.parent == Path("mops-data").resolve()


def test_the_decision_is_that_about_the_same_file(tmp_path: Path) -> None:
    rows, folder = tickets(), tmp_path / "files"
    folder.mkdir()
    pandas.DataFrame(rows).to_json(folder / "tickets.jsonl", orient="records", lines=True)
    inferred = {name: proposal.entry for name, proposal in infer_tasks(folder)[0].items()}
    made = entries(pandas.DataFrame(rows))
    assert inferred.keys() == made.keys()
    for name, entry in made.items():
        same = [key for key in entry if key != "train"]
        assert {key: entry[key] for key in same} == {key: inferred[name][key] for key in same}
    comments = Path(made["urgency"]["train"]).with_name("mops.yaml").read_text("utf-8")
    assert "4 values, ordered numbers: 1, 2, 3, 4" in comments
    assert "other columns: ticket_id (ids, 120 different)" in comments


def test_the_yaml_beside_the_rows_is_a_recipe_of_its_own() -> None:
    made = mops.recipe(data=tickets())
    beside = Path(str(made.tasks["urgency"].train)).with_name("mops.yaml")
    assert mops.recipe(config=beside).tasks == made.tasks
    dataset = read_dataset(made)
    assert len(dataset.splits["tags"]["validation"].good) == 12
    assert dataset.leaders == {"urgency": "urgency", "tags": "urgency"}  # rows are read once


def test_a_name_chooses_its_column_and_equal_tables_are_one_file() -> None:
    frame = pandas.DataFrame(tickets())
    made = entries({"urgency": frame, "tags": frame.copy()})
    assert list(made) == ["urgency", "tags"]
    assert made["urgency"]["train"] == made["tags"]["train"]
    assert (made["urgency"]["label"], made["tags"]["label"]) == ("urgency", "tags")


def test_what_is_said_is_not_decided() -> None:
    frame = pandas.DataFrame(tickets()).assign(note="from the shop in the town")
    frame["score"] = [number % 40 / 10 for number in range(len(frame))]
    said = {"type": "regression", "text": "note", "label": "urgency"}
    made = entries({"speed": {"train": frame, **said}})["speed"]
    assert made.pop("train").endswith("speed.train.jsonl")
    assert made == {**said, "split": 0.1}
    assert entries({"speed": {"train": frame, "label": "score"}})["speed"]["range"] == (0.0, 4.0)
    wide = {"train": frame, "label": "score", "range": [0, 10], "split": 0.2, "loss": "mae"}
    made = entries({"speed": wide})["speed"]
    assert (made["range"], made["split"], made["loss"]) == ((0.0, 10.0), 0.2, "mae")


def test_splits_are_tables_or_files(tmp_path: Path) -> None:
    rows = tickets()
    pandas.DataFrame(rows[100:]).to_csv(tmp_path / "test.csv", index=False)
    splits = {"train": rows[:80], "dev": polars.DataFrame(rows[80:100]), "test": "test.csv"}
    for data in (splits, {"urgency": splits}):
        made = entries(data)["urgency"]
        assert made["test"] == str(tmp_path / "test.csv")
        names = [Path(made[split]).name.partition(".")[2] for split in ("train", "validation")]
        assert names == ["train.jsonl", "validation.jsonl"] and "split" not in made


def test_missing_values_of_every_library_are_missing() -> None:
    rows = tickets(60)
    frame = pandas.DataFrame(rows).astype({"urgency": "Int64"})
    frame.loc[3, "urgency"] = pandas.NA
    frame.loc[4, "body"] = None
    frame["when"] = pandas.Timestamp("2026-01-02")
    frame.loc[5, "when"] = pandas.NaT
    file = mops.recipe(data={"urgency": frame}).tasks["urgency"].train
    lines = [json.loads(line) for line in Path(str(file)).read_text("utf-8").splitlines()]
    assert (lines[3]["urgency"], lines[4]["body"], lines[5]["when"]) == (None, None, None)
    assert lines[0]["when"] == "2026-01-02 00:00:00" and lines[0]["urgency"] == rows[0]["urgency"]
    assert "2 of 60 rows" in mops.check(mops.recipe(data={"urgency": frame})).notes[0]


def test_a_table_is_written_once_where_the_user_says(tmp_path: Path) -> None:
    frame = pandas.DataFrame(tickets())
    first = entries(frame, data_folder="elsewhere")["urgency"]["train"]
    written = Path(first).stat().st_mtime_ns
    assert entries(frame, data_folder="elsewhere")["urgency"]["train"] == first
    assert Path(first).stat().st_mtime_ns == written
    assert Path(first).parent.parent == tmp_path / "elsewhere"
    assert not [*Path(first).parent.glob(".*")]
    Path(first).write_text("{}\n", "utf-8")  # somebody broke it
    assert len(read_dataset(mops.recipe(data=frame, data_folder="elsewhere")).splits) == 2
    assert entries(frame.head(100), data_folder="elsewhere")["urgency"]["train"] != first


def test_sets_are_lists_in_one_order() -> None:
    rows = [{**row, "tags": set(row["tags"])} for row in tickets()]
    made = entries(pandas.DataFrame(rows))
    assert made["tags"]["type"] == "multilabel"
    lists = [{**row, "tags": sorted(row["tags"])} for row in tickets()]
    assert entries(lists)["tags"]["train"] == made["tags"]["train"]
    frozen = [{**row, "tags": frozenset(row["tags"])} for row in tickets()]
    assert entries(frozen)["tags"]["train"] == made["tags"]["train"]


def test_a_file_is_data_too(tmp_path: Path) -> None:
    rows = [{**row, "tags": ";".join(row["tags"])} for row in tickets()]
    pandas.DataFrame(rows).to_csv("tickets.csv", index=False)
    for name in ("tickets.csv", tmp_path / "tickets.csv"):
        made = entries(name)
        assert list(made) == ["urgency", "tags"]
        assert made["tags"]["train"] == str(tmp_path / "tickets.csv")
    with pytest.raises(MopsError, match=r"mops\.yaml is no data; give a recipe as `config`"):
        mops.recipe(data="mops.yaml")


def test_messages_name_the_task_or_the_table() -> None:
    rows = [{"body": row["body"], "urgency": "x"} for row in tickets()]
    said = {"type": "classification", "text": "body", "label": "urgency"}
    for data in (
        rows,
        {"speed": rows},
        {"train": rows, **said},
        {"speed": {"train": rows, **said}},
    ):
        with pytest.raises(MopsError) as caught:
            mops.check(mops.recipe(data=data))
        assert "task ''" not in str(caught.value) and "'task'" not in str(caught.value)


UNTAGGED = [{key: row[key] for key in row if key != "tags"} for row in tickets()]
BROKEN: list[tuple[Any, str]] = [
    (pandas.DataFrame(), "train has no rows; allowed: a pandas or polars DataFrame"),
    ({"urgency": []}, "train of 'urgency' has no rows"),
    ([1, 2], "train is a list; allowed"),
    (7, "train is a int; allowed"),
    (pandas.DataFrame([["a b c", 1]], columns=["x", "x"]), "several columns of one name (x, x)"),
    ({"Urgency!": tickets()}, "task 'Urgency!': a name may contain only small letters"),
    ({"urgency": {"text": "body"}}, "task 'urgency' has no training rows; found text"),
    ({"urgency": {"train": tickets(), "lable": "x"}}, "unknown key 'lable'"),
    ({"urgency": {"train": tickets(), "label": "urgent"}}, "no column 'urgent'; found ticket_id"),
    (
        [{"a": n} for n in range(40)],
        "the table: no text column; its columns: a (ids, 40 different)",
    ),
    ({"urgancy": tickets()}, "found urgency, tags. Did you mean 'urgency'? Name the task as its"),
    ({"mood": tickets(), "urgency": tickets()}, "task 'mood': no label column has this name"),
    ({"mood": UNTAGGED, "urgency": UNTAGGED}, "tasks 'mood' and 'urgency' both learn the column"),
    ({"urgency": [{**row, "urgency": "x"} for row in UNTAGGED]}, "task 'urgency': no label column"),
    ({"urgency": {"train": tickets(), "test": [{"x": 1}]}}, "it has no column body"),
]


@pytest.mark.parametrize(("data", "message"), BROKEN, ids=lambda value: str(value)[:30])
def test_wrong_data_is_one_line(data: Any, message: str) -> None:
    with pytest.raises(MopsError) as caught:
        mops.recipe(data=data)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
