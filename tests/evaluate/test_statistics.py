"""Tests and resampled rows, against scipy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from building import THREE_TASKS
from mops.evaluate import metrics as scores
from mops.evaluate import statistics as resampling
from mops.evaluate.statistics import holm, mcnemar, row_covariance
from mops.tasks import Task

SENTIMENT, PARAPHRASE, SIMILARITY = THREE_TASKS


# ------------------------------------------------------------------ distributions and tests


def test_holm_by_hand() -> None:
    """0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 but not below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize(("rows", "better"), [(40, 0.1), (300, 0.0), (4000, 0.02), (60, 0.9)])
def test_mcnemar_is_the_binomial_test(rows: int, better: float) -> None:
    draw = np.random.default_rng(rows)
    one, other = draw.random(rows) < 0.5 + better / 2, draw.random(rows) < 0.5 - better / 2
    wins, losses = int((one & ~other).sum()), int((other & ~one).sum())
    wanted = stats.binomtest(wins, wins + losses, 0.5).pvalue
    assert mcnemar(one, other) == pytest.approx(wanted, rel=1e-9)
    assert mcnemar(other, one) == mcnemar(one, other)


def test_mcnemar_of_equal_answers_says_nothing() -> None:
    right = np.array([True, False, True])
    assert mcnemar(right, right) == 1


# ------------------------------------------------------------------ rows


def classes(runs: int, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(7)
    targets = draw.integers(0, 2, rows).astype(float)
    return targets, np.where(draw.random((runs, rows)) < 0.7, targets, 1 - targets)


def values(runs: int, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(8)
    targets = draw.normal(size=rows)
    return targets, targets + draw.normal(size=(runs, rows)) + draw.normal(size=rows)


def test_accuracies_move_by_their_closed_form() -> None:
    """Covariance of right answers / rows; 1,000 resamples know it to about 5 %."""
    targets, predictions = classes(4)
    predictions[3] = predictions[2]
    found = row_covariance(PARAPHRASE, targets, predictions)
    wanted = np.cov((predictions == targets).astype(float)) / len(targets)
    assert found == pytest.approx(wanted, abs=0.15 * wanted[0, 0])
    assert found[2, 3] == pytest.approx(found[2, 2]) == pytest.approx(found[3, 3])


@pytest.mark.parametrize(
    "kind", ["accuracy", "f1", "precision", "recall", "matthews", "pearson", "macro_f1"]
)
def test_scores_of_sums_are_those_of_each_resample(kind: str) -> None:
    """One matrix product for all resamples, also where an answer hardly varies."""
    task = SIMILARITY if kind == "pearson" else SENTIMENT
    metric, draw = scores.metrics_of(task)[kind], np.random.default_rng(3)
    targets, runs = values(3)
    if task is SENTIMENT:
        targets, runs = (draw.integers(0, 4, own.shape).astype(float) for own in (targets, runs))
    runs[1] = runs[2, 1:] = 1 if task is SENTIMENT else 0.1
    for own in runs:
        resample = metric.resampler(targets, own)
        for counts in resampling.resamples("rows", len(targets)):
            picks = [np.repeat(np.arange(len(targets)), row.astype(int)) for row in counts]
            found = [metric(targets[pick], own[pick]) for pick in picks]
            np.testing.assert_allclose(resample(counts), found, atol=1e-9)
            break


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlations_move_as_normal_values_do(name: str) -> None:
    """(1 - r^2) / sqrt(n) for Pearson's; Spearman's is near it."""
    task = Task(name="s", type="similarity", text=("a", "b"), label="l", range=(0, 5), score=name)
    targets, predictions = values(1, 150)
    found = math.sqrt(row_covariance(task, targets, predictions)[0, 0])
    r = stats.pearsonr(targets, predictions[0]).statistic
    assert found == pytest.approx((1 - r**2) / math.sqrt(150), rel=0.3)


def test_any_score_can_be_resampled() -> None:
    """Of two classes that are equally frequent, F1 moves about as the accuracy does."""
    targets, predictions = classes(2)
    f1 = Task(
        name="f", type="classification", text=("t",), label="l", labels=("0", "1"), score="f1"
    )
    found = row_covariance(f1, targets, predictions)
    assert found.shape == (2, 2)
    own = scores.standard_error(f1, targets, predictions[0])
    assert math.sqrt(found[0, 0]) == pytest.approx(own, rel=0.12)


def test_resamples_draw_as_many_rows_as_there_are_and_are_repeatable() -> None:
    first, again = (list(resampling.resamples("a", 7)) for _ in range(2))
    assert len(np.concatenate(first)) == resampling.RESAMPLES
    assert (np.concatenate(first).sum(1) == 7).all()
    np.testing.assert_array_equal(first, again)
    other = list(resampling.resamples("b", 7))
    assert not np.array_equal(first, other)
