"""How sure and how wrong answers are, by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from mops.predict.inference import decide
from mops.tasks import Task


def test_the_loss_of_a_class_is_that_of_its_share() -> None:
    task = Task(
        name="mood",
        type="classification",
        text=("text",),
        label="mood",
        labels=("bad", "middling", "good"),
    )
    logits = np.array([[2.0, 0.0, -1.0], [0.0, 0.5, 0.0], [-3.0, 0.0, 1.0]], np.float32)
    answers = decide(task, logits)
    targets = np.array([0.0, 2.0, np.nan])
    losses = answers.losses(targets)
    expected = metrics.log_loss([0, 2], answers.probabilities[:2], labels=[0, 1, 2])
    assert losses[:2].mean() == pytest.approx(expected) and np.isnan(losses[2])
    assert answers.confidences() == pytest.approx([0.8438, 0.4519, 0.7214], abs=1e-4)


def test_a_share_of_nothing_has_a_finite_loss() -> None:
    task = Task(
        name="mood", type="classification", text=("text",), label="mood", labels=("bad", "good")
    )
    (loss,) = decide(task, np.array([[1000.0, -1000.0]], np.float32)).losses(np.array([1.0]))
    assert 700 < loss < 710


def test_the_loss_of_a_value_is_its_squared_error() -> None:
    task = Task(name="near", type="similarity", text=("a", "b"), label="near", range=(0.0, 5.0))
    answers = decide(task, np.array([[1.5], [9.0]], np.float32))
    assert answers.losses(np.array([1.0, 4.0])) == pytest.approx([0.25, 1.0])
    assert answers.confidences() == []
