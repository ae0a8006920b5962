"""Every setting of a recipe that training reads: the run ends and does what the key says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import mops
from mops.model.blocks import Dense
from mops.training import machine
from mops.training.run import Run
from running import TRAIN_ROWS, world, write_long_encoder, write_toy_data

pytestmark = pytest.mark.usefixtures("few_resamples")
NAMES = ("sentiment", "paraphrase", "similarity")
safe_bfloat16 = pytest.mark.skipif(
    not machine.speed_up(machine.PRODUCTS), reason="AMX is an illegal instruction here"
)


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    world()
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)


@pytest.fixture
def run_with(tmp_path: Path) -> Any:
    """`run_with(plan, training__key=value)`: one run in a folder of its own."""

    def run(plan: Any = "shared", **settings: Any) -> Run:
        return mops.train(world().recipe(plan, **settings), tmp_path / "run")

    return run


def batches(run: Run) -> dict[str, int]:
    return {name: facts.batches for name, facts in run.record.train_info.tasks.items()}


def evaluations(run: Run) -> list[dict[str, Any]]:
    lines = map(json.loads, (run.folder / "curve.jsonl").read_text().splitlines())
    return [line for line in lines if "selection" in line]


def losses_of_first_step(run: Run) -> dict[str, Any]:
    return json.loads((run.folder / "curve.jsonl").read_text().splitlines()[0])


# ------------------------------------------------------------------ schedules


def test_together_gives_every_task_every_step(run_with: Any) -> None:
    assert batches(run_with(training__schedule="together")) == dict.fromkeys(NAMES, 8)


def test_in_turn_passes_over_each_task(run_with: Any) -> None:
    """An epoch is one pass of each: 15, 8 and 5 batches of 4 rows."""
    run = run_with(training__schedule="in-turn", training__max_steps=28)
    assert batches(run) == {"sentiment": 15, "paraphrase": 8, "similarity": 5}
    assert run.record.train_info.epochs == 1


def test_proportional_draws_by_size(run_with: Any) -> None:
    run = run_with(training__schedule="proportional", training__max_steps=40)
    found = batches(run)
    assert sum(found.values()) == 40
    assert found["sentiment"] > found["similarity"] > 0
    planned = {n: f.planned_batches for n, f in run.record.train_info.tasks.items()}
    assert found == planned


def test_a_task_without_a_step_is_named_and_does_not_count(run_with: Any) -> None:
    run = run_with(training__schedule="in-turn", training__max_steps=6)
    assert run.scores.untrained == ("paraphrase", "similarity")
    for name in ("paraphrase", "similarity"):
        assert f"{name}: no training step was taken for it" in run.record.warnings
        assert run.scores.tasks[name]["report"]["rows"] > 0
        assert run.record.train_info.tasks[name].passes == 0
    alone = run.scores.tasks["sentiment"]["report"]["accuracy"]
    assert run.scores.overall["report"]["overall"] == pytest.approx(alone)


def test_every_task_has_its_own_batch_size(run_with: Any) -> None:
    sizes = {"sentiment": 6, "paraphrase": 3, "similarity": 2}
    run = run_with(training__per_task_batch_size=sizes)
    for name, facts in run.record.train_info.tasks.items():
        assert facts.examples == 8 * sizes[name]
        assert facts.passes == pytest.approx(8 * sizes[name] / TRAIN_ROWS[name])
    assert run.record.train_info.steps_per_epoch == 10


def test_epochs_and_their_length(run_with: Any) -> None:
    run = run_with(
        training__max_steps=None, training__num_train_epochs=2, training__steps_per_epoch=3,
        training__eval_steps=None,
    )  # fmt: skip
    assert run.record.train_info.steps == 6
    assert [line["step"] for line in evaluations(run)] == [3, 6]


# ------------------------------------------------------------------ reading and heads

HEADS = {
    "linear": "linear",
    "mlp": {"kind": "mlp", "depth": 2, "width": 16, "activation": "gelu", "norm": True},
    "per task": {"sentiment": "mlp", "similarity": {"kind": "linear", "norm": True}},
}


@pytest.mark.parametrize("pair", ["cross", "bi"])
@pytest.mark.parametrize("head", HEADS)
def test_heads_on_both_kinds_of_pairs(run_with: Any, pair: str, head: str) -> None:
    assert_answers_after_loading(run_with(training__pair=pair, training__head=HEADS[head]))


@pytest.mark.parametrize("scale", ["half", "relu", "learned"])
def test_cosine_heads(run_with: Any, scale: str) -> None:
    head = {"similarity": {"kind": "cosine", "scale": scale, "project": True, "norm": True}}
    assert_answers_after_loading(run_with(training__pair="bi", training__head=head))


@pytest.mark.parametrize("pool", ["pooler", "cls", "mean", "sum"])
def test_pools(run_with: Any, pool: str) -> None:
    run = run_with("hybrid:2", training__pool=pool)
    assert ("pooler/sentiment" in run.record.costs.parameters_by_owner) == (pool == "pooler")
    assert_answers_after_loading(run)


@pytest.mark.parametrize("features", [["sum"], ["concat"], ["difference", "product", "concat"]])
def test_features_of_bi_pairs(run_with: Any, features: list[str]) -> None:
    assert_answers_after_loading(run_with(training__pair="bi", training__features=features))


def assert_answers_after_loading(run: Run) -> None:
    """What was written down comes out of the bundle again."""
    model = mops.load(run.folder / "model")
    lines = (run.folder / "predictions" / "similarity-test.csv").read_text().splitlines()[1:]
    rows = (world().data / "sts-test-student.csv").read_text().splitlines()[1:]
    found = model.predict("similarity", [tuple(row.split("\t")[2:4]) for row in rows])
    written = [float(line.split(",")[1]) for line in lines]
    assert found == pytest.approx(written, rel=1e-6)
    assert all(0 <= value <= 5 for value in found)


# ------------------------------------------------------------------ what learns


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.folder / "model" / "model.safetensors")


def test_a_frozen_encoder_does_not_move_and_what_is_on_it_does(
    run_with: Any, tmp_path: Path
) -> None:
    run = run_with("frozen+late:SI")
    other = mops.train(world().recipe("frozen+late:SI", training__seed=4), tmp_path / "other")
    mine, theirs = weights_of(run), weights_of(other)
    moved = {key.split("/")[0].split(".")[0] for key in mine if not mine[key].equal(theirs[key])}
    assert moved == {"late1", "late2", "head"}
    assert run.record.costs.trained_parameters < run.record.costs.parameters


def test_a_loss_weight_of_zero_leaves_a_tasks_own_weights_to_decay_alone(run_with: Any) -> None:
    run = run_with("separate", training__loss_weights={"similarity": 0}, training__weight_decay=0.0)
    first = losses_of_first_step(run)
    two = first["losses"]["sentiment"] + first["losses"]["paraphrase"]
    assert first["loss"] == pytest.approx(two)


def test_loss_weights_multiply(run_with: Any) -> None:
    weights = {"sentiment": 2.0, "similarity": 0.5}
    first = losses_of_first_step(run_with(training__loss_weights=weights))
    expected = sum(weights.get(name, 1) * loss for name, loss in first["losses"].items())
    assert first["loss"] == pytest.approx(expected)


def test_class_weights_change_the_loss(run_with: Any, tmp_path: Path) -> None:
    several = {"training__per_task_batch_size": 20, "training__max_steps": 1}  # of every class
    plain = losses_of_first_step(run_with(**several))["losses"]
    settings = several | {
        "tasks__sentiment__class_weights": [9, 1, 1, 1, 1],
        "tasks__paraphrase__class_weights": [1, 9],
    }
    run = mops.train(world().recipe("shared", **settings), tmp_path / "weighted")
    weighted = losses_of_first_step(run)["losses"]
    assert weighted["sentiment"] != plain["sentiment"]
    assert weighted["paraphrase"] != plain["paraphrase"]
    assert weighted["similarity"] == plain["similarity"]


@safe_bfloat16
@pytest.mark.parametrize("has_bias", [True, False])
def test_bfloat16_rounds_the_products_of_a_training_step(has_bias: bool) -> None:
    dense = Dense(64, 48, has_bias)
    dense.has_bfloat16 = True
    input_RN = torch.randn(20, 64)
    exact = torch.nn.functional.linear(input_RN, dense.weight, dense.bias)
    assert torch.equal(dense.eval()(input_RN), exact)
    rounded = dense.train()(input_RN)
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.02)


@safe_bfloat16
def test_bfloat16_changes_nothing_but_products(run_with: Any, tmp_path: Path) -> None:
    plain = run_with(training__max_steps=4)
    recipe = world().recipe("shared", training__max_steps=4, training__bf16=True)
    fast = mops.train(recipe, tmp_path / "fast")
    found, expected = losses_of_first_step(fast), losses_of_first_step(plain)
    assert found["losses"] != expected["losses"]
    assert found["losses"] == pytest.approx(expected["losses"], rel=0.02)
    assert {tensor.dtype for tensor in weights_of(fast).values()} == {torch.float32}


@pytest.mark.parametrize(
    ("known", "program", "is_used"),
    [
        (True, "print(2.0)", True),
        (True, "print(0.7)", False),  # slower than float32
        (True, "import os; os.abort()", False),
        (False, "print(2.0)", False),
    ],
)
def test_bf16_auto_tries_a_product_in_another_process(
    known: bool, program: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    capabilities = {"avx512_bf16": known}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(machine, "PRODUCTS", program)
    assert machine.has_bfloat16.__wrapped__("cpu") is is_used


@safe_bfloat16
@pytest.mark.parametrize("is_used", [True, False])
def test_bf16_auto_takes_bfloat16_where_it_is_fast(
    is_used: bool, run_with: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mops.training.prepare.has_bfloat16", lambda device: is_used)
    recipe = world().recipe("shared", training__max_steps=4, training__bf16="auto")
    weights = weights_of(run_with(training__max_steps=4, training__bf16=is_used))
    found = weights_of(mops.train(recipe, tmp_path / "auto"))
    assert all(torch.equal(tensor, weights[name]) for name, tensor in found.items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, from inside its compiler
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
def test_a_compiled_run_gives_nearly_the_same_losses(
    run_with: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    encoder = write_long_encoder(tmp_path / "encoder", depth=1)
    settings = {"training__max_steps": 1, "training__dropout": 0.0, "encoder": encoder}
    plain = run_with(**settings)
    recipe = world().recipe("shared", **settings, training__torch_compile=True)
    compiled = mops.train(recipe, tmp_path / "compiled")
    found, expected = losses_of_first_step(compiled), losses_of_first_step(plain)
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-3)
    assert set(weights_of(compiled)) == set(weights_of(plain))


# ------------------------------------------------------------------ the best state


@pytest.mark.parametrize("by", ["overall", "overall_normalised"])
def test_the_best_state_is_the_one_with_the_best_named_score(run_with: Any, by: str) -> None:
    run = run_with(
        training__best_by=by, training__eval_steps=2, training__max_steps=12,
        training__learning_rate=1e-2,
    )  # fmt: skip
    lines = evaluations(run)
    best = max(line[by] for line in lines)
    info = run.record.train_info
    assert info.best_score == best
    assert info.best_step == next(line["step"] for line in lines if line[by] == best)
    assert run.scores.overall["validation"][by] == pytest.approx(best)


def test_early_stopping_stops(run_with: Any) -> None:
    """A rate so small that no evaluation is better than the first."""
    run = run_with(
        training__early_stopping=2, training__eval_steps=1, training__max_steps=50,
        training__learning_rate=1e-12, training__head_learning_rate=1e-12,
    )  # fmt: skip
    info = run.record.train_info
    assert info.stopped_early and info.steps == 3 and info.planned_steps == 50
    assert info.tasks["sentiment"].batches == 3
    assert info.tasks["sentiment"].planned_batches == 50


# ------------------------------------------------------------------ validation out of training


def test_a_split_takes_validation_out_of_the_training_rows(tmp_path: Path) -> None:
    data = write_toy_data(tmp_path / "data")
    entry = {
        "type": "classification", "text": "sentence", "label": "sentiment", "split": 0.4,
        "train": str(data / "ids-sst-train.csv"),
    }  # fmt: skip
    recipe = mops.recipe(
        config=None, data=data, tasks=["sentiment"], encoder=str(world().encoder),
        set={"tasks.sentiment": entry, "training.max_steps": 2, "training.max_length": 32},
    )  # fmt: skip
    run = mops.train(recipe, tmp_path / "run")
    learned = run.record.train_info.tasks["sentiment"].rows
    judged = run.scores.tasks["sentiment"]["validation"]["rows"]
    assert learned + judged == 60 and 20 <= judged <= 28
    assert run.record.run_info.recipe["tasks"]["sentiment"]["labels"] == list("01234")
    lines = (run.folder / "predictions" / "sentiment-validation.csv").read_text().splitlines()
    assert len(lines) == 1 + judged
