"""Trackers: programs that show the curves of runs, behind one small interface.

Nothing leaves the machine unless the tracker's own variable says so (MLFLOW_TRACKING_URI,
WANDB_MODE, TRACKIO_SPACE_ID).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from contextvars import Context
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from mops.config.training import Training
from mops.errors import RecipeError

PROJECT = "mops"  # where the tracker's own variable names none
PARAMETERS = 100  # that mlflow takes at once


@dataclass(frozen=True)
class Label:
    """The name of a run among others."""

    name: str
    folder: Path  # where trackers keep their files: the run's folder, or the survey's
    group: str = ""  # the survey it belongs to


def label_of(folder: Path) -> Label:
    """The label of a run that is not part of a survey."""
    return Label(folder.resolve().name, folder)


@dataclass(frozen=True)
class Start:
    """A run that starts or resumes."""

    label: Label
    parameters: Mapping[str, Any]  # its recipe, flat
    key: str = ""  # of the run to resume; empty: a new one


class Tracker(Protocol):
    """One run in one tracker; made from a `Start`."""

    key: str  # by which a later process finds the run

    def scalars(self, step: int, values: Mapping[str, float]) -> None: ...
    def end(self, scores: Mapping[str, float]) -> None:
        """End the run with its final scores; without any it was interrupted and may resume."""


class TensorBoard:
    """Event files in a folder `tensorboard`; those of a survey side by side."""

    def __init__(self, start: Start) -> None:
        label = start.label
        place = label.folder / "tensorboard"
        self.folder = place / re.sub(r"[^\w.+=-]+", "-", label.name) if label.group else place
        self.key = self.folder.name
        self.parameters = dict(start.parameters)
        # A new run hides events of an older run of the same name.
        purge = None if start.key else 0
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self.writer: Any = writer(str(self.folder), purge_step=purge)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()  # a killed process could not

    def end(self, scores: Mapping[str, float]) -> None:
        if scores:
            self.writer.add_hparams(self.parameters, dict(scores), run_name=".")
        self.writer.close()


class MLflow:
    """A run of an experiment, through mlflow's client: several may be open at once."""

    def __init__(self, start: Start) -> None:
        place = start.label.folder.resolve() / "mlflow"
        place.mkdir(exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place}/mlflow.db"
        with FileLock(place / "lock"):  # trials start at the same time, tables are created once
            self.client: Any = import_module("mlflow").MlflowClient(tracking_uri=uri)
            self.key = start.key or self.begin(start.label, start.parameters)
            self.client.update_run(self.key, status="RUNNING")

    def begin(self, label: Label, parameters: Mapping[str, Any]) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or label.group or PROJECT
        found = self.client.get_experiment_by_name(name)
        number = found.experiment_id if found else self.client.create_experiment(name)
        key: str = self.client.create_run(number, run_name=label.name).info.run_id
        param = import_module("mlflow.entities").Param
        rows = [param(name, str(value)) for name, value in parameters.items()]
        for first in range(0, len(rows), PARAMETERS):
            self.client.log_batch(key, params=rows[first : first + PARAMETERS])
        return key

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        metric, now = import_module("mlflow.entities").Metric, int(1000 * time.time())
        rows = [metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self.key, metrics=rows)

    def end(self, scores: Mapping[str, float]) -> None:
        self.scalars(0, scores)
        self.client.set_terminated(self.key, "FINISHED" if scores else "KILLED")


class WandB:
    """A run of a project, offline unless WANDB_MODE says otherwise."""

    def __init__(self, start: Start) -> None:
        label, wandb = start.label, import_module("wandb")
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=label.name,
            group=label.group or None,
            config=dict(start.parameters),
            dir=str(label.folder),
            mode=os.environ.get("WANDB_MODE") or "offline",
            id=start.key or None,
            resume="allow" if start.key else None,
            reinit="create_new",  # several may be open at once
            settings=wandb.Settings(console="off", silent=True),
        )
        self.key: str = self.run.id
        # wandb's own step only rises; a later line may be of the same step.
        self.run.define_metric("*", step_metric="step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, **values})

    def end(self, scores: Mapping[str, float]) -> None:
        self.run.summary.update(dict(scores))
        self.run.finish(exit_code=0 if scores else 1)


class Trackio:
    """A run of a project in trackio's own folder, unless TRACKIO_SPACE_ID names a space."""

    def __init__(self, start: Start) -> None:
        # In a context of its own, where it finds no earlier run to finish.
        with redirect_stdout(sys.stderr):
            self.run: Any = Context().run(
                import_module("trackio").init,
                project=os.environ.get("TRACKIO_PROJECT") or start.label.group or PROJECT,
                name=start.key or start.label.name,
                config=dict(start.parameters),
                resume="must" if start.key else "never",
                embed=False,
            )
        self.key: str = self.run.name

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def end(self, scores: Mapping[str, float]) -> None:
        if scores:
            self.run.log(dict(scores))
        with redirect_stdout(sys.stderr):
            self.run.finish()


@dataclass(frozen=True)
class Kind:
    """How a tracker opens a run, and what must be installed for it."""

    begin: Callable[[Start], Tracker]
    module: str
    install: str


TRACKERS: Mapping[str, Kind] = {
    "tensorboard": Kind(TensorBoard, "tensorboard", "'mops-nlp[tensorboard]'"),
    "mlflow": Kind(MLflow, "mlflow", "mlflow"),
    "wandb": Kind(WandB, "wandb", "wandb"),
    "trackio": Kind(Trackio, "trackio", "trackio"),
}


def refuse_missing_trackers(training: Training) -> None:
    """Refuse a tracker that is not installed, before a run starts."""
    for name in training.trackers:
        kind = TRACKERS[name]
        found = find_spec(kind.module)
        if found is None or found.origin is None:  # a folder of that name is not a package
            raise RecipeError(
                f"training.report_to: {name} is not installed here; pip install {kind.install}, "
                "or leave it out"
            )
