"""The share of each task in the gradient of shared weights: its definition, and that it is free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mops
from building import build_network, mixed_batch, shake
from mops.config.training import Training
from mops.data.batches import Batch
from mops.data.schedule import plan_steps
from mops.training import trainer as loops
from mops.training.step import build_learner, compute_losses, gradient_shares
from running import world


def shaken(plan: str) -> Any:
    torch.manual_seed(0)
    network = build_network(plan)
    shake(network, 0)
    return network


def shares_of(network: Any, **weights: float) -> dict[str, float]:
    """Each task's rows of a mixed batch by themselves."""
    how, whole = Training(loss_weights=weights), mixed_batch(network)
    learner = build_learner(network, plan_steps(dict.fromkeys(network.layout.tasks, 8), how), how)
    batches = {
        task: Batch(tuple(s for s in whole.segments if task in s.tasks), {task: targets})
        for task, targets in whole.targets.items()
    }
    return gradient_shares(learner, batches, 0, compute_losses)


def expected_shares(network: Any, weights: dict[str, float]) -> dict[str, float]:
    """|g_i| / sum_j |g_j|, each g_i by its own backward pass of the whole batch."""
    norms = {}
    for task, loss in compute_losses(network, mixed_batch(network)).items():
        network.zero_grad(set_to_none=True)
        (weights.get(task, 1.0) * loss).backward(retain_graph=True)
        shared = [
            p.grad.to_dense().flatten()
            for owner, _, p in network.owner_parameters()
            if len(network.layout.users[owner]) > 1 and p.grad is not None
        ]
        norms[task] = float(torch.cat(shared).norm())
    return {task: norm / sum(norms.values()) for task, norm in norms.items()}


@pytest.mark.parametrize("plan", ["shared", "hybrid:2", "late:SI"])
@pytest.mark.parametrize("weights", [{}, {"similarity": 0.1, "paraphrase": 0.0}])
def test_shares(plan: str, weights: dict[str, float]) -> None:
    network = shaken(plan)
    found = shares_of(network, **weights)
    assert found == pytest.approx(expected_shares(network, weights), rel=1e-4)
    assert sum(found.values()) == pytest.approx(1)
    assert (found["paraphrase"] == 0) == ("paraphrase" in weights)


@pytest.mark.parametrize("plan", ["separate", "frozen+shared"])
def test_nothing_where_nothing_is_shared_and_learns(plan: str) -> None:
    network = shaken(plan)
    assert shares_of(network) == {}


def test_in_the_record_and_the_curve_and_without_a_trace_in_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = world().recipe("shared", training__max_steps=10)
    monkeypatch.setattr(loops, "SHARE_STEPS", 10**9)
    rare = mops.train(recipe, tmp_path / "rare")
    monkeypatch.setattr(loops, "SHARE_STEPS", 2)
    often = mops.train(recipe, tmp_path / "often")
    weights = [(run.folder / "model" / "model.safetensors").read_bytes() for run in (rare, often)]
    assert weights[0] == weights[1]
    lines = map(json.loads, (rare.folder / "curve.jsonl").read_text("utf-8").splitlines())
    (measured,) = [line["gradient_shares"] for line in lines if "gradient_shares" in line]
    assert rare.record.train_info.gradient_shares == pytest.approx(measured)
    shares = often.record.train_info.gradient_shares
    assert sum(shares.values()) == pytest.approx(1) and shares != pytest.approx(measured)


def test_a_run_without_shared_weights_has_none(tmp_path: Path) -> None:
    run = mops.train(world().recipe("separate", training__max_steps=1), tmp_path / "run")
    assert run.record.train_info.gradient_shares == {}
    assert "gradient_shares" not in (run.folder / "curve.jsonl").read_text("utf-8")
