"""A task with several training files: their weights in a pass, and what is left out of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import mops
from mops.config.training import Training
from mops.data.dataset import FileRows, read_dataset
from mops.data.schedule import plan_steps, shuffled
from mops.errors import DataError, RecipeError
from running import world

FILES = (FileRows(10), FileRows(40, 0.25), FileRows(3, 2.0), FileRows(5, 1.5))
OWN, QUARTER, TWICE, HALF_MORE = range(10), range(10, 50), range(50, 53), range(53, 58)


def test_weights_are_shares_of_a_pass() -> None:
    """Of the second file a quarter, of the third every row twice, of the fourth 8 of 5 rows."""
    for number in range(5):
        rows = Counter(shuffled(FILES, 1, "t", number).tolist())
        assert rows.total() == 10 + 10 + 6 + 8
        assert {row: rows[row] for row in OWN} == dict.fromkeys(OWN, 1)
        assert sum(rows[row] for row in QUARTER) == 10
        assert {row: rows[row] for row in TWICE} == dict.fromkeys(TWICE, 2)
        assert min(rows[row] for row in HALF_MORE) >= 1


def test_parts_of_a_file_follow_each_other() -> None:
    """Four quarters are the whole file; the next four are in another order."""
    passes = [set(shuffled(FILES, 1, "t", n).tolist()) & set(QUARTER) for n in range(8)]
    for first in (0, 4):
        assert set.union(*passes[first : first + 4]) == set(QUARTER)
    assert passes[0] != passes[4]


def test_one_file_of_weight_one_is_shuffled_as_its_number_of_rows() -> None:
    training = Training(max_steps=9, per_task_batch_size=4)
    by_number, by_file = (
        plan_steps(rows, training) for rows in ({"t": 12}, {"t": (FileRows(12),)})
    )
    assert all(by_number.rows_at(n) == by_file.rows_at(n) for n in range(9))
    assert sorted(shuffled((FileRows(12),), 0, "t", 3).tolist()) == list(range(12))


def two_files(tmp_path: Path, text: str = "", weight: float = 0.5) -> mops.Recipe:
    """The toy data, and six further rows of sentiment, one of them a validation row."""
    base = world().recipe()
    own = base.tasks["sentiment"].files()
    scored = Path(own["validation"]).read_text("utf-8").splitlines()[1].split("\t")[2]
    lines = [f"{n}\tx{n}\tbaba {'da' * n}\t{n % 5}" for n in range(5)] + [f"5\tx5\t{scored}\t1"]
    more = tmp_path / "more.csv"
    more.write_text(text or "\n".join(["\tid\tsentence\tsentiment", *lines]) + "\n", "utf-8")
    return world().recipe(tasks__sentiment__train={own["train"]: 1, str(more): weight})


def test_further_rows_follow_and_scored_ones_are_left_out(tmp_path: Path) -> None:
    recipe = two_files(tmp_path)
    dataset = read_dataset(recipe)
    train = dataset.splits["sentiment"]["train"]
    assert dataset.train_files["sentiment"] == (FileRows(60), FileRows(5, 0.5))
    assert [row.where for row in train.good[-2:]] == ["more.csv:5", "more.csv:6"]
    assert any("1 rows of more.csv left out" in note for note in dataset.notes)
    assert str(tmp_path / "more.csv") in dataset.digests
    assert dataset.train_files["paraphrase"] == (FileRows(30),)


def test_a_run_reads_all_files_and_resumes_on_them(tmp_path: Path) -> None:
    recipe = two_files(tmp_path)
    run = mops.train(recipe, tmp_path / "run")
    assert run.record.train_info.tasks["sentiment"].rows == 60 + 2
    assert len(run.record.meta_info.data_sha256) == 10
    again = mops.recipe(config=tmp_path / "run" / "recipe.yaml")
    assert again.tasks["sentiment"].train_files == recipe.tasks["sentiment"].train_files


def test_paths_are_those_of_the_recipe_file(tmp_path: Path) -> None:
    text = world().recipe().to_yaml()
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "a.csv").write_text("sentence\tsentiment\ngood\t1\n", "utf-8")
    path = folder / "mops.yaml"
    path.write_text(text, "utf-8")
    recipe = mops.recipe(config=path, set={"tasks.sentiment.train": {str(folder / "a.csv"): 2}})
    assert recipe.tasks["sentiment"].train_files == {str(folder / "a.csv"): 2}


@pytest.mark.parametrize(
    ("text", "weight", "error", "message"),
    [
        ("sentence\tsentiment\ngood\t9\n", 1, DataError, "more.csv: 1 of 1 rows cannot be used"),
        ("sentence\tother\ngood\t9\n", 1, DataError, "no column 'sentiment'"),
        ("", 0, RecipeError, "tasks.sentiment.train"),
    ],
)
def test_mistakes(
    tmp_path: Path, text: str, weight: float, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_dataset(two_files(tmp_path, text, weight))


def test_no_row_is_drawn_from_beyond_its_file() -> None:
    for number in range(20):
        rows = shuffled((FileRows(7, 0.6), FileRows(9, 3.3)), 5, "t", number)
        assert len(rows) == 4 + 30
        assert np.all((rows >= 0) & (rows < 16))
