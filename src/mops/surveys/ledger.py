"""The ledger: candidates, their trials, and which are finished, failed or running. No torch.

A trial's folder is named by a digest of its content, so nothing is trained twice, and the folder of
a survey holds its whole state. A process that trains a trial holds a file lock of its name, which
the system releases when the process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mops import __version__
from mops.config.recipe import Recipe, to_recipe
from mops.data.dataset import SPLITS
from mops.errors import DataError, RecipeError, RunError, UsageError
from mops.files import file_digest, write_text
from mops.model.sources import find_encoder
from mops.record import Record, code_digest, read_record
from mops.yaml_io import read_json as read_object
from mops.yaml_io import read_yaml, to_value

IRRELEVANT = ("threads", "save_steps", "report_to")  # settings that do not change the result
ID_LENGTH = 12
NAMES = "names.json"  # trial id -> candidate and seed
FINISHED, FAILED, PAUSED, RUNNING, STARTED, WAITING = STATES = (
    "finished", "failed", "paused", "running", "started", "waiting",
)  # fmt: skip
cached_encoder = lru_cache(maxsize=8)(find_encoder)


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
    known_id: str = ""  # of a survey whose data may be elsewhere

    @property
    def name(self) -> str:
        return f"{self.candidate.name}, seed {self.seed}"

    @cached_property
    def id(self) -> str:
        return self.known_id or content_id(self.recipe)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Candidates that are trained with some seeds: a part of a race, or seeds added later."""

    candidates: tuple[str, ...]
    seeds: tuple[int, ...]
    until: float = 1.0  # fraction of the steps
    why: str = ""


@dataclass(frozen=True)
class Progress:
    """How far a trial has come, and how far it may go in this round of a race."""

    until: float = 1.0  # fraction of its steps
    reached: float = 0.0
    score: float | None = None  # the best on the validation rows
    seconds: float = 0.0  # wall time

    @property
    def rank(self) -> float:
        """The score; a trial without one, as a failed one, is the last."""
        return -math.inf if self.score is None else self.score

    @property
    def is_paused(self) -> bool:
        return self.reached >= self.until < 1


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

    def planned(self, trials: Sequence[Trial]) -> None: ...
    def started(self, job: Job) -> None: ...
    def moved(self, job: Job, fraction: float, activity: str) -> None: ...
    def ended(self, job: Job) -> None: ...
    def note(self, text: str) -> None: ...
    def phase(self, name: str) -> None: ...


def content_id(recipe: Recipe) -> str:
    """A digest of the recipe, its data, its encoder and the code; file paths do not matter."""
    data = recipe.identity(*IRRELEVANT)
    for name, entry in recipe.tasks.items():
        data["tasks"][name] |= {split: data_digest(file) for split, file in entry.files().items()}
        if isinstance(entry.train, dict):
            weights = entry.train.items()
            data["tasks"][name]["train"] = [[data_digest(file), w] for file, w in weights]
    data["encoder"] = cached_encoder(recipe.encoder).files_digest
    text = json.dumps([__version__, code_digest(), data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """What a recipe says beside where its files are, and what it learnt from them."""
    data = recipe.identity(*IRRELEVANT) | {"encoder": Path(recipe.encoder).name}
    learnt = {*SPLITS, "labels", "scale"}
    tasks = {
        name: {key: value for key, value in entry.items() if key not in learnt}
        for name, entry in data["tasks"].items()
    }
    return data | {"tasks": tasks}


@lru_cache(maxsize=64)
def data_digest(file: str) -> str:
    try:
        return file_digest(file) or file  # a data set on a hub is its name
    except OSError as cause:
        raise DataError(
            f"{file} cannot be read: {cause.strerror}; name the folder of the data as `data`"
        ) from cause


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

    def pause_file(self, trial_id: str) -> Path:
        return self.folder / "paused" / f"{trial_id}.json"

    def lock_file(self, trial_id: str) -> Path:
        return self.folder / "locks" / trial_id

    def register(self, trials: Iterable[Trial]) -> None:
        """Write the recipe of each trial, so that any process can train it.

        A trial that has begun keeps the threads, saves and trackers that it began with.
        """
        names = self.names()
        for trial in trials:
            names.pop(trial.id, None)
            names[trial.id] = trial.name  # at the end: the latest of this name
            path = self.recipe_file(trial.id)
            if not (path.is_file() and self.run_folder(trial.id).is_dir()):
                write_text(path, trial.recipe.to_yaml())
        write_json(self.folder / NAMES, names)

    def names(self) -> dict[str, str]:
        """Trial id -> candidate and seed."""
        names: dict[str, str] = read_json(self.folder / NAMES, dict[str, str])
        return names

    def refuse_others(self, trials: Sequence[Trial]) -> None:
        """Refuse to go on with a survey of other data, another encoder or other code: it would mix
        trainings that do not compare.
        """
        ids = {name: trial_id for trial_id, name in self.names().items()}
        others = [
            known
            for trial in trials
            if (known := ids.get(trial.name, trial.id)) != trial.id
            and self.run_folder(known).is_dir()
            and settings_of(self.recipe(known)) == settings_of(trial.recipe)
        ]
        if others:
            raise RecipeError(
                f"{self.folder} has {len(others)} trainings of this survey with other data, "
                f"another encoder or other code of mops ({describe_code(self, others)}); they do "
                "not compare with new ones: put back what has changed, train all of them anew with "
                "`retrain`, or name another folder as `out`"
            )

    def with_ids(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials with the ids under which they were last registered; needs none of the data."""
        ids = {name: trial_id for trial_id, name in self.names().items()}
        return [replace(trial, known_id=ids.get(trial.name, trial.known_id)) for trial in trials]

    def recipe(self, trial_id: str) -> Recipe:
        path = self.recipe_file(trial_id)
        return to_recipe(read_yaml(path), where=str(path))

    def record(self, trial_id: str) -> Record:
        return read_record(self.run_folder(trial_id) / "record.json")

    def state(self, trial_id: str) -> str:
        if self.is_finished(trial_id):
            return FINISHED
        if self.failure_file(trial_id).is_file():
            return FAILED
        if self.pause(trial_id).is_paused:
            return PAUSED
        if not self.run_folder(trial_id).is_dir():
            return WAITING
        if not self.lock_file(trial_id).is_file():  # it came from elsewhere, in a pack
            return STARTED
        with self.claim([trial_id]) as mine:
            return STARTED if mine else RUNNING

    def is_finished(self, trial_id: str) -> bool:
        return (self.run_folder(trial_id) / "record.json").is_file()

    def is_open(self, trial_id: str) -> bool:
        """Whether it still has to be trained."""
        is_over = self.is_finished(trial_id) or self.failure_file(trial_id).is_file()
        return not is_over and not self.pause(trial_id).is_paused

    def open_ids(self, trial_ids: Iterable[str]) -> list[str]:
        return list(filter(self.is_open, trial_ids))

    def progress(self, trial_id: str) -> Progress:
        if not self.is_finished(trial_id):
            return self.pause(trial_id)
        info = self.record(trial_id).train_info
        return Progress(1.0, 1.0, info.best_score, info.run_seconds)

    def pause(self, trial_id: str) -> Progress:
        """Of a trial that is not finished: one that is paused waits for the next round."""
        progress: Progress = read_json(self.pause_file(trial_id), Progress)
        return progress

    def note_pause(self, trial_id: str, **facts: Any) -> None:
        """`until` when a round begins; `reached`, `score` and `seconds` when the trial stops."""
        write_json(self.pause_file(trial_id), vars(replace(self.pause(trial_id), **facts)))

    @contextmanager
    def claim(self, trial_ids: Iterable[str]) -> Iterator[list[str]]:
        """Lock these trials; yields those that no other process holds."""
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        mine: list[str] = []
        with ExitStack() as held:
            for trial_id in trial_ids:
                with suppress(Timeout):
                    held.enter_context(FileLock(self.lock_file(trial_id), timeout=0))
                    mine.append(trial_id)
            yield mine

    def fail(self, trial_id: str, reason: str) -> None:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(self.failure_file(trial_id), {"reason": " ".join(reason.split()), "when": when})

    def failure(self, trial_id: str) -> Mapping[str, str]:
        reason: dict[str, str] = read_json(self.failure_file(trial_id), dict[str, str])
        return reason

    def forget_failures(self) -> None:
        shutil.rmtree(self.folder / "failed", ignore_errors=True)


def describe_code(ledger: Ledger, trial_ids: Iterable[str]) -> str:
    """Whether the code differs, as far as records say."""
    finished = (ledger.record(one).meta_info for one in trial_ids if ledger.is_finished(one))
    theirs = {
        f"{m.packages.get('mops')} {m.code_sha256[:8] or 'of unknown code'}" for m in finished
    }
    here = f"{__version__} {code_digest()[:8]}"
    if not theirs or theirs == {here}:
        return f"the code, {here}, is the same"
    return f"code: {', '.join(sorted(theirs))} there, {here} here"


def read_json(path: Path, kind: Any = dict[str, Any]) -> Any:
    """The object in a file as a value of this kind; that of no keys if there is no file."""
    try:
        data = read_object(path) if path.is_file() else {}
        return to_value(kind, data, where=str(path), error=UsageError)
    except UsageError as cause:
        raise RunError(f"{cause}; delete it and run the survey again") from cause


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
