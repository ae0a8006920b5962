"""Runs with a frozen prefix: the same with the cache and without, and what is computed when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from same_runs import assert_same_model

import mops
from mops.config.training import Training
from mops.data.schedule import plan_steps
from mops.store import Store
from mops.training import feature_cache
from mops.training.feature_cache import FeatureCache
from mops.training.tracking import Watcher
from running import StopAt, World, world

LAYERS = "layers:FSI"  # of the world's encoder, which has three
STAGES = [{"steps": 4, "frozen": True}, {"steps": 4}]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    found = world()
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)
    return found


class Listening(Watcher):
    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)


def sequences(run: mops.Run) -> Mapping[str, int]:
    return run.record.train_info.frozen_sequences


@pytest.mark.parametrize(
    ("plan", "more"),
    [
        ("frozen+late:SIS", {"training__pair": "bi"}),
        ("frozen+shared", {"training__pool": "pooler", "training__gradients": "pcgrad"}),
        (LAYERS, {"training__max_steps": 24, "training__eval_steps": 8}),  # rows come again
        ("shared", {"training__stages": STAGES, "training__max_steps": None}),
        ("frozen+late:SIS", {"training__augment": {"word_dropout": 0.3}}),
    ],
)
def test_a_run_with_the_cache_is_the_run_without_it(
    made: World, plan: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: with an empty cache and with a full one."""
    recipe = made.recipe(plan, **more)
    monkeypatch.setenv("MOPS_CACHE", str(tmp_path / "cache"))
    first = mops.train(recipe, tmp_path / "first")
    second = mops.train(recipe, tmp_path / "second")
    monkeypatch.setenv("MOPS_CACHE", "off")
    plain = mops.train(recipe, tmp_path / "plain")
    assert_same_model(first.folder, plain.folder)
    assert_same_model(second.folder, plain.folder)
    assert sequences(plain) == {"computed": 0, "found": 0}
    assert sequences(first)["computed"] > 0
    assert sequences(second) == {"computed": 0, "found": sum(sequences(first).values())}
    seconds = [run.record.train_info.frozen_seconds for run in (first, plain)]
    assert seconds[0] > 0 == seconds[1]


def test_a_broken_off_run_goes_on_to_the_same_bits(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it had computed, and also when that is gone."""
    recipe = made.recipe("frozen+late:SIS", training__save_steps=3)
    monkeypatch.setenv("MOPS_CACHE", str(tmp_path / "cache"))
    whole = mops.train(recipe, tmp_path / "whole")
    for name in ("kept", "gone"):
        with pytest.raises(ZeroDivisionError):
            mops.train(recipe, tmp_path / name, StopAt(5))
        if name == "gone":
            Store(tmp_path / "cache").clear()
        mops.train(recipe, tmp_path / name)
        assert_same_model(tmp_path / name, whole.folder)


def test_training_rows_are_computed_before_the_steps_and_only_those(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 steps of 4 rows of three tasks are fewer than there are; nothing is computed in a step."""
    monkeypatch.setenv("MOPS_CACHE", str(tmp_path / "cache"))
    asked: list[int] = []
    compute = FeatureCache.compute

    def counted(cache: FeatureCache, key: str, segments: Any) -> Any:
        asked.append(len(segments))
        return compute(cache, key, segments)

    monkeypatch.setattr(FeatureCache, "compute", counted)
    run = mops.train(made.recipe("frozen+shared"), tmp_path / "run")
    assert sum(asked) == sequences(run)["computed"]
    rows = {name: share.examples for name, share in run.record.train_info.tasks.items()}
    assert sum(asked) <= sum(rows.values()) + 3 * 20  # and at most all validation rows


def test_the_watcher_is_told(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOPS_CACHE", str(tmp_path / "cache"))
    watcher = Listening()
    mops.train(made.recipe("frozen+shared"), tmp_path / "run", watcher)
    assert any(phase.startswith("computing frozen layers") for phase in watcher.phases)
    assert "training" in watcher.phases


def test_how_often_rows_come() -> None:
    """Ten rows, three passes in steps of four; what is left after the fourth step."""
    training = Training(max_steps=7, per_task_batch_size=4, eval_steps=3)
    schedule = plan_steps({"a": 10}, training)
    (stage,) = schedule.stages

    def reused(uses: int, step: int) -> list[int]:
        cache: Any = SimpleNamespace(least_uses=uses)
        return feature_cache.reused_rows(cache, schedule, stage, step)["a"].tolist()

    assert [len(reused(uses, 0)) for uses in (1, 2, 3, 4)] == [10, 10, 8, 0]
    taken = Counter(place.row for place in schedule.places("a", 16, 12))
    for uses in (1, 2):
        assert reused(uses, 4) == sorted(row for row, count in taken.items() if count >= uses)
