"""Stand-ins for trackers: one that remembers, and modules with the calls of those not installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from mops.config.recipe import Recipe
from mops.training import tracking as trackers
from mops.training.tracking import Label, named_scalars
from running import world

Told = list[tuple[int, dict[str, float]]]


def recipe(*told: str, plan: str = "shared", **settings: Any) -> Recipe:
    return world().recipe(plan, training__report_to=list(told), **settings)


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "curve.jsonl").read_text("utf-8").splitlines()]


def told_by(folder: Path) -> Told:
    """What a tracker should have heard of a run, by its curve."""
    return [(line["step"], dict(named_scalars(line))) for line in curve(folder)]


class Recorder:
    """A tracker whose runs outlive the process that told them."""

    runs: dict[str, Recorder] = {}  # key -> the run as it is known there

    def __init__(self, label: Label, parameters: Mapping[str, Any], key: str) -> None:
        self.label, self.parameters, self.ends = label, parameters, []
        self.key = key or f"key-{len(self.runs)}"
        self.told: Told = self.runs[self.key].told if key else []
        self.runs[self.key] = self

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.told.append((step, dict(values)))

    def end(self, scores: Mapping[str, float]) -> None:
        self.ends.append(dict(scores))


def record(monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, Recorder]:
    """These trackers become recorders, which need nothing to be installed."""
    monkeypatch.setattr(Recorder, "runs", {})
    for name in names:
        install(monkeypatch, name)
        monkeypatch.setitem(trackers.TRACKERS, name, Recorder)
    return Recorder.runs


def install(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module of this name, as if it were installed."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, loader=None, origin="here")
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


class Store:
    """What any of the stand-ins has been told, in the same words."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.experiments: dict[str, str] = {}
        self.keys: list[str] = []
        self.parameters: dict[str, str] = {}
        self.series: dict[str, list[tuple[int, float]]] = {}
        self.names: list[tuple[str, str | None]] = []
        self.states: list[str] = []

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.series.setdefault(name, []).append((step, value))


# ------------------------------------------------------------------ mlflow


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Param(NamedTuple):
    key: str
    value: str


class MlflowClient:
    """Experiments, runs and batches, with mlflow's limits."""

    def __init__(self, store: Store, tracking_uri: str) -> None:
        self.store, self.experiments = store, store.experiments
        store.places.append(tracking_uri)

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.experiments.get(name)
        return SimpleNamespace(experiment_id=found) if found else None

    def create_experiment(self, name: str) -> str:
        assert name not in self.experiments
        return self.experiments.setdefault(name, f"e{len(self.experiments)}")

    def create_run(self, experiment_id: str, *, run_name: str) -> Any:
        (group,) = (name for name, of in self.experiments.items() if of == experiment_id)
        self.store.names.append((run_name, group))
        self.store.keys.append(f"run{len(self.store.keys)}")
        return SimpleNamespace(info=SimpleNamespace(run_id=self.store.keys[-1]))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        known = self.store.parameters
        assert run_id in self.store.keys and len(params) <= 100
        assert all(known.get(of.key, of.value) == of.value for of in params)
        known |= {of.key: of.value for of in params}
        for metric in metrics:
            self.store.add(metric.step, {metric.key: metric.value})

    def update_run(self, run_id: str, status: str) -> None:
        assert run_id in self.store.keys
        self.store.states.append(status)

    set_terminated = update_run


def mlflow_stand_in(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    install(monkeypatch, "mlflow", MlflowClient=partial(MlflowClient, store))
    install(monkeypatch, "mlflow.entities", Metric=Metric, Param=Param)


# ------------------------------------------------------------------ wandb


def wandb_stand_in(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    class Run:
        def __init__(self, key: str) -> None:
            self.id, self.summary = key, {}
            store.keys.append(key)
            store.states.append("RUNNING")

        def define_metric(self, name: str, step_metric: str) -> None:
            assert (name, step_metric) == ("*", "step")

        def log(self, data: dict[str, float]) -> None:
            values = dict(data)
            store.add(int(values.pop("step")), values)

        def finish(self, exit_code: int) -> None:
            store.add(0, self.summary)
            store.states.append("KILLED" if exit_code else "FINISHED")

    def init(
        *, project: str, name: str, group: str | None, config: dict[str, Any], dir: str, mode: str,
        id: str | None, resume: str | None, reinit: str, settings: Any,
    ) -> Run:  # fmt: skip
        assert (id is None) == (resume is None) and reinit == "create_new"
        store.places.append(f"{mode} {dir}")
        if id is None:
            store.names.append((name, group))
        store.parameters |= {key: str(value) for key, value in config.items()}
        return Run(id or "run0")

    install(monkeypatch, "wandb", init=init, Settings=SimpleNamespace)
