"""Weights of losses against their papers' formulas, and what they are not: part of the model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import mops
from building import THREE_TASKS, build_network, mixed_batch
from mops.config.training import LOSS_WEIGHTS, Training
from mops.data.schedule import plan_steps
from mops.training.losses import WEIGHTINGS, Dwa, Uncertainty, build_weighting
from mops.training.optim import build_optimizer
from mops.training.step import compute_losses
from running import world
from stepping import take_step

TASKS = {task.name: task for task in THREE_TASKS}
LOSSES = {"sentiment": 1.5, "paraphrase": 0.25, "similarity": 2.0}


def tensors(losses: dict[str, float]) -> dict[str, torch.Tensor]:
    return {task: torch.tensor(loss) for task, loss in losses.items()}


def test_every_word_of_a_recipe_can_be_built() -> None:
    assert set(WEIGHTINGS) == set(LOSS_WEIGHTS)


# ------------------------------------------------------------------ uncertainty


def learned(values: dict[str, float]) -> Uncertainty:
    weighting = Uncertainty(TASKS, "cpu")
    weighting.load_state_dict({f"log_variance/{n}": v for n, v in tensors(values).items()})
    return weighting


def test_uncertainty_is_equation_10() -> None:
    """1 / (2 v) L + log sqrt(v) for a value, 1 / v L + log sqrt(v) for classes; v = exp(s)."""
    s = {"sentiment": 0.3, "paraphrase": -1.2, "similarity": 0.7}
    terms = learned(s).weigh(tensors(LOSSES))
    for task, loss in LOSSES.items():
        variance = np.exp(s[task])
        halves = 2 if task == "similarity" else 1
        expected = loss / (halves * variance) + np.log(np.sqrt(variance))
        assert float(terms[task].detach()) == pytest.approx(expected, rel=1e-6), task


def test_uncertainty_starts_at_variance_1() -> None:
    weighting = Uncertainty(TASKS, "cpu")
    assert weighting.weights() == {"sentiment": 1.0, "paraphrase": 1.0, "similarity": 0.5}
    assert {float(s) for s in weighting.state_dict().values()} == {0.0}


def test_uncertainty_is_at_rest_where_the_variance_fits_the_loss() -> None:
    """The term is least at v = L for a value and v = 2 L for classes."""
    rest = {t: np.log(x * (1 if t == "similarity" else 2)) for t, x in LOSSES.items()}
    weighting = learned(rest)
    sum(weighting.weigh(tensors(LOSSES)).values()).backward()
    for task, s in weighting.log_variances.items():
        assert float(s.grad) == pytest.approx(0.0, abs=1e-6), task


def test_uncertainty_is_learned_like_a_head_without_decay_and_counts_nowhere() -> None:
    network, weighting = build_network("shared"), Uncertainty(TASKS, "cpu")
    how = Training(head_learning_rate=3e-3, weight_decay=0.5, lr_scheduler_type="none")
    optimizer = build_optimizer(network, how, weighting.parameters())
    mine = {id(s) for s in weighting.parameters()}
    for group in optimizer.param_groups:
        if mine & {id(p) for p in group["params"]}:
            assert (group["base"], group["weight_decay"]) == (3e-3, 0.0)
    take_step(
        network, optimizer, mixed_batch(network), how, step=5, total=9, weighting=weighting
    )  # fmt: skip
    for s in weighting.state_dict().values():  # Adam's first step is the rate, against the gradient
        assert abs(float(s)) == pytest.approx(3e-3, rel=1e-3)
    assert not any("variance" in name for name in network.weights())
    assert sum(p.numel() for p in network.parameters()) == network.layout.parameters


# ------------------------------------------------------------------ dwa


def paper_weights(means: list[list[float]]) -> np.ndarray:
    """lambda_k(t) = K exp(w_k(t-1) / T) / sum_i exp(w_i(t-1) / T), w = L(t-1) / L(t-2), T = 2"""
    raised = np.exp(np.array(means[-1]) / np.array(means[-2]) / 2.0)
    return len(raised) * raised / raised.sum()


def test_dwa_is_equation_7() -> None:
    draw = np.random.default_rng(0)
    dwa, names = Dwa(tuple(TASKS), every=3), list(TASKS)
    losses = draw.uniform(0.1, 3.0, (15, 3))
    for step, row in enumerate(losses):
        means = [losses[n : n + 3].mean(axis=0) for n in range(0, step - step % 3, 3)]
        expected = paper_weights(means) if len(means) >= 2 else np.ones(3)
        assert list(dwa.weights().values()) == pytest.approx(list(expected)), step
        assert sum(dwa.weights().values()) == pytest.approx(3)
        given = dict(zip(names, row, strict=True))
        terms = dwa.weigh(tensors(given))
        assert float(terms["paraphrase"]) == pytest.approx(expected[1] * row[1])
        dwa.note(given, step)


def test_dwa_gives_more_to_the_task_that_falls_slower() -> None:
    dwa = Dwa(("fast", "slow"), every=1)
    for step, (fast, slow) in enumerate([(4.0, 4.0), (1.0, 3.9)]):
        dwa.note({"fast": fast, "slow": slow}, step)
    assert dwa.weights()["slow"] > 1 > dwa.weights()["fast"]


def test_dwa_without_some_tasks_in_a_step() -> None:
    """An interval without a task leaves what is known of it."""
    dwa = Dwa(("a", "b"), every=2)
    for step, losses in enumerate([{"a": 2.0}, {"b": 4.0}, {"a": 1.0}, {"b": 3.0}, {"a": 0.5}]):
        dwa.note(losses, step)
    before = dwa.weights()
    assert list(before.values()) == pytest.approx(paper_weights([[2.0, 4.0], [1.0, 3.0]]))
    dwa.note({"a": 0.5}, 5)
    assert list(dwa.weights().values()) == pytest.approx(paper_weights([[1.0, 4.0], [0.5, 3.0]]))


@pytest.mark.parametrize(
    ("settings", "every"),
    [
        ({"max_steps": 300}, 15),  # an epoch: 60 rows of 4
        ({"max_steps": 40}, 4),  # a tenth
        ({"max_steps": 5}, 1),
        ({"max_steps": 300, "dwa_steps": 7}, 7),
    ],
)
def test_interval_of_dwa(settings: dict[str, int], every: int) -> None:
    how = Training(loss_weights="dwa", per_task_batch_size=4, **settings)
    schedule = plan_steps({"sentiment": 60, "paraphrase": 30, "similarity": 20}, how)
    weighting = build_weighting(how, TASKS, schedule, torch.device("cpu"))
    assert isinstance(weighting, Dwa) and weighting.every == every


# ------------------------------------------------------------------ in a run


def curve(run: Any) -> list[dict[str, Any]]:
    lines = (run.folder / "curve.jsonl").read_text("utf-8").splitlines()
    return [line for line in map(json.loads, lines) if "losses" in line]


@pytest.mark.parametrize("word", LOSS_WEIGHTS)
def test_the_weights_in_force_are_written_down(word: str, tmp_path: Any) -> None:
    settings = {"training__loss_weights": word, "training__max_steps": 10}
    run = mops.train(world().recipe("hybrid:1", **settings), tmp_path / "run")
    first, last = (line["loss_weights"] for line in curve(run))
    assert first == {"sentiment": 1, "paraphrase": 1, "similarity": 0.5 if word[0] == "u" else 1}
    assert last != first
    assert set(run.record.train_info.loss_weights) == set(TASKS)
    assert run.scores.untrained == ()


def test_fixed_weights_are_written_down(tmp_path: Any) -> None:
    weights = {"sentiment": 0, "similarity": 2.5}
    settings = {"training__loss_weights": weights, "training__max_steps": 1}
    run = mops.train(world().recipe("hybrid:1", **settings), tmp_path / "run")
    expected = {"sentiment": 0.0, "paraphrase": 1.0, "similarity": 2.5}
    assert run.record.train_info.loss_weights == curve(run)[0]["loss_weights"] == expected


def test_a_step_reports_the_weights_it_used() -> None:
    """Not those that it leads to."""
    network, dwa = build_network("shared"), Dwa(tuple(TASKS), every=1)
    how = Training(learning_rate=1e-2, lr_scheduler_type="none", warmup_steps=0, seed=0)
    optimizer, batch = build_optimizer(network, how), mixed_batch(network)
    for step in range(4):
        losses = {t: float(x.detach()) for t, x in compute_losses(network, batch).items()}
        facts = take_step(network, optimizer, batch, how, step=step, total=9, weighting=dwa)
        expected = sum(facts.weights[task] * losses[task] for task in losses)
        assert facts.loss == pytest.approx(expected, rel=1e-5)
    assert facts.weights != dict.fromkeys(TASKS, 1.0)
