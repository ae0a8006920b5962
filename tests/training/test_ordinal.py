"""The ordinal loss: its formula, its answers, and its way through a bundle."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

import mops
from mops.errors import DataError, RecipeError
from mops.predict.inference import decide
from mops.tasks import Task
from mops.training.losses import loss_of
from running import world, write_toy_data

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(12, 3)) * 2
CLASSES = np.arange(12) % 4


def task_of(**values: Any) -> Task:
    base = {"name": "t", "type": "classification", "text": ("a",), "label": "y", "loss": "ordinal"}
    return Task(**base | values)


FOUR = task_of(labels=("bad", "poor", "fair", "good"))


def loss(task: Task, outputs: Any, targets: Any) -> float:
    return float(loss_of(task, torch.tensor(outputs), torch.tensor(targets, dtype=torch.float32)))


@pytest.mark.parametrize("weights", [(), (0.5, 1.0, 3.0, 2.0)])
def test_loss(weights: tuple[float, ...]) -> None:
    """Row by row: the sum over k of -log P(y > k) where it is so and -log P(y <= k) where not."""
    rows = []
    for z, y in zip(LOGITS, CLASSES, strict=True):
        rows.append(sum(-np.log(expit(z[k]) if y > k else 1 - expit(z[k])) for k in range(3)))
    row_weights = np.array(weights or (1.0,) * 4)[CLASSES]
    expected = (row_weights * rows).sum() / row_weights.sum()
    task = task_of(labels=FOUR.labels, class_weights=weights)
    assert task.outputs == 3
    assert loss(task, LOGITS, CLASSES) == pytest.approx(expected, abs=1e-12)


def test_a_miss_by_two_classes_costs_more_than_by_one() -> None:
    sure = 6.0 * np.array([[1.0, -1.0, -1.0]])  # class 1
    costs = [loss(FOUR, sure, [y]) for y in range(4)]
    assert costs[0] == pytest.approx(costs[2])
    assert costs[1] < costs[2] < costs[3]


def test_shares_are_the_differences_of_the_cumulative_ones() -> None:
    above = np.array([[0.9, 0.6, 0.1], [0.2, 0.1, 0.05], [0.99, 0.97, 0.9]])
    answers = decide(FOUR, logit(above).astype(np.float32))
    expected = [[0.1, 0.3, 0.5, 0.1], [0.8, 0.1, 0.05, 0.05], [0.01, 0.02, 0.07, 0.9]]
    np.testing.assert_allclose(answers.probabilities, expected, atol=1e-6)
    assert answers.as_strings() == ["fair", "bad", "good"]


def test_shares_where_the_network_contradicts_itself() -> None:
    """P(y > 2) above P(y > 1) is cut to it; shares stay shares, also for extreme outputs."""
    above = np.array([[0.7, 0.2, 0.6]])
    found = decide(FOUR, logit(above).astype(np.float32)).probabilities
    np.testing.assert_allclose(found, [[0.3, 0.5, 0.0, 0.2]], atol=1e-6)
    wild = np.concatenate([LOGITS * 50, [[3000.0, -3000.0, 3000.0], [-1e30, 1e30, 0.0]]])
    shares = decide(FOUR, wild.astype(np.float32)).probabilities
    assert (shares >= 0).all() and np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"labels": ("0", "1")}, "ordinal needs three labels or more, there are 2"),
        (
            {"type": "similarity", "text": ("a", "b"), "range": (0.0, 1.0)},
            "loss 'ordinal' does not fit a similarity; allowed: mse",
        ),
    ],
)
def test_what_has_no_order_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        task_of(**values)


def test_words_read_from_a_file_have_no_order(tmp_path: Path) -> None:
    data = write_toy_data(tmp_path / "data")
    for split in ("train", "dev"):
        file = data / f"ids-sst-{split}.csv"
        header, *lines = file.read_text("utf-8").splitlines()
        file.write_text("\n".join([header, *(f"{line}-th" for line in lines)]) + "\n", "utf-8")
    given: dict[str, Any] = {"data": data, "tasks__sentiment__loss": "ordinal"}
    with pytest.raises(DataError, match="lowest first"):
        mops.train(
            world().recipe(**given, tasks__sentiment__labels=[], training__max_steps=1),
            tmp_path / "run",
        )


def test_through_training_bundle_and_prediction(tmp_path: Path) -> None:
    recipe = world().recipe("shared", tasks__sentiment__loss="ordinal")
    run = mops.train(recipe, tmp_path / "run")
    sizes = run.record.costs.parameters_by_owner
    assert sizes["head/sentiment"] == 4 * 32 + 4  # one output less than classes
    rows = (world().data / "ids-sst-test-student.csv").read_text("utf-8").splitlines()[1:]
    with (run.folder / "predictions" / "sentiment-test.csv").open(encoding="utf-8") as file:
        written = [row["prediction"] for row in csv.DictReader(file)]
    model = mops.load(run.folder / "model")
    assert model.predict("sentiment", [row.split("\t")[2] for row in rows]) == written
    assert set(written) <= set("01234")
