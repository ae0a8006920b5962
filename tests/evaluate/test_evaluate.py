"""Evaluation: which rows count for which score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from building import THREE_TASKS
from mops.data.examples import Row, half
from mops.evaluate.evaluate import PARTS, judge, score_table
from mops.predict.inference import Predictions

SENTIMENT, PARAPHRASE, SIMILARITY = THREE_TASKS
TASKS = {task.name: task for task in THREE_TASKS}


def rows_of(count: int) -> list[Row]:
    return [Row(str(n), (f"text {n}",), str(n % 5), f"f:{n}") for n in range(count)]


def answers_of(rows: list[Row], wrong: set[str] = frozenset()) -> Predictions:
    """Right for every row but those named."""
    numbers = [(int(row.label or 0) + (row.id in wrong)) % 5 for row in rows]
    return Predictions(SENTIMENT, np.array(numbers, dtype=float), np.zeros((len(rows), 5)))


def test_the_halves_are_disjoint_and_cover_validation() -> None:
    rows = rows_of(60)
    found = judge(answers_of(rows), rows, "validation")
    assert set(found) == {"validation", "selection", "report"}
    assert found["selection"]["rows"] > 0 and found["report"]["rows"] > 0
    assert found["selection"]["rows"] + found["report"]["rows"] == found["validation"]["rows"] == 60


@pytest.mark.parametrize("part", ["selection", "report"])
def test_a_wrong_row_counts_in_its_own_half_and_in_the_whole(part: str) -> None:
    rows = rows_of(60)
    row = next(row for row in rows if half(row) == part)
    found = judge(answers_of(rows, wrong={row.id}), rows, "validation")
    other = {"selection": "report", "report": "selection"}[part]
    assert found[part]["accuracy"] == 1 - 1 / found[part]["rows"]
    assert found[other]["accuracy"] == 1
    assert found["validation"]["accuracy"] == 1 - 1 / 60


def test_a_row_stays_in_its_half_when_the_order_and_the_spelling_change() -> None:
    for row in rows_of(20):
        assert half(row) == half(replace(row, id="x", texts=(row.texts[0].upper() + "!",)))
    pair = Row("1", ("one thing", "another"), "0", "f:1")
    assert half(pair) == half(replace(pair, texts=pair.texts[::-1]))


def test_other_splits_are_not_halved() -> None:
    rows = rows_of(20)
    assert set(judge(answers_of(rows), rows, "test")) == {"test"}


def test_rows_without_label_or_with_a_problem_are_not_scored() -> None:
    rows = rows_of(20)
    rows[3] = replace(rows[3], label=None)
    rows[4] = replace(rows[4], problem="sentence is empty")
    wrong_where_it_does_not_count = answers_of(rows, wrong={"3", "4"})
    found = judge(wrong_where_it_does_not_count, rows, "test")
    assert found["test"]["rows"] == 18 and found["test"]["accuracy"] == 1


def test_a_split_without_any_label_has_no_score() -> None:
    rows = [replace(row, label=None) for row in rows_of(5)]
    assert judge(answers_of(rows), rows, "test") == {}


def test_each_part_has_its_standard_error() -> None:
    rows = rows_of(60)
    found = judge(answers_of(rows, wrong={"1", "2", "3", "4"}), rows, "validation")
    assert all(0 <= part["stderr"] < 0.3 for part in found.values())
    assert found["validation"]["stderr"] > 0


def scores_of(**main: float) -> dict[str, dict[str, dict[str, float]]]:
    return {
        name: {"report": {TASKS[name].score_name: value}, "train": {TASKS[name].score_name: 1.0}}
        for name, value in main.items()
    }


def test_the_table_has_both_overall_scores_on_every_part() -> None:
    table = score_table(TASKS, scores_of(sentiment=0.4, paraphrase=0.6, similarity=0.5))
    assert set(table.overall) == set(PARTS)
    assert table.overall["report"] == {
        "overall": pytest.approx(0.5),
        "overall_normalised": pytest.approx((0.4 + 0.6 + 0.75) / 3),
    }
    assert table.overall["test"] == {}
    assert table.main == {n: t.score_name for n, t in TASKS.items()}


def test_an_untrained_task_is_shown_but_does_not_count() -> None:
    table = score_table(
        TASKS, scores_of(sentiment=0.4, paraphrase=0.6, similarity=0.5), untrained=["similarity"]
    )
    assert table.overall["report"]["overall"] == pytest.approx(0.5)
    assert table.tasks["similarity"]["report"] == {"pearson": 0.5}
    assert table.untrained == ("similarity",)


def test_overall_is_over_all_tasks_or_not_there() -> None:
    """A mean over some of the tasks would look like the mean over all of them."""
    tasks = {name: TASKS[name] for name in ("sentiment", "similarity")}
    found = scores_of(sentiment=0.4, similarity=0.5)
    assert score_table(tasks, found).overall["report"]["overall"] == pytest.approx(0.45)
    del found["similarity"]["report"]
    assert score_table(tasks, found).overall["report"] == {}
