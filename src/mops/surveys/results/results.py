"""The trials of a survey as they lie in its folder: finished, failed, doubtful or waiting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mops.config.recipe import Recipe
from mops.errors import MopsError, RunError
from mops.record import Record, read_record
from mops.surveys.ledger import Candidate, Trial
from mops.surveys.results.rescoring import SPLIT_OF, Values, mismatches, read_predictions
from mops.tasks import Task

DIGEST_LENGTH = 16


class Design(Protocol):
    """What a summary asks of a survey."""

    @property
    def name(self) -> str: ...
    @property
    def seeds(self) -> Sequence[int]: ...
    @property
    def baseline(self) -> str: ...
    @property
    def single(self) -> str | None: ...
    @property
    def on(self) -> str: ...
    def candidates(self) -> Sequence[Candidate]: ...


@dataclass(frozen=True)
class Answers:
    """What a trial answered to the rows of a task that judge."""

    rows: str  # equal where the rows and their targets are
    predictions: Values
    targets: Values


@dataclass(frozen=True)
class Result:
    """A finished trial whose predictions give the scores that it recorded."""

    id: str  # the name of its folder
    trial: Trial
    record: Record
    on: str  # the rows that judge: report or test
    tasks: Mapping[str, Task]  # that it has learnt, their labels known
    judged: Mapping[str, Answers]
    chosen_on: Mapping[str, int]  # rows of each task that chose the best evaluation
    digest: str  # of all predictions: equal digests, equal answers

    @property
    def candidate(self) -> str:
        return self.trial.candidate.name


@dataclass(frozen=True)
class Outside:
    """A trial that takes no part in the comparison."""

    id: str
    name: str
    candidate: str
    seed: int
    reason: str


@dataclass(frozen=True)
class Results:
    """Every trial of a survey, in one of four states."""

    finished: tuple[Result, ...]
    failed: tuple[Outside, ...]
    doubtful: tuple[Outside, ...]  # finished, but their files do not belong together
    waiting: tuple[Outside, ...]


def read_results(survey: Design, folder: Path) -> Results:
    """Every trial that the survey asks for, as far as it is there."""
    finished: list[Result] = []
    others: dict[str, list[Outside]] = {"failed": [], "doubtful": [], "waiting": []}
    for candidate in survey.candidates():
        for trial in (candidate.trial(seed) for seed in survey.seeds):
            state, found = read_trial(trial, folder, survey.on)
            if isinstance(found, Result):
                finished.append(found)
            else:
                others[state].append(outside(trial, found))
    return Results(tuple(finished), *(tuple(of) for of in others.values()))


def outside(trial: Trial, reason: str) -> Outside:
    return Outside(trial.id, trial.name, trial.candidate.name, trial.seed, reason)


def read_trial(trial: Trial, folder: Path, on: str) -> tuple[str, Result | str]:
    """A trial's state, and its result or why there is none."""
    run, failed = folder / "trials" / trial.id, folder / "failed" / f"{trial.id}.json"
    if (run / "record.json").is_file():
        try:
            return "finished", read_result(trial, run, on)
        except MopsError as error:
            return "doubtful", str(error)
    return ("failed", reason_in(failed)) if failed.is_file() else ("waiting", "not finished yet")


def reason_in(path: Path) -> str:
    try:
        return str(json.loads(path.read_text("utf-8"))["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path} cannot be read"


def read_result(trial: Trial, run: Path, on: str) -> Result:
    """A finished trial, if its predictions still give its recorded scores."""
    record = read_record(run / "record.json")
    tasks = trained_tasks(record, run)
    digest, judged = hashlib.sha256(), {}
    for name, task in tasks.items():
        path = run / "predictions" / f"{name}-{SPLIT_OF[on]}.csv"
        rows = read_predictions(path, task)
        for problem in mismatches(task, rows, record.scores.tasks.get(name, {}), on):
            raise RunError(f"{path}: {problem}: not the predictions that were recorded")
        judging = rows.part(on)
        judged[name] = Answers(judging.key, judging.predictions, judging.targets)
        digest.update(f"{name}:".encode() + rows.predictions.tobytes())
    scores = record.scores.tasks
    chosen_on = {name: int(scores[name].get("selection", {}).get("rows", 0)) for name in tasks}
    key = digest.hexdigest()[:DIGEST_LENGTH]
    return Result(run.name, trial, record, on, tasks, judged, chosen_on, key)


def trained_tasks(record: Record, run: Path) -> dict[str, Task]:
    """The tasks that a run has learnt, with the labels it found."""
    try:
        tasks = Recipe.model_validate(record.run_info.recipe).task_values()
        scored, untrained = record.scores.tasks, record.scores.untrained
        return {name: tasks[name] for name in scored if name not in untrained}
    except (KeyError, ValueError, TypeError) as cause:
        raise RunError(f"{run}/record.json is not complete: {cause!r}") from cause
