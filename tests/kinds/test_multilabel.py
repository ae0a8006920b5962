"""Multilabel: scores against scikit-learn, cells, thresholds, bad rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sklearn import metrics

import mops
from kinds.kind_data import kinds_recipe
from mops.config.recipe import to_recipe
from mops.data.dataset import read_dataset, read_rows
from mops.errors import MopsError
from mops.evaluate.evaluate import read_predictions
from mops.evaluate.metrics import metrics_of, score
from mops.evaluate.statistics import resamples
from mops.kinds.labels import best_cut
from mops.tasks import Task
from mops.training.losses import loss_of

MOODS = Task(name="moods", type="multilabel", text=("text",), label="moods", labels=("a", "e", "i"))


def answers(seed: int = 0, rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    targets = (draw.random((rows, 3)) < (0.2, 0.5, 0.7)).astype(float)
    return targets, np.where(draw.random((rows, 3)) < 0.8, targets, 1 - targets)


def test_scores_are_sklearns_and_resampled_by_row() -> None:
    targets, predictions = answers()
    found = score(MOODS, targets, predictions)
    for average in ("micro", "macro"):
        wanted = metrics.f1_score(targets, predictions, average=average)
        assert found[f"{average}_f1"] == pytest.approx(wanted)
    assert found["subset_accuracy"] == pytest.approx(metrics.accuracy_score(targets, predictions))
    counts = next(resamples("x", 60))[:10]
    for metric in metrics_of(MOODS).values():
        picks = [np.repeat(np.arange(60), row.astype(int)) for row in counts]
        wanted = [metric(targets[pick], predictions[pick]) for pick in picks]
        np.testing.assert_allclose(metric.resampler(targets, predictions)(counts), wanted)


def test_an_empty_cell_may_mean_no_label(tmp_path: Path) -> None:
    """Where the key says so; of test rows only if some of them have labels."""
    known = ["text,moods", "bat,a;e", "bin,", "don,e", "bet,"]
    bare = ["text,moods", "bat,", "bin,"]
    for name, lines in (("train", known), ("bare", bare)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    entry = {"type": "multilabel", "text": "text", "label": "moods", "on_bad_row": "skip"}
    files = {"train": str(tmp_path / "train.csv"), "validation": str(tmp_path / "train.csv")}
    wanted = {("missing", "train"): [2, None], ("no_labels", "train"): [4, ()],
              ("no_labels", "bare"): [0, None]}  # fmt: skip
    for (empty, test), (count, label) in wanted.items():
        own = entry | files | {"empty": empty, "test": str(tmp_path / f"{test}.csv")}
        splits = read_dataset(to_recipe({"tasks": {"moods": own}})).splits["moods"]
        assert len(splits["test"].labelled) == count and splits["test"].rows[1].label == label
    with pytest.raises(MopsError, match="belongs to a multilabel with one label column"):
        to_recipe({"tasks": {"x": {**entry, **files, "type": "classification",
                                   "empty": "no_labels"}}})  # fmt: skip


def test_the_loss_is_torchs_with_weights_of_positive_rows() -> None:
    outputs, targets = torch.randn(8, 3), torch.tensor(answers(rows=8)[0], dtype=torch.float32)
    weighted = Task(**vars(MOODS) | {"class_weights": (1.0, 2.0, 5.0)})
    for task, weights in ((MOODS, None), (weighted, torch.tensor([1.0, 2.0, 5.0]))):
        wanted = torch.nn.BCEWithLogitsLoss(pos_weight=weights)(outputs, targets)
        torch.testing.assert_close(loss_of(task, outputs, targets), wanted)


def test_the_threshold_has_the_highest_f1() -> None:
    draw = np.random.default_rng(2)
    for _ in range(20):
        targets, logits = (draw.random(40) < 0.3).astype(float), draw.normal(size=40).round(1)
        cuts = [*np.unique(logits) - 1e-3, best_cut(targets, logits)]
        scores = [metrics.f1_score(targets, logits > cut, zero_division=0) for cut in cuts]
        assert scores[-1] == max(scores)
    assert best_cut(np.zeros(3), np.arange(3.0)) == 0


@pytest.mark.parametrize(
    ("cell", "labels"),
    [('["e", "a"]', {"a", "e"}), ("a;e", {"a", "e"}), (" a ; a", {"a"}), ("[]", set())],
)
def test_cells_are_lists_or_separated_and_round_trip(cell: str, labels: set[str]) -> None:
    found, problem = MOODS.answer.read(cell, MOODS)
    assert set(found) == labels and not problem
    (decoded,) = MOODS.answer.decode(MOODS, MOODS.answer.encode(MOODS, [found]))
    assert set(MOODS.answer.read(MOODS.answer.write(decoded), MOODS)[0]) == labels


def test_columns_of_zero_and_one_are_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text("text,a,e,i\nx,1,0,0\ny,0,0.0,0\nz,1,1,0\nq,2,0,0\nr,,,\n")
    task = Task(**vars(MOODS) | {"label": ("a", "e", "i"), "labels": ()})
    rows = read_rows(tmp_path / "wide.csv", task, needs_label=True, on_bad_row="skip").rows
    assert [row.label for row in rows] == [("a",), (), ("a", "e"), None, None]
    assert [row.problem for row in rows[3:]] == ["a is '2', not 0 or 1", "has no a, e, i"]


def test_a_trained_multilabel_has_thresholds_of_the_rows_that_do_not_judge_it(
    encoder: Path, tmp_path: Path
) -> None:
    """The bundle has thresholds; the rows of each half are judged by those of the other."""
    recipe = kinds_recipe(tmp_path, encoder, "moods", "topic", training__max_steps=20)
    run = mops.train(recipe, tmp_path / "run")
    model = mops.load(run.folder / "model")
    stored = load_file(run.folder / "model" / "model.safetensors")
    assert stored["head/moods.threshold"].any() and "head/topic.threshold" not in stored
    assert set(run.scores.tasks["moods"]["report"]) >= {"micro_f1", "macro_f1", "subset_accuracy"}
    task = model.bundle.layout.tasks["moods"]
    rows = read_predictions(run.folder / "predictions" / "moods-validation.csv", task)
    texts = [json.loads(line)["text"] for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    again = model.predict_tasks({"moods": texts})["moods"]
    np.testing.assert_array_equal(again.values, rows.values)
    assert model.predict("moods", texts[:1])[0] == again.labels[0]
    numbers = score(task, rows.targets, rows.values)
    assert numbers["micro_f1"] == pytest.approx(run.scores.tasks["moods"]["validation"]["micro_f1"])


@pytest.mark.parametrize(
    ("label", "problem"),
    [('["a", "zoo"]', "train.jsonl:5 moods has 'zoo', which is not one of"), ("", "has no moods")],
)
def test_a_bad_row_is_named(encoder: Path, tmp_path: Path, label: str, problem: str) -> None:
    recipe = kinds_recipe(tmp_path, encoder, "moods", tasks__moods__labels=["a", "e", "i"])
    lines = (tmp_path / "train.jsonl").read_text().splitlines()
    lines[4] = json.dumps(json.loads(lines[4]) | {"moods": label})
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    with pytest.raises(MopsError, match=problem):
        read_dataset(recipe)


def test_a_constant_label_is_refused(encoder: Path, tmp_path: Path) -> None:
    recipe = kinds_recipe(tmp_path, encoder, "moods", tasks__moods__labels=["a", "e", "u"])
    recipe = recipe.model_copy()
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    with (tmp_path / "train.jsonl").open("w") as file:
        for row in rows:
            moods = [mood for mood in json.loads(row["moods"]) if mood != "i"]
            file.write(json.dumps(row | {"moods": moods}) + "\n")
    with pytest.raises(MopsError, match="none of the 60 training rows have the label 'u'"):
        read_dataset(recipe)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"separator": "--"}, "one character"),
        ({"label": ("a", "e")}, "differs from the columns"),
        ({"type": "classification", "label": ("a", "e")}, "names 2 columns"),
        ({"score": "accuracy"}, "does not fit"),
    ],
)
def test_what_does_not_fit_a_multilabel_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(MopsError, match=problem):
        Task(**vars(MOODS) | keys)
