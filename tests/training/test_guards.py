"""Guards: runs and results that look well and are worthless are stopped or named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mops
from building import THREE_TASKS
from mops.errors import GuardError, RunError
from mops.evaluate.evaluate import suspicious
from mops.training import losses, trainer
from mops.training.tracking import Watcher
from running import world

SENTIMENT, PARAPHRASE, SIMILARITY = THREE_TASKS


@pytest.fixture(autouse=True, scope="module")
def healthy_world() -> None:
    """Made before anything is broken on purpose."""
    world()


class Counting(Watcher):
    """Remembers the steps that were taken."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def step(self, step: int, facts: object) -> None:
        self.steps.append(step)


def rounded(outputs_RO: torch.Tensor, targets_R: torch.Tensor) -> torch.Tensor:
    """The founding paper's: rounding has no gradient, so the task never learns."""
    return (outputs_RO[:, 0].round() - targets_R) ** 2


def cut_off(outputs_RO: torch.Tensor, targets_R: torch.Tensor) -> torch.Tensor:
    return (outputs_RO.detach()[:, 0] - targets_R) ** 2


# ------------------------------------------------------------------ gradients


@pytest.mark.parametrize("broken", [rounded, cut_off])
def test_a_task_that_teaches_nothing_stops_the_run_at_its_third_step(
    broken: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(losses.LOSSES, "mse", broken)
    watcher = Counting()
    with pytest.raises(GuardError) as refused:
        mops.train(world().recipe(), tmp_path / "run", watcher)
    message = str(refused.value)
    assert watcher.steps == [1, 2, 3]
    assert "similarity -> attention/layer01/similarity" in message
    assert "similarity -> embeddings" in message
    assert "sentiment ->" not in message and "paraphrase ->" not in message
    assert not (tmp_path / "run" / "record.json").exists()


def test_the_third_step_is_the_tasks_own_not_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `in-turn` similarity begins at step 24 (15 + 8 batches before it)."""
    monkeypatch.setitem(losses.LOSSES, "mse", rounded)
    watcher = Counting()
    recipe = world().recipe(training__schedule="in-turn", training__max_steps=28)
    with pytest.raises(GuardError, match="similarity"):
        mops.train(recipe, tmp_path / "run", watcher)
    assert watcher.steps[-1] == 15 + 8 + 3


def test_an_owner_without_gradient_is_named_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broken part is found among healthy ones."""
    from mops.model.network import DenseHead

    forward = DenseHead.forward

    def without_trunk(self: DenseHead, vectors: list[torch.Tensor], *more: Any) -> torch.Tensor:
        is_sentiment = self.output.out_features == 5
        return forward(self, [v.detach() for v in vectors] if is_sentiment else vectors, *more)

    monkeypatch.setattr(DenseHead, "forward", without_trunk)
    with pytest.raises(GuardError) as refused:
        mops.train(world().recipe(), tmp_path / "run")
    assert "10 " in str(refused.value) and "sentiment -> embeddings" in str(refused.value)
    assert "head/sentiment" not in str(refused.value)


@pytest.mark.parametrize("plan", ["shared", "separate", "late:SIS", "frozen+late:SI", "layers:FSI"])
def test_healthy_runs_of_every_kind_pass(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    check = trainer.check_reach
    monkeypatch.setattr(trainer, "check_reach", lambda *given: (called.append(1), check(*given))[1])
    mops.train(world().recipe(plan, training__max_steps=4), tmp_path / "run")
    assert called == [1]


# ------------------------------------------------------------------ not a number


def test_a_loss_that_is_no_number_stops_with_the_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mse = losses.LOSSES["mse"]
    monkeypatch.setitem(losses.LOSSES, "mse", lambda *given: mse(*given) * float("nan"))
    with pytest.raises(RunError, match=r"step 1: .*not a number.*training\.learning_rate"):
        mops.train(world().recipe(), tmp_path / "run")


def test_a_rate_that_is_far_too_high_stops_with_the_advice(tmp_path: Path) -> None:
    recipe = world().recipe(
        training__learning_rate=1e9, training__head_learning_rate=1e9, training__max_steps=60
    )
    with pytest.raises(RunError, match=r"not a number.*head_learning_rate"):
        mops.train(recipe, tmp_path / "run")


# ------------------------------------------------------------------ results


def warned(task: object, targets: list[float], predictions: list[float]) -> list[str]:
    return list(suspicious(task, np.array(targets, float), np.array(predictions, float)))


def test_one_answer_for_everything_is_named() -> None:
    (said,) = warned(SENTIMENT, [0, 1, 2, 3], [3, 3, 3, 3])
    assert said == "sentiment: every prediction is '3': nothing was learnt"


def test_no_better_than_the_majority_is_named() -> None:
    (said,) = warned(PARAPHRASE, [0, 0, 0, 1], [0, 0, 1, 1])
    assert "paraphrase: accuracy 0.750 is not above the majority class's 0.750" in said


def test_a_similarity_that_hardly_varies_is_named() -> None:
    targets = [0.0, 1, 2, 3, 4, 5]
    values = [2.5 + 0.001 * value for value in targets]  # a perfect correlation, and worthless
    (said,) = warned(SIMILARITY, targets, values)
    assert said.startswith("similarity: the predictions hardly vary")


@pytest.mark.parametrize(
    ("task", "targets", "predictions"),
    [
        (PARAPHRASE, [0, 0, 0, 1], [0, 0, 0, 1]),
        (SIMILARITY, [0, 1, 2, 3], [1, 2, 3, 4]),
        (SENTIMENT, [2], [2]),  # one row says nothing
    ],
)
def test_good_results_are_not_suspected(task: object, targets: list, predictions: list) -> None:
    assert warned(task, targets, predictions) == []


def test_suspicions_are_in_the_record_of_the_run() -> None:
    record = mops.read_record(world().run / "record.json")
    folder = world().run / "predictions"
    for name in ("sentiment", "paraphrase"):
        lines = (folder / f"{name}-validation.csv").read_text().splitlines()[1:]
        is_constant = len({line.split(",")[1] for line in lines}) == 1
        said = any(w.startswith(f"{name}: every prediction is") for w in record.warnings)
        assert said == is_constant


def test_what_a_guard_says_of_each_task_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mops.evaluate.evaluate.suspicious",
        lambda task, *values: [f"{task.name}: {len(values[0])} rows"],
    )
    run = mops.train(world().recipe("shared", training__max_steps=1), tmp_path / "run")
    assert run.record.warnings[:3] == tuple(f"{task.name}: 20 rows" for task in THREE_TASKS)


@pytest.mark.parametrize(
    ("changed", "is_best_last"),
    [
        ({}, True),
        ({"best_step": 4}, False),
        ({"evaluations": 1}, False),  # nothing to compare with
        ({"stopped_early": True}, False),
        ({"last_change": 0.004}, False),  # it has converged
    ],
)
def test_a_budget_that_ended_too_early_is_noticed(changed: dict, is_best_last: bool) -> None:
    info = mops.read_record(world().run / "record.json").train_info
    last = {"steps": 8, "evaluations": 2, "best_step": 8, "stopped_early": False}
    last |= {"last_change": 0.01}
    assert replace(info, **last | changed).is_best_last == is_best_last


def test_a_larger_budget_is_advised_where_the_last_evaluation_is_the_best() -> None:
    record = mops.read_record(world().run / "record.json")
    is_advised = any("larger budget" in warning for warning in record.warnings)
    assert is_advised == record.train_info.is_best_last


@pytest.mark.parametrize(
    ("steps", "evaluations", "best_step", "is_best_first"),
    [(80, 8, 10, True), (80, 8, 20, False), (100, 3, 35, True), (8, 2, 4, False)],
)
def test_a_run_that_only_fell_is_noticed(
    steps: int, evaluations: int, best_step: int, is_best_first: bool
) -> None:
    info = mops.read_record(world().run / "record.json").train_info
    changed = replace(info, steps=steps, evaluations=evaluations, best_step=best_step)
    assert changed.is_best_first == is_best_first
