"""`predict(table)`: the answers of all tasks as a table of the same library."""

from __future__ import annotations

import pytest

import mops
from mops.errors import DataError, UsageError
from running import one_core, world

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
PAIRS = [
    {"sentence1": "bat dot git", "sentence2": "bun don", "sentence": "fan gin"},
    {"sentence1": "bin", "sentence2": "bin", "sentence": "dot dot fun"},
    {"sentence1": "gat but", "sentence2": "fit", "sentence": "gen"},
]


@pytest.fixture(scope="module")
def model() -> mops.Predictor:
    with one_core():
        return mops.load(world().run / "model")


def test_answers_and_probabilities_are_those_of_the_texts(model: mops.Predictor) -> None:
    frame = pandas.DataFrame(PAIRS, index=[7, 3, 5])
    answers = model.predict(frame)
    texts = [row["sentence"] for row in PAIRS]
    pairs = [(row["sentence1"], row["sentence2"]) for row in PAIRS]
    expected = model.predict_tasks({"sentiment": texts, "paraphrase": pairs, "similarity": pairs})
    assert list(answers.index) == [7, 3, 5]
    for name, own in expected.items():
        assert list(answers[name]) == own.labels == model.predict(name, expected_texts(name))
        shares = [answers[f"{name}.{label}"] for label in own.task.labels]
        for number, share in enumerate(shares):
            assert share.tolist() == pytest.approx(own.probabilities[:, number], abs=1e-6)
    assert "similarity" in answers and not [c for c in answers if c.startswith("similarity.")]


def expected_texts(task: str) -> list[str | tuple[str, ...]]:
    if task == "sentiment":
        return [row["sentence"] for row in PAIRS]
    return [(row["sentence1"], row["sentence2"]) for row in PAIRS]


def test_each_library_gets_its_own_table(model: mops.Predictor) -> None:
    rows = model.predict(PAIRS)
    assert isinstance(rows, list) and next(iter(rows[0])) == "sentiment"
    frame = model.predict(polars.DataFrame(PAIRS))
    assert isinstance(frame, polars.DataFrame) and frame.to_dicts() == rows
    assert model.predict(pandas.DataFrame(PAIRS)).to_dict("records") == rows


def test_a_task_and_its_columns_can_be_named(model: mops.Predictor) -> None:
    whole = model.predict(PAIRS)
    alone = model.predict(PAIRS, task="similarity")
    assert alone == [{"similarity": row["similarity"]} for row in whole]
    renamed = pandas.DataFrame({"body": [row["sentence"] for row in PAIRS]})
    answers = model.predict(renamed, text="body")
    assert list(answers["sentiment"]) == [row["sentiment"] for row in whole]
    assert not [column for column in answers if "paraphrase" in column]


def test_rows_with_a_problem_are_answered_and_named(model: mops.Predictor) -> None:
    with pytest.warns(UserWarning, match=r"1 rows have a problem .* table:2 sentence is empty"):
        answers = model.predict([{"sentence": "bat"}, {"sentence": None}, {"sentence": "dot"}])
    assert len(answers) == 3


def test_a_table_without_rows_has_the_same_columns(model: mops.Predictor) -> None:
    frame = pandas.DataFrame(PAIRS)
    answers = model.predict(frame.head(0))
    assert len(answers) == 0 and list(answers) == list(model.predict(frame))
    assert model.predict(polars.DataFrame(PAIRS).head(0)).columns == list(answers)
    assert model.predict([]) == []
    with pytest.raises(DataError, match="no task reads them"):
        model.predict(pandas.DataFrame({"x": []}))


def test_wrong_use(model: mops.Predictor) -> None:
    with pytest.raises(DataError, match="table has the columns x, and no task reads them"):
        model.predict([{"x": "bat"}])
    with pytest.raises(UsageError, match="no task 'sentimant'; there are"):
        model.predict(PAIRS, task="sentimant")
    with pytest.raises(UsageError, match=r"predict\('sentiment'\) has no texts"):
        model.predict("sentiment")
