"""Finished trials, read from their folders and checked: recorded scores must come out again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mops.config.recipe import to_recipe
from mops.errors import MopsError, RunError
from mops.evaluate.metrics import score
from mops.evaluate.predictions import SPLIT_FILE, PredictionRows, read_predictions
from mops.record import Record, RunScores, read_record
from mops.surveys.ledger import Candidate, Trial
from mops.surveys.results.results import FAILED, LEFT_OUT, WAITING, MissingTrial, TrialResult
from mops.tasks import Task

TOLERANCE = 1e-6  # between recorded and recomputed scores: summation order
PARTS_IN = {"report": ("validation", "selection", "report"), "test": ("test",)}  # of a file
DIGEST_LENGTH = 16


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial whose predictions give the scores that it recorded."""

    trial: Trial
    id: str  # the name of its folder
    record: Record
    on: str  # the rows that judge: report or test
    tasks: Mapping[str, Task]  # that it has learnt
    judged: Mapping[str, PredictionRows]
    digest: str  # of all predictions

    @property
    def candidate(self) -> str:
        return self.trial.candidate.name

    def to_result(self) -> TrialResult:
        scores = self.record.scores
        main = {name: scores.tasks[name][self.on][scores.main[name]] for name in self.tasks}
        return TrialResult(
            id=self.id,
            seed=self.trial.seed,
            digest=self.digest,
            scores=main | dict(scores.overall.get(self.on, {})),
            metrics={**scores.tasks, "overall": scores.overall},
            train_info=self.record.train_info,
            warnings=self.record.warnings,
        )


def read_trial(trial: Trial, folder: Path, on: str) -> FinishedTrial | MissingTrial:
    """A trial of the survey in this folder, or why it has no result."""
    run, failure = folder / "trials" / trial.id, folder / "failed" / f"{trial.id}.json"
    if (run / "record.json").is_file():
        try:
            return check_trial(trial, run, on)
        except MopsError as error:
            return missing_trial(trial, LEFT_OUT, str(error))
    if failure.is_file():
        return missing_trial(trial, FAILED, read_reason(failure))
    return missing_trial(trial, WAITING, "not finished yet")


def missing_trial(trial: Trial, state: str, reason: str) -> MissingTrial:
    return MissingTrial(trial.id, trial.name, trial.candidate.name, trial.seed, state, reason)


def read_reason(path: Path) -> str:
    try:
        return str(json.loads(path.read_text("utf-8"))["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path} cannot be read"


def read_run(
    run: Path, on: str, *, name: str | None = None, seed: int | None = None
) -> FinishedTrial:
    """A run as the trial of a candidate, which is named by its plan unless a name is given."""
    record = read_record(run / "record.json")
    recipe = to_recipe(dict(record.run_info.recipe), where=str(run))
    candidate = Candidate(name or record.run_info.plan, {}, recipe)
    return check_trial(candidate.trial(recipe.training.seed if seed is None else seed), run, on)


def check_trial(trial: Trial, run: Path, on: str) -> FinishedTrial:
    """The trial, or an error if its predictions do not give its recorded scores."""
    record = read_record(run / "record.json")
    known = to_recipe(dict(record.run_info.recipe), where=str(run)).task_values()
    learnt = [name for name in record.scores.tasks if name not in record.scores.untrained]
    tasks = {name: known[name] for name in learnt}
    digest, judged = hashlib.sha256(), {}
    for name, task in tasks.items():
        path = run / "predictions" / f"{name}-{SPLIT_FILE[on]}.csv"
        rows = read_predictions(path, task)
        for problem in find_mismatches(rows, record.scores, on):
            raise RunError(f"{path}: {problem}: not the predictions that were recorded")
        judged[name] = rows.part(on)
        digest.update(f"{name}:".encode() + rows.values.tobytes())
    key = digest.hexdigest()[:DIGEST_LENGTH]
    return FinishedTrial(trial, run.name, record, on, tasks, judged, key)


def find_mismatches(rows: PredictionRows, scores: RunScores, on: str) -> Iterator[str]:
    """Where the scores of stored predictions differ from the record."""
    stored = scores.tasks.get(rows.task.name, {})
    if on not in stored or on not in rows.columns["half"]:
        yield f"there are no labelled rows of {on!r} to judge on"
    for part in (part for part in PARTS_IN[on] if part in stored):
        here = rows.part(part)
        found = score(rows.task, here.targets, here.values) if len(here.targets) else {"rows": 0}
        for key in (key for key in stored[part] if key != "stderr"):
            recorded, now = stored[part][key], found.get(key, np.nan)
            if not abs(now - recorded) <= TOLERANCE:
                yield f"{key} on {part} is {now:.6g}, recorded is {recorded:.6g}"
