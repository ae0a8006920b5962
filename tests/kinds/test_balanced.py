"""`class_weights: balanced`: the weights of scikit-learn, of the training rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from kinds.kind_data import kinds_recipe
from mops.data.dataset import read_dataset
from mops.errors import MopsError

BALANCED = "balanced"


def test_weights_of_classes_and_tags_are_sklearns(encoder: Path, tmp_path: Path) -> None:
    given = {f"tasks__{name}__class_weights": BALANCED for name in ("topic", "spans", "moods")}
    recipe = kinds_recipe(tmp_path, encoder, "topic", "spans", "moods", **given)
    tasks = read_dataset(recipe).tasks
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    said = {
        "topic": [row["topic"] for row in rows],
        "spans": [tag for row in rows for tag in row["tags"].split()],
    }
    for name, labels in said.items():
        wanted = compute_class_weight(BALANCED, classes=np.array(tasks[name].labels), y=labels)
        assert tasks[name].class_weights == pytest.approx(wanted)
    has = np.array([[mood in json.loads(row["moods"]) for mood in "aei"] for row in rows])
    assert tasks["moods"].class_weights == pytest.approx((~has).sum(0) / has.sum(0))
    complete = recipe.with_labels(tasks)
    assert complete.tasks["topic"].class_weights == tasks["topic"].class_weights
    assert complete.task_values() == {
        name: type(task)(**vars(task) | {"is_balanced": False}) for name, task in tasks.items()
    }


def test_numbers_have_no_class_weights(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(MopsError, match="numbers as labels"):
        kinds_recipe(tmp_path, encoder, "price", tasks__price__class_weights=BALANCED)
