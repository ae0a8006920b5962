"""Scores against scikit-learn and scipy, overall scores by hand, errors against closed forms."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from building import THREE_TASKS
from mops.evaluate import metrics as scores
from mops.kinds import metrics as of_rows
from mops.tasks import Task

SENTIMENT, PARAPHRASE, SIMILARITY = THREE_TASKS
TASKS = {task.name: task for task in THREE_TASKS}


def classes(kind: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    targets, predictions = draw.integers(0, count, 80), draw.integers(0, count, 80)
    change = {
        "random": lambda: None,
        "right": lambda: predictions.__setitem__(slice(None), targets),
        "constant prediction": lambda: predictions.__setitem__(slice(None), count - 1),
        "constant first": lambda: predictions.__setitem__(slice(None), 0),
        "one class never predicted": lambda: predictions.__setitem__(predictions == count - 1, 0),
        "one class never true": lambda: targets.__setitem__(targets == 0, 1),
        "last class nowhere": lambda: [
            values.__setitem__(values == count - 1, 0) for values in (targets, predictions)
        ],
    }
    change[kind]()
    return targets.astype(float), predictions.astype(float)


KINDS = (
    "random", "right", "constant prediction", "constant first", "one class never predicted",
    "one class never true",
)  # fmt: skip


@pytest.mark.parametrize("kind", (*KINDS, "last class nowhere"))
@pytest.mark.parametrize("count", [3, 5])
def test_scores_of_many_classes_are_sklearns_macro_scores(kind: str, count: int) -> None:
    for seed in range(5):
        targets, predictions = classes(kind, count, seed)
        found = scores.score(SENTIMENT, targets, predictions)
        options = {"average": "macro", "zero_division": 0}
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(targets, predictions))
        assert found["f1"] == pytest.approx(metrics.f1_score(targets, predictions, **options))
        assert found["precision"] == pytest.approx(
            metrics.precision_score(targets, predictions, **options)
        )
        assert found["recall"] == pytest.approx(
            metrics.recall_score(targets, predictions, **options)
        )
        assert found["macro_f1"] == pytest.approx(metrics.f1_score(targets, predictions, **options))
        balanced = metrics.recall_score(targets, predictions, labels=np.unique(targets), **options)
        assert found["balanced_accuracy"] == pytest.approx(balanced)
        assert found["matthews"] == pytest.approx(metrics.matthews_corrcoef(targets, predictions))
        assert found["rows"] == 80


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_two_classes_are_sklearns_scores_of_the_second(kind: str) -> None:
    for seed in range(5):
        targets, predictions = classes(kind, 2, seed)
        found = scores.score(PARAPHRASE, targets, predictions)
        for name in ("f1", "precision", "recall"):
            theirs = getattr(metrics, f"{name}_score")(targets, predictions, zero_division=0)
            assert found[name] == pytest.approx(theirs), name
        macro = metrics.f1_score(targets, predictions, average="macro", zero_division=0)
        assert found["macro_f1"] == pytest.approx(macro)


def test_the_second_class_is_scored_also_when_no_row_has_it() -> None:
    """Only class 0 occurs: the F1 of class 1 is 0, not the perfect F1 of class 0."""
    nothing = np.zeros(6)
    found = scores.score(PARAPHRASE, nothing, nothing)
    assert found["accuracy"] == 1
    assert (found["f1"], found["precision"], found["recall"]) == (0, 0, 0)


def test_a_third_class_that_does_not_occur_leaves_a_macro_score_of_two() -> None:
    """A task of five classes of which only the first two occur is still scored by macro F1."""
    targets, predictions = np.array([0.0, 1, 1, 0, 1, 1]), np.array([0.0, 1, 0, 0, 1, 1])
    found = scores.score(SENTIMENT, targets, predictions)
    assert found["f1"] == pytest.approx(metrics.f1_score(targets, predictions, average="macro"))


@pytest.mark.parametrize("kind", ["random", "ties", "monotone", "opposite"])
def test_correlations_are_scipys(kind: str) -> None:
    for seed in range(5):
        draw = np.random.default_rng(seed)
        targets, predictions = draw.normal(size=50), draw.normal(size=50)
        if kind == "ties":
            targets, predictions = targets.round(), predictions.round(1)
        if kind in ("monotone", "opposite"):
            predictions = (1 if kind == "monotone" else -1) * np.exp(targets)
        found = scores.score(SIMILARITY, targets, predictions)
        assert found["pearson"] == pytest.approx(stats.pearsonr(targets, predictions).statistic)
        assert found["spearman"] == pytest.approx(stats.spearmanr(targets, predictions).statistic)
        assert set(found) == {"pearson", "spearman", "rows"}


@pytest.mark.parametrize("of", [of_rows.pearson, of_rows.spearman])
def test_a_constant_side_has_no_correlation_and_gives_zero(of: object) -> None:
    rising, flat = np.arange(5.0), np.full(5, 0.1)  # 0.1 has no exact mean
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert of(rising, flat) == 0 and of(flat, rising) == 0 and of(flat, flat) == 0
        assert of(np.array([2.0]), np.array([3.0])) == 0


def test_ranks_are_scipys_from_zero() -> None:
    values = np.random.default_rng(0).integers(0, 6, 40).astype(float)
    np.testing.assert_array_equal(of_rows.ranks(values), stats.rankdata(values) - 1)


def test_both_overall_scores_by_hand() -> None:
    found = {"sentiment": 0.5, "paraphrase": 0.8, "similarity": 0.2}
    overall = {"overall": (0.5 + 0.8 + 0.2) / 3, "overall_normalised": (0.5 + 0.8 + 1.2 / 2) / 3}
    assert scores.overall_scores(TASKS, found) == pytest.approx(overall)


def test_matthews_counts_as_a_correlation_in_the_normalised_overall() -> None:
    cola = Task(
        name="cola", type="classification", text=("t",), label="l", labels=("0", "1"),
        score="matthews",
    )  # fmt: skip
    overall = {"overall": -0.5, "overall_normalised": 0.25}
    assert scores.overall_scores({"cola": cola}, {"cola": -0.5}) == pytest.approx(overall)


def test_overall_is_over_the_tasks_that_have_a_score() -> None:
    assert scores.overall_scores(TASKS, {"paraphrase": 0.4})["overall"] == pytest.approx(0.4)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_the_bootstrap_error_of_accuracy_is_near_its_closed_form(share: float) -> None:
    """sqrt(p (1 - p) / n); 500 resamples estimate it to about 3 %, four of these are allowed."""
    rows = 400
    targets = np.zeros(rows)
    predictions = (np.arange(rows) >= share * rows).astype(float)
    closed = math.sqrt(share * (1 - share) / rows)
    assert scores.standard_error(SENTIMENT, targets, predictions) == pytest.approx(closed, rel=0.13)


def test_the_bootstrap_error_is_repeatable_and_of_the_tasks_own_score() -> None:
    draw = np.random.default_rng(1)
    targets = draw.normal(size=60)
    predictions = targets + draw.normal(size=60)
    first = scores.standard_error(SIMILARITY, targets, predictions)
    assert first == scores.standard_error(SIMILARITY, targets, predictions)
    r = stats.pearsonr(targets, predictions).statistic
    assert first == pytest.approx((1 - r**2) / math.sqrt(60), rel=0.35)  # for normal values
