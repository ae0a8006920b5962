"""Runs that are trained as a batch give what each of them gives alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executing import ledger_with, trial

import mops
from mops.config.recipe import Recipe
from mops.errors import RunError
from mops.surveys import executors
from mops.surveys.ledger import FINISHED
from mops.training import batched as batched_run
from mops.training import checkpoint
from mops.training import run as single_run
from mops.training.batched import batching_obstacle, train_many
from mops.training.feature_cache import FeatureCache
from running import StopAt, world

SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("frozen+late:SIS", {"seed": 4}),
    ("frozen+late:III", {"head_learning_rate": 0.01, "loss_weights": {"similarity": 0.3}}),
    ("frozen+late:SI", {"head_dropout": 0.0, "weight_decay": 0.1, "early_stopping": 1}),
    ("frozen+shared", {"lr_scheduler_type": "none"}),
)
COMMON: dict[str, Any] = {
    "pair": "bi", "head": {"similarity": {"kind": "cosine", "project": True}},
    "head_dropout": 0.2, "max_steps": 12,
}  # fmt: skip


def recipes(**more: Any) -> list[Recipe]:
    made = world()
    return [
        made.recipe(
            plan, **{f"training__{key}": value for key, value in (COMMON | own | more).items()}
        )
        for plan, own in SETTINGS
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Each recipe trained by itself."""
    folder = tmp_path_factory.mktemp("alone")
    return [mops.train(recipe, folder / str(n)).folder for n, recipe in enumerate(recipes())]


def numbers_in(value: Any) -> Any:
    """All numbers of nested data, without what is measured."""
    if isinstance(value, dict):
        measured = {"seconds", "train_seconds", "run_seconds", "step_seconds_median", "batched"}
        measured |= {"frozen_seconds", "frozen_sequences"}  # here all runs encode together
        return {key: numbers_in(v) for key, v in value.items() if key not in measured}
    return [numbers_in(v) for v in value] if isinstance(value, list | tuple) else value


def assert_close(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs.keys() - {"spearman"}:  # rounding may swap the ranks of two rows
            assert_close(ours[key], theirs[key])
        assert ours.get("spearman") == pytest.approx(theirs.get("spearman"), abs=0.02)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_close(mine, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    else:
        assert ours == theirs


def assert_same_run(run: Path, other: Path) -> None:
    """The same files; the curve, the weights and the record within rounding."""
    files = [{p.relative_to(f).as_posix() for p in f.rglob("*")} for f in (run, other)]
    assert files[0] == files[1]
    curves = [
        [json.loads(line) for line in (f / "curve.jsonl").read_text().splitlines()]
        for f in (run, other)
    ]
    assert_close(numbers_in(curves[0]), numbers_in(curves[1]))
    records = [mops.read_record(f / "record.json") for f in (run, other)]
    for part in ("scores", "train_info"):
        assert_close(*(numbers_in(asdict(getattr(record, part))) for record in records))
    assert records[0].warnings == records[1].warnings
    assert (run / "recipe.yaml").read_text() == (other / "recipe.yaml").read_text()
    weights = [mops.load(f / "model").bundle.network.weights() for f in (run, other)]
    for name, weight in weights[1].items():
        assert float((weights[0][name] - weight).abs().max()) < 1e-4, name


def test_every_run_equals_the_run_trained_alone(alone: list[Path], tmp_path: Path) -> None:
    outs = [tmp_path / str(n) for n in range(len(alone))]
    runs = train_many(recipes(), outs)
    for run, out, other in zip(runs, outs, alone, strict=True):
        assert isinstance(run, mops.Run) and run.folder == out and not run.was_finished
        assert_same_run(out, other)
    batched = [mops.read_record(out / "record.json").train_info.batched for out in outs]
    assert batched == [len(outs)] * len(outs)
    again = train_many(recipes(), outs)
    assert all(isinstance(run, mops.Run) and run.was_finished for run in again)


def test_an_interrupted_batch_resumes_as_a_batch_or_alone(
    alone: list[Path], tmp_path: Path
) -> None:
    outs = [tmp_path / str(n) for n in range(len(alone))]
    given = recipes(save_steps=3)
    with pytest.raises(ZeroDivisionError):
        train_many(given, outs, StopAt(7))
    saved = [(out / "state" / "state.safetensors").stat().st_size for out in outs]
    encoder = (world().encoder / "model.safetensors").stat().st_size
    assert min(saved) < encoder < max(saved) * 9  # frozen weights are not in a state
    mops.train(given[0], outs[0])
    state = outs[3] / "state" / "state.safetensors"
    whole = state.read_bytes()
    state.write_bytes(whole[:100])  # damaged: said of this run alone
    *_, damaged = train_many(given, outs)
    assert isinstance(damaged, RunError) and "cannot be read" in str(damaged)
    state.write_bytes(whole)
    train_many(given, outs)
    for recipe, out, other in zip(given, outs, alone, strict=True):
        (out / "recipe.yaml").write_text((other / "recipe.yaml").read_text())
        assert_same_run(out, other)
        assert recipe.training.save_steps == 3


def test_a_run_that_diverges_does_not_stop_the_others(alone: list[Path], tmp_path: Path) -> None:
    given = [*recipes()[:2], recipes(head_learning_rate=1e9, lr_scheduler_type="none")[2]]
    outs = [tmp_path / str(n) for n in range(3)]
    *fine, failed = train_many(given, outs)
    assert isinstance(failed, RunError) and "is not a number" in str(failed)
    assert not (outs[2] / "record.json").exists()
    for out, other in zip(outs[:2], alone, strict=False):
        assert_same_run(out, other)
    assert all(isinstance(run, mops.Run) for run in fine)


@pytest.mark.parametrize(("module", "name"), [(checkpoint, "save"), (single_run, "conclude")])
def test_a_write_error_ends_only_its_own_run(
    module: Any, name: str, alone: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last checkpoint of a run, or in its final files; the next call resumes it."""
    outs = [tmp_path / "full", tmp_path / "fine"]
    write = getattr(module, name)

    def fail(first: Any, second: Any, *more: Any) -> Any:
        if "full" in str(getattr(second, "folder", first)):
            raise RunError("cannot write: no space left")
        return write(first, second, *more)

    with monkeypatch.context() as patched:
        patched.setattr(module, name, fail)
        failed, fine = train_many(recipes()[:2], outs)
    assert isinstance(failed, RunError) and isinstance(fine, mops.Run)
    assert_same_run(outs[1], alone[1])
    train_many(recipes()[:2], outs)
    assert_same_run(outs[0], alone[0])


def test_small_batches_give_the_same_and_texts_are_encoded_once(
    alone: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for one network per batch, and without the feature cache."""
    monkeypatch.setattr(batched_run, "BATCH_BYTES", 1)
    monkeypatch.setenv("MOPS_CACHE", "off")
    tasks: list[str] = []

    def count(cache: FeatureCache, task: str, segments: Any) -> np.ndarray:
        tasks.append(task)
        assert cache.store is None
        assert len({segment.ids.tobytes() for segment in segments}) == len(segments)
        return pooled(cache, task, segments)

    pooled = FeatureCache.pooled
    monkeypatch.setattr(FeatureCache, "pooled", count)
    outs = [tmp_path / str(n) for n in range(2)]
    train_many(recipes()[:2], outs)
    assert tasks == ["sentiment", "paraphrase", "similarity"]
    for out, other in zip(outs, alone, strict=False):
        assert_same_run(out, other)


@pytest.mark.parametrize(
    ("plan", "settings", "reason"),
    [
        ("late:SIS", {}, "its encoder learns"),
        ("frozen+pals:top", {}, "adds something inside the encoder"),
        ("frozen+progressive", {}, "has feeds"),
        ("frozen+late:NS", {}, "has a LayerNorm before the heads"),
        ("frozen+shared", {"gradients": "pcgrad"}, "gradients is not sum"),
        ("frozen+shared", {"loss_weights": "dwa"}, "loss weights are not fixed"),
        ("frozen+shared", {"augment": {"word_dropout": 0.1}}, "augment is set"),
        ("frozen+shared", {"stages": [{"steps": 2}], "max_steps": None}, "stages is set"),
    ],
)
def test_runs_that_cannot_be_batched(plan: str, settings: dict[str, Any], reason: str) -> None:
    recipe = world().recipe(plan, **{f"training__{key}": v for key, v in settings.items()})
    assert reason in batching_obstacle(recipe)


def test_a_plan_of_any_name_that_freezes_the_encoder_is_batched() -> None:
    learning, frozen = {"owner": "head*", "factor": 1}, {"owner": "*", "factor": 0}
    faster, late = {"owner": "late*", "factor": 2}, {"per": ["task"], "width": 8}
    plans = [
        {"name": "mine", "rates": [learning, frozen]},
        {
            "name": "mine",
            "rates": [learning, faster, frozen],
            "late": [late],
        },
        {"name": "frozen+late:I", "rates": [learning, frozen], "late": [late]},
        {"name": "frozen+late:I"},
    ]
    reasons = [batching_obstacle(world().recipe(plan)) for plan in plans]
    assert reasons[:2] == ["", ""]
    assert "freezes more than the encoder" in reasons[2] and "encoder learns" in reasons[3]


def test_a_run_that_cannot_be_batched_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    given = [recipes()[0], world().recipe("late:SIS")]
    with pytest.raises(mops.MopsError, match=r"b: this run cannot be trained in a batch: its enc"):
        train_many(given, [tmp_path / "a", tmp_path / "b"])
    assert not any(tmp_path.iterdir())
    assert batching_obstacle(given[0]) == "" != batching_obstacle(given[0], device="cuda")


def test_a_batch_that_breaks_off_is_trained_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even an unexpected error does not fail the trials of a survey that can be trained alone."""
    trials = [trial("frozen+late:SI", seed) for seed in (1, 2)]
    ledger = ledger_with(tmp_path, *trials)
    monkeypatch.setattr(executors, "train_many", lambda *_, **__: 1 / 0)
    executors.train_trials(ledger.folder, [each.id for each in trials])
    assert [ledger.state(each.id) for each in trials] == [FINISHED] * 2
