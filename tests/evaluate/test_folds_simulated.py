"""Folds share training rows: as runs of their own they would find differences that are none.

Two learners that are equal by symmetry, on the same few rows: each sees half of the features.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

from mops.evaluate import joint as joint_module
from mops.evaluate import statistics
from mops.evaluate.joint import estimate_joint
from mops.evaluate.statistics import row_covariance, row_noise
from mops.tasks import Task

ROWS, FEATURES, FOLDS, SEEDS, SURVEYS = 120, 8, 5, 3, 150
TASK = Task(name="t", type="classification", text=("x",), label="y", labels=("0", "1"))


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_module, "DRAWS", 4000)
    monkeypatch.setattr(statistics, "RESAMPLES", 300)


def answers(draw: np.random.Generator, x_NF: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    """Out-of-fold answers of least squares; a run starts at random weights of small effect."""
    given, fold_N = np.zeros(len(y_N)), np.arange(len(y_N)) % FOLDS
    for fold in range(FOLDS):
        train = fold_N != fold
        noisy = x_NF[train] + 0.2 * draw.normal(size=x_NF[train].shape)
        weights = np.linalg.lstsq(noisy, 2 * y_N[train] - 1, rcond=None)[0]
        given[~train] = x_NF[~train] @ weights > 0
    return given


def test_folds_are_one_run_of_their_seed() -> None:
    """At most 5 % of such surveys call a difference significant; with folds as runs many do."""
    found = naive = 0
    for survey in range(SURVEYS):
        draw = np.random.default_rng(survey)
        y_N = (np.arange(ROWS) % 2).astype(float)
        x_NF = draw.normal(size=(ROWS, 2 * FEATURES)) + 0.35 * (2 * y_N[:, None] - 1)
        parts = {"one": x_NF[:, :FEATURES], "other": x_NF[:, FEATURES:]}
        runs = {n: {s: answers(draw, x, y_N) for s in range(SEEDS)} for n, x in parts.items()}
        values = {
            n: {s: float((a == y_N).mean()) for s, a in own.items()} for n, own in runs.items()
        }
        noise = row_noise(partial(row_covariance, TASK, y_N), runs)
        joint = estimate_joint(values, *noise.scaled(1.0))
        found += joint.against("one")["other"].is_significant
        by_fold = {
            n: [(a == y_N)[f::FOLDS].mean() for a in own.values() for f in range(FOLDS)]
            for n, own in runs.items()
        }
        naive += stats.ttest_rel(by_fold["one"], by_fold["other"]).pvalue < 0.05
    allowed = 2 * (0.05 * 0.95 / SURVEYS) ** 0.5
    assert found / SURVEYS <= 0.05 + allowed
    assert naive / SURVEYS >= 0.2
