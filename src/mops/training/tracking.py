"""The curve of a run: a JSON line for each logged step and evaluation, sent to trackers too.

Trackers are programs that show curves. Nothing leaves the machine unless the tracker's own variable
says so (MLFLOW_TRACKING_URI, WANDB_MODE, TRACKIO_SPACE_ID).
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from filelock import FileLock

from mops.config.recipe import Recipe
from mops.config.training import Training
from mops.errors import RecipeError, RunError
from mops.files import write_text
from mops.record import RunScores

if TYPE_CHECKING:
    from mops.data.schedule import TaskBudget
    from mops.training.step import StepFacts

PROJECT = "mops"  # where the tracker's own variable names none
PARAMETERS = 100  # that mlflow takes at once
KEYS = "trackers.json"  # in the state of a run: tracker -> the key of its run there
EVALUATED = ("selection", "held_out")  # keys of a line that is an evaluation
SHORT: Mapping[str, tuple[str, ...]] = {  # keys of a line -> words of a name
    "losses": ("loss",),
    "loss_weights": ("loss_weight",),
    "gradient_shares": ("gradient_share",),
    "selection": (),
}
Line = Mapping[str, Any]
Scalars = Mapping[str, float]


class TrackerWarning(UserWarning):
    """A tracker failed; the run continues without it."""


class Watcher:
    """Learns how a run is going; this one does nothing. `scores` is the line of the curve."""

    def planned(self, tasks: Mapping[str, TaskBudget], warnings: Sequence[str]) -> None: ...
    def begin(self, total: int, done: int) -> None: ...
    def step(self, step: int, facts: StepFacts) -> None: ...
    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None: ...
    def phase(self, name: str) -> None: ...


@dataclass(frozen=True)
class Label:
    """The name of a run among others."""

    name: str
    folder: Path  # where trackers keep their files: the run's folder, or the survey's
    group: str = ""  # the survey it belongs to


def label_of(folder: Path) -> Label:
    """The label of a run that is not part of a survey."""
    return Label(folder.resolve().name, folder)


@dataclass
class Curve:
    """A file of JSON lines and the trackers that get them too.

    A tracker that fails is dropped with a warning.
    """

    path: Path
    trackers: dict[str, Tracker] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)  # next lines that a tracker already has

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("ab") as file:
                yield file
        except OSError as cause:
            raise RunError(
                f"cannot write {self.path}: {cause.strerror}; free some space"
            ) from cause

    def write(self, line: Line) -> int:
        """Append a line; returns the size of the file."""
        with self.opened() as file:
            file.write(f"{json.dumps(line)}\n".encode())
            size = file.tell()
        self.each_tracker(lambda name: self.send(name, line))
        return size

    def cut(self, size: int) -> None:
        """Drop lines that were written after the checkpoint that a run resumes from."""
        with self.opened() as file:
            file.truncate(size)

    @contextmanager
    def tracked(self, recipe: Recipe, label: Label, state: Path, size: int) -> Iterator[None]:
        """Send lines to the recipe's trackers; a run that breaks off ends without scores.

        `size` is that of the curve up to the checkpoint that the run resumes from. A tracker that
        knows the run has its later lines too; a new one gets the earlier ones first. `state` keeps
        the trackers' keys.
        """
        path, names = state / KEYS, recipe.training.trackers
        keys: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        parameters = dict(flat(recipe.to_data(), "."))
        text = self.path.read_bytes() if self.path.is_file() else b""
        for name in names:
            start = Start(label, parameters, keys.get(name, ""))
            self.guard(name, partial(self.open, name, start, text[:size], text[size:]))
        if names:
            keys |= {name: tracker.key for name, tracker in self.trackers.items()}
            write_text(path, json.dumps(keys, indent=2) + "\n")
        try:
            yield
        finally:
            self.end()

    def open(self, name: str, start: Start, kept: bytes, later: bytes) -> None:
        self.trackers[name] = TRACKERS[name](start)
        self.sent[name] = later.count(b"\n") if start.key else 0
        for line in () if start.key else kept.splitlines():
            self.send(name, json.loads(line))

    def send(self, name: str, line: Line) -> None:
        if self.sent[name]:
            self.sent[name] -= 1
        else:
            self.trackers[name].scalars(line["step"], dict(named_scalars(line)))

    def end(self, scores: Scalars | None = None) -> None:
        """Give trackers the final scores, or none when the run was broken off, and close them."""
        self.each_tracker(lambda name: self.trackers[name].end(scores or {}))
        self.trackers.clear()

    def each_tracker(self, action: Callable[[str], None]) -> None:
        for name in list(self.trackers):
            self.guard(name, partial(action, name))

    def guard(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.trackers.pop(name, None)
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            warnings.warn(
                f"report_to: {name} failed and gets no more of this run ({reason}); "
                "the run goes on",
                TrackerWarning,
                stacklevel=2,
            )


def named_scalars(line: Line) -> Iterator[tuple[str, float]]:
    """`train/loss`, `train/loss/sentiment`, `eval/overall`, `eval/sentiment/accuracy`, ..."""
    kind = "eval" if any(key in line for key in EVALUATED) else "train"
    phase = [line["phase"]] if "phase" in line else []
    for name, value in flat({key: value for key, value in line.items() if key != "step"}, "/"):
        first, *rest = name.split("/")
        words = (*phase, kind, *SHORT.get(first, (first,)), *rest)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield "/".join(words), float(value)


def final_scores(scores: RunScores) -> dict[str, float]:
    """The scores of a record, as `final/overall`, `final/sentiment/accuracy`, ..."""
    tasks = {name: splits.get("report", {}) for name, splits in scores.tasks.items()}
    values = {**scores.overall.get("report", {}), **tasks}
    return {f"final/{name}": float(value) for name, value in flat(values, "/")}


def flat(data: Mapping[str, Any], separator: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by a separator; a list is one value, as JSON."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, separator, f"{prefix}{key}{separator}")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list) else value


# ------------------------------------------------------------------ trackers


@dataclass(frozen=True)
class Start:
    """A run that starts or resumes."""

    label: Label
    parameters: Mapping[str, Any]  # its recipe, flat
    key: str = ""  # of the run to resume; empty: a new one


class Tracker(Protocol):
    """One run in one tracker; made from a `Start`."""

    key: str  # by which a later process finds the run

    def scalars(self, step: int, values: Scalars) -> None: ...
    def end(self, scores: Scalars) -> None:
        """End the run with its final scores; without any it was interrupted and may resume."""


class TensorBoard:
    """Event files in a folder `tensorboard`; those of a survey side by side."""

    def __init__(self, start: Start) -> None:
        label, self.parameters = start.label, dict(start.parameters)
        place = label.folder / "tensorboard"
        folder = place / re.sub(r"[^\w.+=-]+", "-", label.name) if label.group else place
        self.key = folder.name
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        # A new run hides events of an older run of the same name.
        purge = None if start.key else 0
        self.writer: Any = writer(str(folder), purge_step=purge)

    def scalars(self, step: int, values: Scalars) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()  # a killed process could not

    def end(self, scores: Scalars) -> None:
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
        known = self.client.get_experiment_by_name(name)
        number = known.experiment_id if known else self.client.create_experiment(name)
        key: str = self.client.create_run(number, run_name=label.name).info.run_id
        param = import_module("mlflow.entities").Param
        rows = [param(name, str(value)) for name, value in parameters.items()]
        for first in range(0, len(rows), PARAMETERS):
            self.client.log_batch(key, params=rows[first : first + PARAMETERS])
        return key

    def scalars(self, step: int, values: Scalars) -> None:
        metric, now = import_module("mlflow.entities").Metric, int(1000 * time.time())
        rows = [metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self.key, metrics=rows)

    def end(self, scores: Scalars) -> None:
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

    def scalars(self, step: int, values: Scalars) -> None:
        self.run.log({"step": step, **values})

    def end(self, scores: Scalars) -> None:
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

    def scalars(self, step: int, values: Scalars) -> None:
        self.run.log(dict(values), step=step)

    def end(self, scores: Scalars) -> None:
        if scores:
            self.run.log(dict(scores))
        with redirect_stdout(sys.stderr):
            self.run.finish()


# package -> how it opens a run
TRACKERS: dict[str, Callable[[Start], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
    "trackio": Trackio,
}


def refuse_missing_trackers(training: Training) -> None:
    """Refuse a tracker that is not installed, before a run starts."""
    for name in training.trackers:
        package = find_spec(name)
        if package is None or package.origin is None:  # a folder of that name is not a package
            install = "'mops-nlp[tensorboard]'" if name == "tensorboard" else name
            raise RecipeError(
                f"training.report_to: {name} is not installed here; pip install {install}, "
                "or leave it out"
            )
