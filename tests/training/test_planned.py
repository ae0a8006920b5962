"""Settings without effect: each is named where it is idle, nowhere else, and changes no weight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mops
from mops.config.recipe import Recipe
from mops.data.planned import NEEDS, PlannedRun, idle_settings, stuck_owners
from mops.data.schedule import plan_steps
from mops.plans.catalog import read_plan
from mops.training.prepare import build_trainer, prepare
from mops.training.tracking import Watcher
from running import run_cli_with, world

MLP = {"kind": "mlp", "depth": 2}
COSINE = {"kind": "cosine", "project": True}
# Key -> the setting where it is idle, and what must be added for it to have an effect. Keys of
# `training` alone, but for plan and tasks.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plan.pull": (
        {"plan": {"name": "idle", "pull": [{"owner": "embeddings", "strength": 0.1}]}},
        {"plan": "soft:0.1"},
    ),
    "tasks.split": (
        {"tasks.sentiment.split": 0.1},
        {"tasks.sentiment.validation": None},
    ),
    "tasks.class_weights": (
        {"tasks.sentiment.class_weights": [1, 2, 1, 1, 1], "train_tasks": ["similarity"]},
        {"train_tasks": ["sentiment", "similarity"]},
    ),
    "training.pair": ({"pair": {"sentiment": "bi"}}, {"pair": {"similarity": "bi"}}),
    "training.features": ({"features": ["concat"]}, {"pair": "bi"}),
    "training.head.depth": (
        {"head": {"kind": "linear", "depth": 2}},
        {"head": {"kind": "mlp", "depth": 2}},
    ),
    "training.head.width": ({"head": {"sentiment": {"width": 8}}}, {"head": {"sentiment": MLP}}),
    "training.head.activation": (
        {"head": {"sentiment": {"activation": "tanh"}}},
        {"head": {"sentiment": MLP | {"activation": "tanh"}}},
    ),
    "training.head.project": (
        {"head": {"similarity": {"project": True}}},
        {"head": {"similarity": COSINE}, "pair": "bi"},
    ),
    "training.head.scale": (
        {"head": {"similarity": {"scale": "relu"}}},
        {"head": {"similarity": COSINE | {"scale": "relu"}}, "pair": "bi"},
    ),
    "training.layer_decay": ({"layer_decay": 0.5, "plan": "layers:FFS"}, {"plan": "layers:FSS"}),
    "training.dropout": ({"dropout": 0.4, "plan": "frozen+shared"}, {"plan": "frozen+lora:2"}),
    "training.r_drop": (
        {"r_drop": 1.0, "dropout": 0.2, "head_dropout": 0.0, "plan": "frozen+shared"},
        {"head_dropout": 0.1},
    ),
    "training.label_smoothing": (
        {"label_smoothing": 0.1, "train_tasks": ["similarity"]},
        {"train_tasks": ["sentiment"]},
    ),
    "training.teacher_weight": ({"teacher_weight": 0.1}, {"teachers": ["MODEL"]}),
    "training.temperature": ({"temperature": 5.0}, {"schedule": "temperature"}),
    "training.staggered_share": ({"staggered_share": 0.7}, {"schedule": "staggered"}),
    "training.task_steps": (
        {"task_steps": {"similarity": 2}, "train_tasks": ["sentiment"]},
        {"train_tasks": ["similarity"]},
    ),
    "training.stages.frozen": (
        {"stages": [{"steps": 3, "frozen": True}], "max_steps": None, "plan": "frozen+shared"},
        {"plan": "shared"},
    ),
    "training.augment.swap": (
        {"augment": {"swap": ["similarity"]}, "pair": "bi", "dropout": 0.0, "head_dropout": 0.0},
        {"features": ["concat"]},
    ),
    "training.loss_weights": (
        {"loss_weights": {"similarity": 3}, "train_tasks": ["sentiment"]},
        {"train_tasks": ["similarity"]},
    ),
    "training.dwa_steps": ({"dwa_steps": 2}, {"loss_weights": "dwa"}),
    "training.gradients": ({"gradients": "pcgrad", "schedule": "random"}, {"schedule": "mixed"}),
    "training.early_stopping": ({"early_stopping": 3, "eval_steps": 1}, {"early_stopping": 1}),
    "training.best_by": (
        {"best_by": "overall_normalised", "train_tasks": ["sentiment", "paraphrase"]},
        {"train_tasks": ["sentiment", "similarity"]},
    ),
}


def recipe_with(given: dict[str, Any]) -> Recipe:
    """A short run with these settings."""
    own = {key: value for key, value in given.items() if key != "plan"}
    own = {key if "." in key else f"training.{key}": value for key, value in own.items()}
    if "training.teachers" in own:
        own["training.teachers"] = [str(world().run / "model")]
    own = {"training.max_steps": 3, "training.eval_steps": 3} | own
    return world().recipe(given.get("plan", "shared"), **own)


def planned(recipe: Recipe) -> PlannedRun:
    ready = prepare(recipe, lambda _: None)
    steps = plan_steps(ready.dataset.train_files, recipe.training)
    return PlannedRun(ready.recipe, ready.layout, steps)


def idle(given: dict[str, Any]) -> list[str]:
    """The keys that the warnings name."""
    return [text.split()[0] for text in idle_settings(planned(recipe_with(given)))]


def test_every_need_has_a_case() -> None:
    assert set(CASES) == set(NEEDS)
    assert idle({}) == []


@pytest.mark.parametrize("key", CASES)
def test_a_setting_is_named_where_it_is_idle_and_not_where_it_is_not(key: str) -> None:
    given, more = CASES[key]
    assert key in idle(given)
    assert key not in idle(given | more)


class Losses(Watcher):
    def __init__(self) -> None:
        self.all: list[float] = []

    def step(self, step: int, facts: Any) -> None:
        self.all += facts.losses.values()


@pytest.mark.slow
@pytest.mark.parametrize("key", CASES)
def test_what_is_called_idle_changes_nothing(key: str, tmp_path: Path) -> None:
    """The same losses without the setting; and the same weights, bit for bit, unless rows are
    computed in another order.
    """

    def trained(given: dict[str, Any], folder: str) -> tuple[list[float], dict[str, torch.Tensor]]:
        (tmp_path / folder).mkdir()
        trainer = build_trainer(tmp_path / folder, prepare(recipe_with(given), lambda _: None))
        watcher = Losses()
        trainer.run(watcher)
        return watcher.all, dict(trainer.network.weights())

    given, _ = CASES[key]
    room, name, *_ = key.split(".")
    plain = {k: v for k, v in given.items() if k != name and not k.startswith(room)}
    plain |= {"training.stages.frozen": {"stages": [{"steps": 3}]}}.get(key, {})
    (losses, weights), (expected, others) = trained(given, "with"), trained(plain, "without")
    assert losses == pytest.approx(expected, rel=1e-4) and weights.keys() == others.keys()
    if key not in ("training.r_drop", "training.augment.swap"):
        assert all(torch.equal(weight, others[owner]) for owner, weight in weights.items())


# ------------------------------------------------------------------ weights that never learn


def stuck(plan: Any, **more: Any) -> list[str]:
    return list(stuck_owners(planned(recipe_with({"plan": plan} | more))))


def rated(name: str, rates: dict[str, float]) -> dict[str, Any]:
    rows = [{"owner": owner, "factor": factor} for owner, factor in rates.items()]
    return read_plan(name).to_data() | {"name": "rated", "rates": rows}


def test_a_random_weight_that_never_learns_is_named() -> None:
    (text,) = stuck(rated("shared", {"head/sentiment": 0, "*": 1}))
    assert text.startswith("head/sentiment: random and never learns")
    (text,) = stuck(rated("late:SIS", {"late[12]*": 0, "*": 1}))
    assert "late1, late2/sentiment, late2/paraphrase, late2/similarity: random" in text
    (text,) = stuck("progressive", train_tasks=["similarity"])  # it is fed by untrained heads
    assert text.startswith("head/sentiment, head/paraphrase: random")


def test_an_addition_that_stays_at_identity_is_named() -> None:
    (text,) = stuck(rated("lora:2", {"lora*": 0, "*": 1}))
    assert "lora_down" in text and "lora_up" in text and "at identity" in text
    assert stuck(rated("lora:2", {"lora_down*": 0, "*": 1})) == []  # the other half learns


@pytest.mark.parametrize("plan", ["shared", "frozen+late:SIS", "progressive", "frozen+lora:2",
                                  "embert-pals", "layers:FSI"])  # fmt: skip
def test_what_learns_or_was_pretrained_is_not_named(plan: str) -> None:
    assert stuck(plan) == []
    assert stuck(plan, stages=[{"steps": 2, "frozen": True}, {"steps": 1}], max_steps=None) == []


def test_heads_of_the_model_that_is_grown_were_trained(tmp_path: Path) -> None:
    plan = {**read_plan("shared").to_data(), "frozen": ["sentiment", "paraphrase"]}
    run = planned(recipe_with({"plan": plan, "train_tasks": ["similarity"]}))
    assert (
        list(stuck_owners(replace(run, recipe=run.recipe.model_copy(update={"base": "x"})))) == []
    )


# ------------------------------------------------------------------ where it is said

TOLD = "training.gradients (pcgrad) has no effect: it needs two tasks that train"
IDLE = ("--set", "training.gradients=pcgrad", "--set", "training.schedule=annealed")


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("COLUMNS", "250")
    return run_cli_with(monkeypatch, capsys)


def test_check_and_record_say_it(run_cli: Any, tmp_path: Path) -> None:
    words = (*world().options(), *IDLE)
    assert f"warning: {TOLD}" in run_cli("check", *words)[2]
    assert f"warning: {TOLD}" in run_cli("train", *words, "--out", str(tmp_path / "run"))[2]
    record = mops.read_record(tmp_path / "run" / "record.json")
    assert any(warning.startswith(TOLD) for warning in record.warnings)


@pytest.mark.slow
def test_a_dry_run_names_the_candidates(run_cli: Any) -> None:
    data = ("--data", str(world().data), "--encoder", str(world().encoder))
    plans = ("--plan", "shared", "--plan", "separate")
    words = ("survey", "first-look", *data, "--set", "training.gradients=pcgrad", "--dry-run")
    assert f"warning: separate: {TOLD}" in run_cli(*words, *plans)[2]
    assert f"warning: all candidates: {TOLD}" in run_cli(*words, *plans[2:])[2]
