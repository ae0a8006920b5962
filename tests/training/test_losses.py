"""Losses against their closed forms, and tasks whose loss, score or answers do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax

from building import THREE_TASKS, build_network, mixed_batch, mixed_segments, outputs_of
from mops.errors import GuardError, RecipeError
from mops.model.packing import pack_segments
from mops.plans.rows import Rate, SharingPlan
from mops.tasks import Task, canonical_label, sorted_labels
from mops.training.losses import loss_of
from mops.training.step import StepFacts, check_reach, compute_losses

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(9, 3)) * 3
CLASSES = DRAW.integers(0, 3, 9)
BINARY = DRAW.integers(0, 2, 9)


def task_of(**values: Any) -> Task:
    base = {"name": "t", "type": "classification", "text": ("a",), "label": "y"}
    return Task(**base | values)


def pair_of(**values: Any) -> Task:
    return task_of(type="pair_classification", text=("a", "b"), labels=("0", "1"), **values)


SIMILARITY = task_of(type="similarity", text=("a", "b"), range=(0.0, 5.0))


def loss(task: Task, outputs: Any, targets: Any) -> float:
    return float(loss_of(task, torch.tensor(outputs), torch.tensor(targets, dtype=torch.float32)))


def test_cross_entropy() -> None:
    """-1/m sum log softmax(outputs)[target]"""
    chosen = log_softmax(LOGITS, axis=1)[np.arange(9), CLASSES]
    found = loss(task_of(labels=("a", "b", "c")), LOGITS, CLASSES)
    assert found == pytest.approx(-chosen.mean(), abs=1e-12)


def test_weighted_cross_entropy() -> None:
    """-sum w[target] log softmax / sum w[target]"""
    weights = np.array([0.5, 2.0, 4.0])
    chosen = log_softmax(LOGITS, axis=1)[np.arange(9), CLASSES]
    expected = -(weights[CLASSES] * chosen).sum() / weights[CLASSES].sum()
    task = task_of(labels=("a", "b", "c"), class_weights=tuple(weights))
    assert loss(task, LOGITS, CLASSES) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weights", [(), (1.0, 1.0), (0.25, 3.0)])
def test_binary_cross_entropy(weights: tuple[float, ...]) -> None:
    """-[y log s(z) + (1-y) log(1-s(z))], weighted by the class of the row."""
    z = LOGITS[:, :1]
    share = expit(z[:, 0])
    each = -(BINARY * np.log(share) + (1 - BINARY) * np.log(1 - share))
    row_weights = np.array(weights or (1.0, 1.0))[BINARY]
    expected = (row_weights * each).sum() / row_weights.sum()
    task = pair_of(class_weights=weights)
    assert task.loss_name == "binary_cross_entropy"
    assert loss(task, z, BINARY) == pytest.approx(expected, abs=1e-12)


def test_binary_cross_entropy_is_cross_entropy_over_zero_and_the_logit() -> None:
    z = LOGITS[:, :1]
    both = np.concatenate([np.zeros_like(z), z], axis=1)
    weights = (0.25, 3.0)
    two = pair_of(loss="cross_entropy", class_weights=weights)
    assert (two.outputs, pair_of().outputs) == (2, 1)
    assert loss(pair_of(class_weights=weights), z, BINARY) == pytest.approx(loss(two, both, BINARY))


def test_mean_squared_error_on_values_as_written() -> None:
    """Values are never cut to whole numbers (the founding paper's code did)."""
    values = DRAW.uniform(0, 5, 9)
    z = LOGITS[:, :1]
    expected = np.square(z[:, 0] - values).mean()
    assert loss(SIMILARITY, z, values) == pytest.approx(expected, rel=1e-6)


def test_no_loss_has_a_zero_gradient_everywhere() -> None:
    """The founding paper's paraphrase loss had: it rounded before the loss."""
    for task in (task_of(labels=("a", "b", "c")), pair_of(), SIMILARITY):
        outputs = torch.tensor(LOGITS[:, : task.outputs], requires_grad=True)
        loss_of(task, outputs, torch.tensor(BINARY).float()).backward()
        assert (outputs.grad != 0).all()


def test_losses_of_a_batch_are_those_of_its_outputs() -> None:
    network = build_network("hybrid:2")
    batch = mixed_batch(network)
    outputs = outputs_of(network, mixed_segments(network))
    losses = compute_losses(network, batch)
    for task in THREE_TASKS:
        targets = torch.tensor(batch.targets[task.name], dtype=torch.float32)
        assert float(losses[task.name].detach()) == float(
            loss_of(task, outputs[task.name], targets)
        )


# ------------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"loss": "mse"}, "loss 'mse' does not fit a classification"),
        ({"loss": "hinge"}, "allowed: cross_entropy"),
        ({"loss": "binary_cross_entropy", "labels": ("0", "1", "2")}, "needs two labels"),
        ({"score": "pearson"}, "score 'pearson' does not fit"),
        ({"labels": ("0", "1"), "class_weights": (1.0,)}, "1 class weights for 2 labels"),
        ({"labels": ("0", "0")}, "names a label twice"),
        ({"labels": ("0",)}, "only one class"),
        ({"range": (0.0, 1.0)}, "belongs to a similarity"),
        ({"type": "regression"}, "allowed: classification"),
        ({"text": ("a", "b")}, "reads 1 text column(s)"),
        ({"text": ("y",)}, "is also an input"),
        ({"name": "My Task"}, "small letters"),
        ({"type": "similarity", "text": ("a", "b")}, "needs `range"),
        ({"type": "similarity", "text": ("a",), "range": (0.0, 1.0)}, "reads 2 text"),
        ({"type": "similarity", "text": ("a", "b"), "range": (5.0, 0.0)}, "must increase"),
        (
            {
                "type": "similarity",
                "text": ("a", "b"),
                "range": (0.0, 1.0),
                "loss": "cross_entropy",
            },
            "allowed: mse",
        ),
        (
            {"type": "similarity", "text": ("a", "b"), "range": (0.0, 1.0), "labels": ("0", "1")},
            "not `labels`",
        ),
    ],
)
def test_mismatches_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        task_of(**values)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_have_one_spelling_and_an_order() -> None:
    assert [canonical_label(text) for text in ("1.0", " 1", "1.", "-2.00", "1.5", "a.0", "x")] == [
        *("1", "1", "1", "-2", "1.5", "a.0", "x")
    ]
    assert sorted_labels({"10", "9", "-1"}) == ("-1", "9", "10")
    assert sorted_labels({"b", "10", "a"}) == ("10", "a", "b")


# ------------------------------------------------------------------ guards


def test_the_guard_finds_a_task_that_teaches_nothing() -> None:
    network = build_network("late:I")
    batch = mixed_batch(network)
    check_reach(network, compute_losses(network, batch))  # all is well
    with torch.no_grad():
        network.bank["head/paraphrase"].output.weight.zero_()
    with pytest.raises(GuardError, match="paraphrase -> embeddings") as caught:
        check_reach(network, compute_losses(network, batch))
    assert "sentiment ->" not in str(caught.value)


def test_the_guard_asks_nothing_of_what_is_frozen() -> None:
    frozen = SharingPlan(name="x", rates=(Rate(owner="*", factor=0.0),))
    for plan in ("frozen+shared", frozen):
        network = build_network(plan)
        check_reach(network, compute_losses(network, mixed_batch(network)))


@pytest.mark.parametrize("facts", [(float("nan"), 1.0), (1.0, float("inf"))])
def test_a_loss_or_gradient_that_is_not_a_number_is_noticed(facts: tuple[float, float]) -> None:
    assert not StepFacts({"t": facts[0]}, *facts).is_finite


def test_outputs_of_tasks_that_are_not_in_the_batch_are_not_computed() -> None:
    network = build_network("shared")
    only = [s for s in mixed_segments(network) if s.tasks == ("paraphrase",)]
    assert set(network(pack_segments(only, network.layout))) == {"paraphrase"}
