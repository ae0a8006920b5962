"""Trackers: programs that show how runs go, each behind the same few lines.

Nothing leaves the machine unless the tracker's own variable says so (MLFLOW_TRACKING_URI,
WANDB_MODE, TRACKIO_SPACE_ID).

Who hears a run: each line of its curve becomes named numbers for its trackers.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from contextvars import Context
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from mops.config.recipe import Recipe
from mops.config.training import Training
from mops.errors import RecipeError
from mops.files import write_text
from mops.record import RunScores

PROJECT = "mops"  # where the tracker's own variable names none
PARAMETERS = 100  # that mlflow takes at once


@dataclass(frozen=True)
class Label:
    """What a run is called where many are looked at together."""

    name: str
    folder: Path  # where trackers keep their files: the run's folder, or the survey's
    group: str = ""  # the survey it belongs to


def label_of(folder: Path) -> Label:
    """Of a run by itself."""
    return Label(folder.resolve().name, folder)


@dataclass(frozen=True)
class Start:
    """A run that begins, or goes on."""

    label: Label
    parameters: Mapping[str, Any]  # its recipe, flat
    key: str = ""  # finds the run that goes on; empty: a new one


class Tracker(Protocol):
    """One run in one tracker; made from a `Start`."""

    key: str  # by which a later process finds it again

    def scalars(self, step: int, values: Mapping[str, float]) -> None: ...
    def end(self, scores: Mapping[str, float]) -> None:
        """The final scores; none when the run was broken off and may go on."""


class TensorBoard:
    """Event files in a folder `tensorboard`; those of a survey side by side."""

    def __init__(self, start: Start) -> None:
        label = start.label
        place = label.folder / "tensorboard"
        self.folder = place / re.sub(r"[^\w.+=-]+", "-", label.name) if label.group else place
        self.key = self.folder.name
        self.parameters = dict(start.parameters)
        # A new run hides what an older one of that name has left there.
        purge = None if start.key else 0
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self.writer: Any = writer(str(self.folder), purge_step=purge)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()  # a process that is killed has no time for it

    def end(self, scores: Mapping[str, float]) -> None:
        if scores:
            self.writer.add_hparams(self.parameters, dict(scores), run_name=".")
        self.writer.close()


class MLflow:
    """A run of an experiment, by mlflow's client: several may be open at once."""

    def __init__(self, start: Start) -> None:
        place = start.label.folder.resolve() / "mlflow"
        place.mkdir(exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place}/mlflow.db"
        with FileLock(place / "lock"):  # trials begin side by side, tables are made once
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
        # Its own count of steps only rises; a line that comes later may be of the same step.
        self.run.define_metric("*", step_metric="step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, **values})

    def end(self, scores: Mapping[str, float]) -> None:
        self.run.summary.update(dict(scores))
        self.run.finish(exit_code=0 if scores else 1)


class Trackio:
    """A run of a project in trackio's own folder, unless TRACKIO_SPACE_ID names a space."""

    def __init__(self, start: Start) -> None:
        # In a context of its own: there it finds no run before this one that it would finish.
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
    """A row of the table: what opens a run, and what must be installed for it."""

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
    """Say before a run which tracker is not installed."""
    for name in training.trackers:
        kind = TRACKERS[name]
        found = find_spec(kind.module)
        if found is None or found.origin is None:  # a folder of that name is no package
            raise RecipeError(
                f"training.report_to: {name} is not installed here; pip install {kind.install}, "
                "or leave it out"
            )


KEYS = "trackers.json"  # in the state of a run: tracker -> the key of its run there
EVALUATED = ("selection", "held_out")  # keys of a line that is an evaluation
SHORT: Mapping[str, tuple[str, ...]] = {  # keys of a line -> words of a name
    "losses": ("loss",),
    "loss_weights": ("loss_weight",),
    "gradient_shares": ("gradient_share",),
    "selection": (),
}
Line = Mapping[str, Any]


class TrackerWarning(UserWarning):
    """A tracker cannot be told; the run goes on without it."""


@dataclass
class Listener:
    """A tracker, and how many of the next lines it has heard before the run was interrupted."""

    tracker: Tracker
    heard: int = 0

    def hear(self, line: Line) -> None:
        if self.heard:
            self.heard -= 1
        else:
            self.tracker.scalars(line["step"], dict(scalars_of(line)))


@dataclass
class Audience:
    """The trackers of a run. One that fails is left out with a warning."""

    listeners: dict[str, Listener] = field(default_factory=dict)

    def hear(self, line: Line) -> None:
        self.tell(lambda listener: listener.hear(line))

    def end(self, scores: Mapping[str, float] | None = None) -> None:
        """The final scores, or none when the run was broken off; then nobody listens any more."""
        self.tell(lambda listener: listener.tracker.end(scores or {}))
        self.listeners.clear()

    def tell(self, act: Callable[[Listener], None]) -> None:
        for name, listener in list(self.listeners.items()):
            try:
                act(listener)
            except Exception as error:
                del self.listeners[name]
                warn(name, error)


def warn(name: str, error: Exception) -> None:
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    message = f"report_to: {name} failed and hears no more of this run ({said}); the run goes on"
    warnings.warn(message, TrackerWarning, stacklevel=2)


def gather(recipe: Recipe, label: Label, *, curve: Path, kept_bytes: int, state: Path) -> Audience:
    """Open the trackers of a run, before its curve is cut to what its state knows.

    One that was there before the interruption has heard all lines of the curve, also those that
    will be written once more; a new one is told those that are kept.
    """
    audience, names = Audience(), recipe.training.trackers
    path = state / KEYS
    known: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    kept, lost = read_lines(curve, kept_bytes)
    parameters = dict(flat(recipe.to_data(), "."))
    for name in names:
        start = Start(label, parameters, known.get(name, ""))
        try:
            listener = Listener(TRACKERS[name].begin(start), lost if start.key else 0)
            for line in () if start.key else kept:
                listener.hear(line)
        except Exception as error:
            warn(name, error)
        else:
            known[name], audience.listeners[name] = listener.tracker.key, listener
    if names:
        write_text(path, json.dumps(known, indent=2) + "\n")
    return audience


def read_lines(curve: Path, kept_bytes: int) -> tuple[list[Line], int]:
    """The lines that are kept, and the number of whole ones after them."""
    text = curve.read_bytes() if curve.is_file() else b""
    kept = [json.loads(line) for line in text[:kept_bytes].splitlines()]
    return kept, text[kept_bytes:].count(b"\n")


# ------------------------------------------------------------------ names


def scalars_of(line: Line) -> Iterator[tuple[str, float]]:
    """`train/loss`, `train/loss/sentiment`, `eval/overall`, `eval/sentiment/accuracy`, ..."""
    kind = "eval" if any(key in line for key in EVALUATED) else "train"
    phase = [line["phase"]] if "phase" in line else []
    for name, value in flat({key: of for key, of in line.items() if key != "step"}, "/"):
        first, *rest = name.split("/")
        words = (*phase, kind, *SHORT.get(first, (first,)), *rest)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield "/".join(words), float(value)


def final_scores(scores: RunScores, on: str = "report") -> dict[str, float]:
    """The scores of a record, as `final/overall`, `final/sentiment/accuracy`, ..."""
    tasks = {name: of.get(on, {}) for name, of in scores.tasks.items()}
    found = {**scores.overall.get(on, {}), **tasks}
    return {f"final/{name}": float(value) for name, value in flat(found, "/")}


def flat(data: Mapping[str, Any], sign: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by a sign; a list is one value, as JSON."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, sign, f"{prefix}{key}{sign}")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list) else value
