"""Evaluation: which rows count for which score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from building import THREE_TASKS
from mops.data.splits import Row
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


def test_a_wrong_row_counts() -> None:
    rows = rows_of(60)
    found = judge(answers_of(rows, wrong={"7"}), rows, "report")
    assert set(found) == {"report"} and found["report"]["rows"] == 60
    assert found["report"]["accuracy"] == 1 - 1 / 60


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


def test_a_score_has_its_standard_error() -> None:
    """That of a proportion."""
    rows = rows_of(60)
    found = judge(answers_of(rows, wrong={"1", "2", "3", "4"}), rows, "validation")
    expected = (56 / 60 * 4 / 60 / 60) ** 0.5
    assert found["validation"]["stderr"] == pytest.approx(expected, rel=0.1)


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
