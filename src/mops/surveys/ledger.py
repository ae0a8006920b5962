"""The ledger: candidates, their trials, and which are finished, failed or running. No torch.

A trial's folder is named by a digest of its content, so nothing is trained twice, and the folder of
a survey holds its whole state. A process that trains a trial holds a file lock of its name, which
the system releases when the process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mops import __version__
from mops.config.recipe import Recipe, to_recipe
from mops.files import file_digest, write_text
from mops.model.sources import find_encoder
from mops.record import Record, read_record
from mops.yaml_io import read_yaml

IRRELEVANT = ("threads", "save_steps", "report_to")  # settings that do not change the result
ID_LENGTH = 12
FINISHED, FAILED, STOPPED, RUNNING, STARTED, WAITING = STATES = (
    "finished", "failed", "stopped", "running", "started", "waiting",
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One setting of a survey; it is trained once for every seed."""

    name: str  # short and unique: `hybrid:3`, `late:SIS, learning_rate=0.001`
    settings: Mapping[str, Any]  # the keys that vary in the survey: dotted key -> value
    recipe: Recipe

    def trial(self, seed: int) -> Trial:
        training = self.recipe.training.model_copy(update={"seed": seed})
        return Trial(self, seed, self.recipe.model_copy(update={"training": training}))


@dataclass(frozen=True)
class Trial:
    """One training of a candidate."""

    candidate: Candidate
    seed: int
    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.candidate.name}, seed {self.seed}"

    @cached_property
    def id(self) -> str:
        return content_id(self.recipe)


@dataclass(frozen=True)
class Job:
    """One trial, or several that are trained as one batch."""

    trials: tuple[Trial, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(trial.id for trial in self.trials)

    @property
    def name(self) -> str:
        if len(self.trials) == 1:
            return self.trials[0].name
        return f"{len(self.trials)} trials on one frozen encoder"


class SurveyWatcher:
    """Receives the progress of a survey; this one shows nothing, as in a Ray worker."""

    def started(self, job: Job) -> None: ...
    def moved(self, job: Job, fraction: float, activity: str) -> None: ...
    def ended(self, job: Job) -> None: ...
    def note(self, text: str) -> None: ...
    def phase(self, name: str) -> None: ...


def content_id(recipe: Recipe) -> str:
    """A digest of the recipe, its data, its encoder and the version; file paths do not matter."""
    data = recipe.without(*IRRELEVANT).to_data()
    for name, entry in recipe.tasks.items():
        data["tasks"][name] |= {split: data_digest(file) for split, file in entry.files().items()}
    data["encoder"] = encoder_digest(recipe.encoder)
    text = json.dumps([__version__, data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


@lru_cache(maxsize=64)
def data_digest(file: str) -> str:
    return file_digest(file) or file  # a data set on a hub is its name


@lru_cache(maxsize=8)
def encoder_digest(name: str) -> str:
    return find_encoder(name).digest


@dataclass(frozen=True)
class Ledger:
    """The folder of a survey."""

    folder: Path

    def run_folder(self, trial_id: str) -> Path:
        return self.folder / "trials" / trial_id

    def recipe_file(self, trial_id: str) -> Path:
        return self.folder / "recipes" / f"{trial_id}.yaml"

    def failure_file(self, trial_id: str) -> Path:
        return self.folder / "failed" / f"{trial_id}.json"

    def stopped_file(self, trial_id: str) -> Path:
        """Step and score of a trial that a hyperparameter search has stopped early."""
        return self.folder / "stopped" / f"{trial_id}.json"

    # -------------------------------------------------------------- trials

    def register(self, trials: Iterable[Trial]) -> None:
        """Write the recipe of each trial, so that any process can train it.

        A trial that has begun keeps the threads, saves and trackers that it began with.
        """
        names = self.names()
        for trial in trials:
            names[trial.id] = trial.name
            path = self.recipe_file(trial.id)
            if not (path.is_file() and self.run_folder(trial.id).is_dir()):
                write_text(path, trial.recipe.to_yaml())
        text = json.dumps(names, indent=2, ensure_ascii=False)
        write_text(self.folder / "names.json", text + "\n")

    def names(self) -> dict[str, str]:
        """Trial id -> candidate and seed."""
        path = self.folder / "names.json"
        names: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        return names

    def recipe(self, trial_id: str) -> Recipe:
        path = self.recipe_file(trial_id)
        return to_recipe(read_yaml(path), where=str(path))

    def record(self, trial_id: str) -> Record:
        return read_record(self.run_folder(trial_id) / "record.json")

    # -------------------------------------------------------------- states

    def state(self, trial_id: str) -> str:
        if self.is_finished(trial_id):
            return FINISHED
        if self.failure_file(trial_id).is_file():
            return FAILED
        if self.stopped_file(trial_id).is_file():
            return STOPPED
        if not self.run_folder(trial_id).is_dir():
            return WAITING
        with self.claim([trial_id]) as mine:
            return STARTED if mine else RUNNING

    def is_finished(self, trial_id: str) -> bool:
        return (self.run_folder(trial_id) / "record.json").is_file()

    def is_open(self, trial_id: str) -> bool:
        """Whether it still has to be trained."""
        return not self.is_finished(trial_id) and not self.failure_file(trial_id).is_file()

    @contextmanager
    def claim(self, trial_ids: Iterable[str]) -> Iterator[list[str]]:
        """Lock these trials; yields those that no other process holds."""
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            mine = []
            for trial_id in trial_ids:
                lock = FileLock(self.folder / "locks" / trial_id, timeout=0)
                try:
                    held.enter_context(lock)
                except Timeout:
                    continue
                mine.append(trial_id)
            yield mine

    # -------------------------------------------------------------- failures

    def fail(self, trial_id: str, reason: str) -> None:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"reason": " ".join(reason.split()), "when": when}, indent=2)
        write_text(self.failure_file(trial_id), text + "\n")

    def failure(self, trial_id: str) -> Mapping[str, Any]:
        path = self.failure_file(trial_id)
        return json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def forget_failures(self) -> None:
        shutil.rmtree(self.folder / "failed", ignore_errors=True)
