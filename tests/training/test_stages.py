"""Stages: each with its own rates, warm-up, tasks and optimizer; resume inside and between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import mops
from building import NAMES, build_network, mixed_batch
from mops.config.training import Training
from mops.data.schedule import PlannedStage, plan_steps, trained_parameters
from mops.errors import GuardError, PlanError
from mops.plans.rows import Rate, SharingPlan
from mops.training import trainer as trainer_module
from mops.training.losses import Fixed
from mops.training.optim import build_optimizer, owner_rates
from mops.training.prepare import build_trainer, prepare
from mops.training.run import begin_folder
from mops.training.step import Learner, check_reach, compute_losses
from mops.training.tracking import Watcher
from mops.training.trainer import Trainer
from running import StopAt, world

NO_WEIGHTS = Fixed({})
TRUNK = ("embeddings", "attention", "feedforward", "norms", "pooler")
STAGES: list[dict[str, Any]] = [
    {"steps": 4, "frozen": True, "head_learning_rate": 1e-2, "tasks": ["sentiment", "similarity"]},
    {"steps": 5, "learning_rate": 1e-3, "schedule": "mixed", "lr_scheduler_type": "cosine",
     "warmup_steps": 2},
]  # fmt: skip
TWO = {"training__max_steps": None, "training__stages": STAGES, "training__eval_steps": 100}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    world()
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)


class Looking(Watcher):
    """Copies the weights after each step."""

    def __init__(self) -> None:
        self.trainer: Trainer
        self.seen: list[Mapping[str, torch.Tensor]] = []
        self.rates: list[set[float]] = []
        self.evaluated: list[int] = []

    def step(self, step: int, facts: object) -> None:
        self.seen.append({n: w.clone() for n, w in self.trainer.network.weights().items()})
        self.rates.append({group["lr"] for group in self.trainer.learner.optimizer.param_groups})

    def evaluation(self, step: int, scores: object, is_best: bool) -> None:
        self.evaluated.append(step)


def watched(folder: Path, plan: str = "shared", **settings: Any) -> Looking:
    ready = prepare(world().recipe(plan, **settings), lambda _: None)
    begin_folder(folder, ready.recipe)
    watcher = Looking()
    watcher.trainer = build_trainer(folder, ready)
    watcher.trainer.run(watcher)
    return watcher


def entered(network: Any, stage: PlannedStage) -> torch.optim.Optimizer:
    learner = Learner(network, build_optimizer(network, stage.training), NO_WEIGHTS)
    learner.enter_stage(stage)
    return learner.optimizer


def moved(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]) -> set[str]:
    """The first words of the owners that differ."""
    names = {name for name in one if not one[name].equal(two[name])}
    return {name if name.startswith("head") else name.split("/")[0].split(".")[0] for name in names}


# ------------------------------------------------------------------ what learns


def test_frozen_then_thawed(tmp_path: Path) -> None:
    watcher = watched(tmp_path / "run", **TWO)
    first, last = watcher.seen[0], watcher.seen[3]
    heads = {f"head/{task}.output.{part}" for task in ("sentiment", "similarity")
             for part in ("weight", "bias")}  # fmt: skip
    assert moved(first, last) == heads  # no trunk, no head of the task that is left out
    thawed = moved(watcher.seen[3], watcher.seen[8])
    assert {"embeddings", "attention", "feedforward", "norms"} <= thawed
    assert any(name.startswith("head/paraphrase") for name in thawed)
    assert watcher.evaluated == [4, 9]  # at the end of every stage


def test_every_stage_has_its_own_rise_and_fall(tmp_path: Path) -> None:
    """Stage one: frozen, linear, no step of warm-up (0.1 of 4 rounds to 0). Stage two: cosine."""
    rates = watched(tmp_path / "run", **TWO).rates
    assert [max(of) for of in rates[:4]] == pytest.approx([1e-2 * x for x in (1, 0.75, 0.5, 0.25)])
    cosine = [1 / 3, 2 / 3, 1.0, 0.75, 0.25]  # (1 + cos(pi k / 3)) / 2 after the rise
    assert all(len(of) == 1 for of in rates[:4])
    assert [sorted(of) for of in rates[4:]] == [pytest.approx([1e-3 * x]) for x in cosine]


def test_moments_start_anew(tmp_path: Path) -> None:
    """After the first step of stage two Adam has counted one step, for the heads too."""
    watcher = watched(tmp_path / "run", **TWO | {"training__stages": [STAGES[0], {"steps": 1}]})
    states = watcher.trainer.learner.optimizer.state.values()
    counts = {float(state["step"]) for state in states}
    assert counts == {1.0}


def test_what_is_frozen_in_a_stage_is_in_eval_mode_without_gradients() -> None:
    network = build_network("late:SI", dropout=0.1)
    how = Training()
    for is_frozen in (True, False, True):
        optimizer = entered(network, PlannedStage(0, 5, how, is_frozen))
        network.train()
        learning = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for owner, module in network.bank.items():
            is_still = is_frozen and owner.startswith(TRUNK)
            assert module.training != is_still
            assert all(p.requires_grad != is_still for p in module.parameters())
            assert all((id(p) in learning) != is_still for p in module.parameters())


def test_a_frozen_stage_has_the_rates_of_the_frozen_plan() -> None:
    for plan in ("shared", "hybrid:2", "late:SI", "frozen+late:SI"):
        layout = build_network(plan).layout
        frozen = build_network(f"frozen+{plan.removeprefix('frozen+')}").layout
        assert PlannedStage(0, 1, Training(), is_frozen=True).rates(layout) == frozen.rates
        assert PlannedStage(0, 1, Training()).rates(layout) == layout.rates


def test_layer_decay_holds_in_a_stage() -> None:
    network = build_network("shared")
    how = Training(layer_decay=0.5, stages=[{"steps": 2, "learning_rate": 0.4}])
    (stage,) = plan_steps({"t": 9}, how).stages
    optimizer = entered(network, stage)
    rates = {id(p): group["base"] for group in optimizer.param_groups for p in group["params"]}
    for owner, _, parameter in network.owner_parameters():
        assert (
            rates[id(parameter)]
            == owner_rates(network.layout, stage.training, network.layout.rates)[owner]
        )
    assert rates[id(next(network.bank["attention/layer02"].parameters()))] == pytest.approx(0.2)


def test_parameters_that_learn_in_any_stage_are_counted() -> None:
    layout = build_network("late:S").layout
    sizes = dict.fromkeys(layout.tasks, 9)
    added = sum(n for owner, n in layout.sizes.items() if owner.startswith(("late", "head")))
    both = plan_steps(sizes, Training(stages=[{"steps": 1, "frozen": True}, {"steps": 1}]))
    still = plan_steps(sizes, Training(stages=[{"steps": 1, "frozen": True}]))
    assert trained_parameters(layout, both) == layout.trained
    assert trained_parameters(layout, still) == added < layout.trained


# ------------------------------------------------------------------ guards


def test_the_guard_knows_the_rates_in_force() -> None:
    """A frozen trunk needs no gradient, though the plan lets it learn; a thawed one does."""
    network = build_network("shared")
    entered(network, PlannedStage(0, 5, Training(), is_frozen=True))
    check_reach(network, compute_losses(network, mixed_batch(network)))
    entered(network, PlannedStage(0, 5, Training()))
    check_reach(network, compute_losses(network, mixed_batch(network)))
    for task in NAMES:  # nothing passes a head of zeros
        torch.nn.init.zeros_(network.bank[f"head/{task}"].output.weight)
    with pytest.raises(GuardError, match="sentiment -> embeddings"):
        check_reach(network, compute_losses(network, mixed_batch(network)))


def test_the_guard_looks_in_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[int, set[str]]] = []

    def look(network: Any, losses: Any) -> None:
        called.append((sum(rate > 0 for rate in network.rates.values()), set(losses)))

    monkeypatch.setattr(trainer_module, "check_reach", look)
    stages = [{"steps": 4, "frozen": True, "tasks": ["sentiment"]}, {"steps": 4}]
    watched(tmp_path / "run", **TWO | {"training__stages": stages})
    assert [tasks for _, tasks in called] == [{"sentiment"}, set(NAMES)]
    assert called[0][0] < called[1][0]


def test_a_later_stage_in_which_nothing_learns_is_refused_before_the_first_step(
    tmp_path: Path,
) -> None:
    rates = (Rate(owner="head/*", factor=0.0), Rate(owner="*", factor=1.0))
    plan = SharingPlan(name="still", rates=rates).to_data()
    recipe = world().recipe(
        plan, training__max_steps=None,
        training__stages=[{"steps": 2}, {"steps": 2, "frozen": True}],
    )  # fmt: skip
    with pytest.raises(PlanError, match="'still': nothing on the route"):
        mops.train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------ steps and record


def test_the_record_has_the_steps_of_each_stage(tmp_path: Path) -> None:
    run = mops.train(world().recipe("shared", **TWO), tmp_path / "run")
    info = run.record.train_info
    assert info.steps == info.planned_steps == 9
    assert [vars(stage) for stage in info.stages] == [
        {"steps": 4, "planned_steps": 4, "frozen": True, "schedule": "together"},
        {"steps": 5, "planned_steps": 5, "frozen": False, "schedule": "mixed"},
    ]
    assert info.tasks["sentiment"].examples > info.tasks["paraphrase"].examples > 0
    recorded = run.record.run_info.recipe["training"]["stages"]
    assert [stage["steps"] for stage in recorded] == [4, 5]
    unseen = ("paraphrase",) if info.best_step <= 4 else ()  # by the state that is kept
    assert run.scores.untrained == unseen


def test_stages_of_a_schedule() -> None:
    sizes = {"a": 40, "b": 20}
    how = Training(
        per_task_batch_size=10, train_tasks=["a", "b"], task_steps={"b": 3},
        stages=[{"steps": 2, "tasks": ["b"]}, {"steps": 3, "tasks": ["b"]}, {"steps": 4}],
    )  # fmt: skip
    found = plan_steps(sizes, how)
    assert [(stage.first, stage.stop) for stage in found.stages] == [(0, 2), (2, 3), (3, 7)]
    assert found.steps == ({"b": 10},) * 3 + ({"a": 10},) * 4  # b's budget is over the whole run
    assert [found.stage_at(step).first for step in range(8)] == [0, 0, 2, 3, 3, 3, 3, 3]


# ------------------------------------------------------------------ resume


ALL = {
    **TWO,
    "training__save_steps": 1,
    "training__augment": {"word_dropout": 0.3, "swap": ["paraphrase", "similarity"]},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stages") / "whole"
    mops.train(world().recipe("hybrid:1", **ALL), out)
    return out


@pytest.mark.parametrize("done", [2, 4, 5, 7])
def test_resume_gives_the_same_bits(done: int, whole: Path, tmp_path: Path) -> None:
    """Inside a stage and on the border between two, with changed rows and mixed batches."""
    recipe, out = world().recipe("hybrid:1", **ALL), tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        mops.train(recipe, out, StopAt(done + 1))  # saved after the step before
    mops.train(recipe, out)
    weights = [load_file(run / "model" / "model.safetensors") for run in (out, whole)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[1])
    for file in (whole / "predictions").iterdir():
        assert (out / "predictions" / file.name).read_bytes() == file.read_bytes()
    curves = [
        [
            json.loads(line) | {"seconds": 0}
            for line in (run / "curve.jsonl").read_text().splitlines()
        ]
        for run in (out, whole)
    ]
    assert curves[0] == curves[1]


def test_evaluations_at_fractions_of_a_stage(tmp_path: Path) -> None:
    half = {"training__max_steps": 9, "training__eval_steps": 0.5}
    assert watched(tmp_path / "run", **half).evaluated == [5, 9]
    stage = plan_steps({"t": 9}, Training(max_steps=40, eval_steps=0.125)).stages[0]
    assert stage.eval_interval(7) == 5
    assert plan_steps({"t": 9}, Training(max_steps=40)).stages[0].eval_interval(7) == 7
