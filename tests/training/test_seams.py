"""Where two settings meet: each of these pairs once gave a wrong result or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mops
from building import NAMES, build_network, mixed_batch
from mops.config.training import Training
from mops.data.schedule import plan_steps, trained_parameters
from mops.errors import RecipeError
from mops.training.losses import Uncertainty
from mops.training.optim import build_optimizer, pull
from mops.training.prepare import TaskObjective
from running import QUICK, world
from stepping import take_step


def test_uncertainty_and_rows_that_count_less() -> None:
    """c (e^-s L + s / 2): the gradient of s is c (1 / 2 - L) at s = 0, not 1 / 2 - c L."""
    network = build_network("shared")
    weighting = Uncertainty(network.layout.tasks, "cpu")
    training = Training(max_steps=3, learning_rate=1e-9, head_learning_rate=1e-9)
    optimizer = build_optimizer(network, training, weighting.parameters())
    batch = replace(mixed_batch(network), scale={"sentiment": 0.25})
    unclipped = training.model_copy(update={"max_grad_norm": 0.0})
    facts = take_step(network, optimizer, batch, unclipped, step=0, total=3, weighting=weighting)
    gradient = weighting.log_variances["sentiment"].grad
    assert gradient is not None
    expected = 0.25 * (0.5 - facts.losses["sentiment"])
    torch.testing.assert_close(float(gradient), expected, rtol=1e-5, atol=1e-6)


def test_a_task_of_weight_0_beside_additions(tmp_path: Path) -> None:
    """Its own additions stay at identity; the guard asks nothing of a task that does not learn."""
    weights = {"training__loss_weights": {"similarity": 0}}
    run = mops.train(world().recipe("lora:2", **weights), tmp_path / "run")
    assert run.scores.untrained == ("similarity",)


@pytest.mark.parametrize(
    "settings",
    [
        {"training.train_tasks": ["sentiment"]},
        {"training.max_steps": None, "training.stages": [{"steps": 2, "tasks": ["sentiment"]}]},
    ],
)
def test_tasks_that_leave_nobody_to_train(settings: dict[str, object]) -> None:
    chosen = ["paraphrase", "similarity"]
    with pytest.raises(RecipeError, match="names only sentiment"):
        mops.recipe(data=world().data, tasks=chosen, set={**QUICK, **settings})


def score_in_turn(monkeypatch: pytest.MonkeyPatch, scores: Sequence[float]) -> None:
    """Evaluations that give these overall scores one after the other, to all who choose."""
    evaluate, left = TaskObjective.evaluate, iter(scores)

    def evaluate_as_told(*given: Any) -> Any:
        found = evaluate(*given)
        return found._replace(scores=dict.fromkeys(found.scores, next(left)))

    monkeypatch.setattr(TaskObjective, "evaluate", evaluate_as_told)


def test_what_the_best_state_never_saw_is_untrained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stage 1 trains sentiment, stage 2 paraphrase, and the best state is the end of stage 1."""
    score_in_turn(monkeypatch, [0.9, 0.1])
    stages = [{"steps": 3, "tasks": ["sentiment"]}, {"steps": 3, "tasks": ["paraphrase"]}]
    recipe = world().recipe(
        "shared", training__max_steps=None, training__stages=stages, training__eval_steps=100
    )
    run = mops.train(recipe, tmp_path / "run")
    assert run.record.train_info.best_step == 3
    assert run.scores.untrained == ("paraphrase", "similarity")


def test_a_copy_without_a_loss_is_not_pulled() -> None:
    network = build_network("soft:0.5")
    pull(network, {}, Training(train_tasks=("sentiment", "paraphrase")))
    pulled = {owner for owner, _, p in network.owner_parameters() if p.grad is not None}
    assert pulled and not any(owner.endswith("similarity") for owner in pulled)


def test_patience_is_of_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two evaluations without a better one end a stage's patience; the next stage has its own."""
    score_in_turn(monkeypatch, [0.5, 0.4, 0.3, 0.2])
    stages = [{"steps": 2, "frozen": True}, {"steps": 2}]
    recipe = world().recipe(
        "shared",
        training__max_steps=None,
        training__stages=stages,
        training__eval_steps=1,
        training__early_stopping=2,
    )
    run = mops.train(recipe, tmp_path / "run")
    assert run.record.train_info.steps == 4  # 1 + 1 without a better one, not 2 in a row


def test_only_what_is_taught_counts_as_trained() -> None:
    layout = build_network("separate").layout
    alone = plan_steps(dict.fromkeys(NAMES, 9), Training(max_steps=2, train_tasks=("sentiment",)))
    own = sum(n for owner, n in layout.sizes.items() if owner.endswith("sentiment"))
    assert trained_parameters(layout, alone) == own


def test_conflicts_are_between_tasks_that_learn() -> None:
    recipe = world().recipe("shared", training__train_tasks=["sentiment", "paraphrase"])
    with pytest.raises(RecipeError, match="similarity: not trained"):
        mops.conflicts(recipe, steps=20, every=2)
