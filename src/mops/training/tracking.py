"""The curve of a run: a JSON line for each logged step and evaluation, sent to trackers too.

Trackers are programs that show curves. Nothing leaves the machine unless the tracker's own variable
says so (MLFLOW_TRACKING_URI, WANDB_MODE).
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock

from mops.config.recipe import Recipe
from mops.config.training import Training
from mops.errors import RecipeError, RunError
from mops.files import write_text
from mops.record import RunScores, TaskBudget

if TYPE_CHECKING:
    from mops.training.step import StepFacts

PROJECT = "mops"  # where the tracker's own variable names none
PARAMETERS = 100  # that mlflow takes at once
KEYS = "state/trackers.json"  # in the folder of a run: tracker -> the key of its run there
EVALUATED = ("selection", "held_out")  # keys of a line that is an evaluation
SHORT: Mapping[str, tuple[str, ...]] = {  # keys of a line -> words of a name
    "losses": ("loss",),
    "loss_weights": ("loss_weight",),
    "gradient_shares": ("gradient_share",),
    "selection": (),
}
Line = Mapping[str, Any]
Scalars = Mapping[str, float]
Parameters = Mapping[str, Any]  # a recipe, flat
Tell = Callable[[str], None]  # gets what is being done now


class CurveWarning(UserWarning):
    """The curve is not complete; the result of the run does not depend on it."""


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


@dataclass
class Curve:
    """A file of JSON lines and the trackers that get them too."""

    path: Path
    trackers: dict[str, Tracker] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)  # next lines that a tracker already has

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("ab") as file:
                yield file
        except OSError as cause:
            reason = f"cannot write {self.path}: {cause.strerror}; free some space"
            raise RunError(reason) from cause

    def write(self, line: Line) -> int:
        """Append a line; returns the size of the file."""
        with self.opened() as file:
            file.write(f"{json.dumps(line)}\n".encode())
            size = file.tell()
        self.for_each(self.trackers, lambda name: self.send(name, line))
        return size

    @contextmanager
    def tracked(
        self, recipe: Recipe, folder: Path, size: int, label: Label | None = None
    ) -> Iterator[None]:
        """Send lines to the recipe's trackers; a run that breaks off ends without scores.

        `size` is that of the curve up to the checkpoint that the run resumes from; later lines are
        dropped. A tracker that knows the run has them too; a new one gets the earlier ones first.
        The state in the run's folder keeps the trackers' keys.
        """
        path, names = folder / KEYS, recipe.training.trackers
        label = label or Label(folder.resolve().name, folder)
        keys: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        parameters = dict(flat(recipe.to_data(), "."))
        text = self.path.read_bytes() if self.path.is_file() else b""
        if len(text) < size:
            size = text.rfind(b"\n") + 1
            lost = f"{self.path} was removed or cut since the last save; its lines are lost"
            warnings.warn(f"{lost}, the run goes on", CurveWarning, stacklevel=1)

        def open_tracker(name: str) -> None:
            self.trackers[name] = TRACKERS[name](label, parameters, keys.get(name, ""))
            self.sent[name] = text[size:].count(b"\n") if name in keys else 0
            for line in () if name in keys else text[:size].splitlines():
                self.send(name, json.loads(line))

        self.for_each(names, open_tracker)
        if names:
            keys |= {name: tracker.key for name, tracker in self.trackers.items()}
            write_text(path, json.dumps(keys, indent=2) + "\n")
        try:
            with self.opened() as file:
                file.truncate(size)
            yield
        finally:
            self.end()

    def send(self, name: str, line: Line) -> None:
        if self.sent[name]:
            self.sent[name] -= 1
        else:
            self.trackers[name].scalars(line["step"], dict(named_scalars(line)))

    def end(self, scores: Scalars | None = None) -> None:
        """Give trackers the final scores, or none when the run was broken off, and close them."""
        self.for_each(self.trackers, lambda name: self.trackers[name].end(scores or {}))
        self.trackers.clear()

    def for_each(self, names: Iterable[str], action: Callable[[str], None]) -> None:
        """Do something with each tracker; one that fails is dropped with a warning."""
        for name in list(names):
            try:
                action(name)
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
    for name, value in flat({key: value for key, value in line.items() if key != "step"}, "/"):
        first, *rest = name.split("/")
        words = (kind, *SHORT.get(first, (first,)), *rest)
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


@dataclass(frozen=True)
class Tracker:
    """One run in one tracker."""

    key: str  # by which a later process finds the run
    scalars: Callable[[int, Scalars], None]  # of a step
    # Gets the final scores; without any the run was interrupted and may resume.
    end: Callable[[Scalars], None]


def open_tensorboard(label: Label, parameters: Parameters, key: str) -> Tracker:
    """Event files in a folder `tensorboard`; those of a survey side by side."""
    folder = label.folder / "tensorboard"
    if label.group:
        folder /= re.sub(r"[^\w.+=-]+", "-", label.name)
    # A new run hides events of an older run of the same name.
    purge = None if key else 0
    writer = import_module("torch.utils.tensorboard").SummaryWriter(str(folder), purge_step=purge)

    def scalars(step: int, values: Scalars) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()  # a killed process could not

    def end(scores: Scalars) -> None:
        if scores:
            writer.add_hparams(dict(parameters), dict(scores), run_name=".")
        writer.close()

    return Tracker(folder.name, scalars, end)


def open_mlflow(label: Label, parameters: Parameters, key: str) -> Tracker:
    """A run of an experiment, through mlflow's client: several may be open at once."""
    mlflow, entities = import_module("mlflow"), import_module("mlflow.entities")
    place = label.folder.resolve() / "mlflow"
    place.mkdir(exist_ok=True)
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place}/mlflow.db"
    with FileLock(place / "lock"):  # trials start at the same time, tables are created once
        client = mlflow.MlflowClient(tracking_uri=uri)
        if not key:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or label.group or PROJECT
            known = client.get_experiment_by_name(name)
            number = known.experiment_id if known else client.create_experiment(name)
            key = client.create_run(number, run_name=label.name).info.run_id
            rows = [entities.Param(name, str(value)) for name, value in parameters.items()]
            for first in range(0, len(rows), PARAMETERS):
                client.log_batch(key, params=rows[first : first + PARAMETERS])
        client.update_run(key, status="RUNNING")

    def scalars(step: int, values: Scalars) -> None:
        now = int(1000 * time.time())
        metrics = [entities.Metric(name, value, now, step) for name, value in values.items()]
        client.log_batch(key, metrics=metrics)

    def end(scores: Scalars) -> None:
        scalars(0, scores)
        client.set_terminated(key, "FINISHED" if scores else "KILLED")

    return Tracker(key, scalars, end)


def open_wandb(label: Label, parameters: Parameters, key: str) -> Tracker:
    """A run of a project, offline unless WANDB_MODE says otherwise."""
    wandb = import_module("wandb")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        name=label.name,
        group=label.group or None,
        config=dict(parameters),
        dir=str(label.folder),
        mode=os.environ.get("WANDB_MODE") or "offline",
        id=key or None,
        resume="allow" if key else None,
        reinit="create_new",  # several may be open at once
        settings=wandb.Settings(console="off", silent=True),
    )
    # wandb's own step only rises; a later line may be of the same step.
    run.define_metric("*", step_metric="step")

    def end(scores: Scalars) -> None:
        run.summary.update(dict(scores))
        run.finish(exit_code=0 if scores else 1)

    return Tracker(run.id, lambda step, values: run.log({"step": step, **values}), end)


# package -> how it starts a run, or resumes that of a key
TRACKERS: dict[str, Callable[[Label, Parameters, str], Tracker]] = {
    "tensorboard": open_tensorboard,
    "mlflow": open_mlflow,
    "wandb": open_wandb,
}


def refuse_missing_trackers(training: Training) -> None:
    for name in training.trackers:
        package = find_spec(name)
        if package is None or package.origin is None:  # a folder of that name is not a package
            install = "'mops-nlp[tensorboard]'" if name == "tensorboard" else name
            raise RecipeError(
                f"training.report_to: {name} is not installed here; pip install {install}, "
                "or leave it out"
            )
