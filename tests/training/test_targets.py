"""Soft targets (label smoothing, teachers) and averaged weights, against their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import mops
from mops.config.training import Training
from mops.errors import RecipeError
from mops.tasks import Task
from mops.training import trainer as trainer_module
from mops.training.losses import LOSSES, loss_of
from mops.training.prepare import build_objective, build_trainer, prepare
from mops.training.run import begin_folder
from mops.training.targets import soften
from mops.training.tracking import Watcher
from running import StopAt, world

FIVE = Task(name="t", type="classification", text=("x",), label="y", labels=tuple("01234"))
TWO = Task(name="p", type="pair_classification", text=("x", "z"), label="y", labels=("0", "1"))
VALUE = Task(name="s", type="similarity", text=("x", "z"), label="y", range=(0, 5))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)


def outputs(rows: int, width: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_smoothing_is_that_of_torch() -> None:
    hard, logits = np.array([0.0, 3.0, 4.0, 1.0]), outputs(4, 5)
    soft = soften(FIVE, hard, Training(label_smoothing=0.2), None)
    expected = F.cross_entropy(logits, torch.tensor(hard).long(), label_smoothing=0.2)
    torch.testing.assert_close(loss_of(FIVE, logits, torch.tensor(soft)), expected)
    assert soften(FIVE, hard, Training(), None) is hard


@pytest.mark.parametrize("name", ["cross_entropy", "binary_cross_entropy", "ordinal"])
def test_the_loss_of_a_mixture_is_the_mixture_of_losses(name: str) -> None:
    """Also at its corners: a soft label that is certain has the loss of the class number."""
    classes, width = {"cross_entropy": (5, 5), "ordinal": (5, 4)}.get(name, (2, 1))
    logits, loss = outputs(6, width), LOSSES[name]
    weights = torch.softmax(outputs(6, classes), dim=1)
    each = [loss(logits, torch.full((6,), float(c), dtype=torch.float64)) for c in range(classes)]
    mixture = sum(weights[:, c] * each[c] for c in range(classes))
    torch.testing.assert_close(loss(logits, weights), mixture)


def test_teachers_are_mixed_with_the_labels() -> None:
    how, hard = Training(teacher_weight=0.25), np.array([1.0, 0.0])
    answer = np.array([[0.4, 0.6], [0.8, 0.2]])
    np.testing.assert_allclose(soften(TWO, hard, how, answer), [[0.1, 0.9], [0.95, 0.05]])
    values = soften(VALUE, np.array([4.0, 1.0]), how, np.array([2.0, 1.0]))
    np.testing.assert_allclose(values, [3.5, 1.0])


def test_class_weights_of_soft_labels() -> None:
    task = Task(**{**vars(TWO), "class_weights": (1.0, 3.0), "loss": "cross_entropy"})
    logits, hard = outputs(3, 2), np.array([0.0, 1.0, 1.0])
    certain = torch.tensor(np.eye(2)[hard.astype(int)])
    torch.testing.assert_close(
        loss_of(task, logits, certain), loss_of(task, logits, torch.tensor(hard))
    )


def test_a_run_learns_from_the_mean_of_its_teachers(tmp_path: Path) -> None:
    one = mops.train(world().recipe("shared"), tmp_path / "one").folder / "model"
    two = (
        mops.train(world().recipe("separate", training__seed=5), tmp_path / "two").folder / "model"
    )
    teachers = [str(one), str(two)]
    recipe = world().recipe(training__teachers=teachers, training__teacher_weight=1.0)
    data = build_objective(prepare(recipe, lambda _: None)).data
    models = [mops.load(folder) for folder in teachers]
    rows = prepare(recipe, lambda _: None).dataset.splits["sentiment"]["train"].good
    texts = {"sentiment": [row.texts for row in rows]}
    answers = [model.predict_tasks(texts)["sentiment"].probabilities for model in models]
    np.testing.assert_allclose(data["sentiment"].targets, np.mean(answers, axis=0))
    assert data["similarity"].targets.ndim == 1
    mops.train(recipe, tmp_path / "student")
    with pytest.raises(RecipeError, match="has other labels"):
        other = world().recipe(training__teachers=teachers, tasks__similarity__range=[0, 6])
        build_objective(prepare(other, lambda _: None))


def test_teachers_of_other_tasks_are_refused(tmp_path: Path) -> None:
    alone = mops.recipe(config=world().run / "recipe.yaml", tasks=["similarity"])
    folder = mops.train(alone, tmp_path / "alone").folder / "model"
    recipe = mops.recipe(
        config=world().run / "recipe.yaml",
        tasks=["sentiment"],
        set={"training.teachers": [str(folder)]},
    )
    with pytest.raises(RecipeError, match="none of the models knows sentiment"):
        build_objective(prepare(recipe, lambda _: None))


class Weights(Watcher):
    """Keeps the weights after each step."""

    def __init__(self) -> None:
        self.trainer: trainer_module.Trainer
        self.seen: list[dict[str, torch.Tensor]] = []

    def step(self, step: int, facts: object) -> None:
        self.seen.append({n: w.clone() for n, w in self.trainer.network.weights().items()})


def test_the_saved_model_is_the_moving_average(tmp_path: Path) -> None:
    recipe = world().recipe(training__ema=0.7, training__eval_steps=8)
    ready = prepare(recipe, lambda _: None)
    begin_folder(tmp_path / "run", ready.recipe)
    watcher = Weights()
    watcher.trainer = trainer = build_trainer(tmp_path / "run", ready)
    average = {n: w.clone() for n, w in trainer.network.weights().items()}
    trainer.run(watcher)
    for step, weights in enumerate(watcher.seen):
        decay = min(0.7, (1 + step) / (10 + step))
        average = {n: decay * w + (1 - decay) * weights[n] for n, w in average.items()}
    last = {n: w.clone() for n, w in trainer.network.weights().items()}
    assert all(last[n].equal(w) for n, w in watcher.seen[-1].items())  # put back after judging
    trainer.restore_best()
    for name, weight in trainer.network.weights().items():
        torch.testing.assert_close(weight, average[name])
    plain = mops.train(world().recipe(training__eval_steps=8), tmp_path / "plain")
    assert plain.record.train_info.steps == 8


def test_a_run_with_averages_resumes_bit_for_bit(tmp_path: Path) -> None:
    recipe = world().recipe(
        training__ema=0.9, training__label_smoothing=0.1, training__save_steps=2
    )
    whole = mops.train(recipe, tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, tmp_path / "parts", StopAt(5))
    parts = mops.train(recipe, tmp_path / "parts")
    one, two = ((run.folder / "model/model.safetensors").read_bytes() for run in (whole, parts))
    assert one == two
    assert whole.scores == parts.scores
