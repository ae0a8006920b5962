"""Regression: scores against scikit-learn, scale of the labels, bad rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

import mops
from kinds.kind_data import kinds_recipe
from mops.data.dataset import encode_targets, read_dataset
from mops.errors import MopsError
from mops.evaluate.metrics import metrics_of, score
from mops.evaluate.statistics import resamples
from mops.tasks import Task
from mops.training.losses import loss_of

PRICE = Task(name="price", type="regression", text=("text",), label="price")


def test_scores_are_sklearns() -> None:
    draw = np.random.default_rng(0)
    targets = draw.normal(500, 80, 60)
    predictions = targets + draw.normal(10, 50, 60)
    found = score(PRICE, targets, predictions)
    assert found["r2"] == pytest.approx(metrics.r2_score(targets, predictions))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(targets, predictions))
    for name in ("r2", "mae"):
        metric = metrics_of(PRICE)[name]
        counts = next(resamples("x", 60))
        picks = [np.repeat(np.arange(60), row.astype(int)) for row in counts]
        wanted = [metric(targets[pick], predictions[pick]) for pick in picks]
        np.testing.assert_allclose(metric.resampler(targets, predictions)(counts), wanted)


@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
def test_losses_do_not_depend_on_the_unit_of_the_labels(loss: str) -> None:
    import torch

    outputs = torch.linspace(-1, 1, 8)[:, None]
    targets = torch.linspace(200, 900, 8)
    plain = Task(**vars(PRICE) | {"loss": loss, "scale": (550.0, 80.0)})
    other = Task(**vars(PRICE) | {"loss": loss, "scale": (55.0, 8.0)})
    assert loss_of(plain, outputs, targets) == pytest.approx(
        float(loss_of(other, outputs, targets / 10)), rel=1e-5
    )


def test_a_trained_regression_predicts_in_the_unit_of_its_labels(
    encoder: Path, tmp_path: Path
) -> None:
    run = mops.train(kinds_recipe(tmp_path, encoder, "price", "topic"), tmp_path / "run")
    entry = run.record.run_info.recipe["tasks"]["price"]
    dataset = read_dataset(kinds_recipe(tmp_path, encoder, "price"))
    targets = encode_targets(PRICE, dataset.splits["price"]["train"].good)
    assert entry["scale"] == pytest.approx([targets.mean(), targets.std()])
    assert "scale" not in run.record.run_info.recipe["tasks"]["topic"]
    found = mops.load(run.folder / "model").predict("price", ["bat ban", "din dit"])
    assert all(isinstance(value, float) and 0 < value < 2000 for value in found)
    assert set(run.scores.tasks["price"]["report"]) >= {"pearson", "spearman", "r2", "mae"}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("NaN", r"has no price \(NaN\)"),
        ('"inf"', "not a finite number"),
        ('"much"', "not a number"),
    ],
)
def test_a_label_that_is_no_number_is_named(
    encoder: Path, tmp_path: Path, value: str, problem: str
) -> None:
    recipe = kinds_recipe(tmp_path, encoder, "price")
    lines = (tmp_path / "train.jsonl").read_text().splitlines()
    lines[4] = json.dumps(json.loads(lines[4]) | {"price": "HERE"}).replace('"HERE"', value)
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    with pytest.raises(MopsError, match=rf"train.jsonl:5 .*{problem}"):
        read_dataset(recipe)


def test_equal_labels_are_refused(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(tmp_path, encoder, "price")
    rows = [
        json.loads(line) | {"price": 3}
        for line in (tmp_path / "train.jsonl").read_text().splitlines()
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(MopsError, match=r"all 60 training rows .* nothing to learn"):
        read_dataset(recipe)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [({"score": "mae"}, "does not fit"), ({"labels": ("a", "b")}, "numbers as labels")],
)
def test_what_does_not_fit_a_regression_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(MopsError, match=problem):
        Task(**vars(PRICE) | keys)
