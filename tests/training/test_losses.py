"""Losses against their closed forms, and tasks whose loss, score or answers do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, rel_entr, softmax

from building import THREE_TASKS, build_network, mixed_batch, mixed_segments, outputs_of
from mops.errors import GuardError, RecipeError
from mops.kinds.classes import canonical_label, sorted_labels
from mops.model.packing import pack_segments
from mops.plans.rows import Rate, SharingPlan
from mops.tasks import Task
from mops.training.losses import divergence_of, loss_of
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


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return rel_entr(p, q).sum(axis=-1)


def test_divergences_are_the_mean_of_both_directions() -> None:
    """[KL(p|q) + KL(q|p)] / 2, of classes and of each threshold; (u - v)^2 of values."""
    halves = torch.tensor(LOGITS[:8])
    p, q = softmax(LOGITS[:4], axis=1), softmax(LOGITS[4:8], axis=1)
    classes = task_of(labels=("a", "b", "c"))
    expected = (kl(p, q) + kl(q, p)).mean() / 2
    assert float(divergence_of(classes, halves)) == pytest.approx(expected, rel=1e-9)
    s = expit(LOGITS[:8])
    both = np.stack([s, 1 - s], axis=-1)
    each = (kl(both[:4], both[4:]) + kl(both[4:], both[:4])) / 2
    ranks = task_of(labels=("a", "b", "c", "d"), loss="ordinal")
    assert float(divergence_of(ranks, halves)) == pytest.approx(each.sum(1).mean(), rel=1e-9)
    found = float(divergence_of(SIMILARITY, halves[:, :1]))
    assert found == pytest.approx(np.square(LOGITS[:4, 0] - LOGITS[4:8, 0]).mean(), rel=1e-9)


def test_r_drop_reads_each_row_twice() -> None:
    """Without dropout both answers are the same, and so is the loss; with it they differ."""
    network = build_network("hybrid:2")
    batch = mixed_batch(network)
    plain, twice = (compute_losses(network, batch, r_drop=weight) for weight in (0.0, 2.0))
    for task, expected in plain.items():
        torch.testing.assert_close(twice[task], expected)
    network = build_network("hybrid:2", dropout=0.1).train()
    found = {}
    for weight in (1.0, 3.0):
        torch.manual_seed(1)
        found[weight] = compute_losses(network, batch, r_drop=weight)
    torch.manual_seed(1)
    pack = pack_segments(batch.segments * 2, network.layout)
    for name, outputs in network(pack).items():
        task = network.layout.tasks[name]
        targets = torch.tensor(batch.targets[name], dtype=torch.float32)
        one, two = (float(loss_of(task, half, targets)) for half in outputs.detach().chunk(2))
        distance = float(divergence_of(task, outputs.detach()))
        assert distance > 0
        for weight, losses in found.items():
            expected = (one + two) / 2 + weight / 2 * distance
            assert float(losses[name].detach()) == pytest.approx(expected, rel=1e-5)


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
        ({"type": "ranking"}, "allowed: classification"),
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
