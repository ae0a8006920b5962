"""Answers of the trials to the rows that judge a task, read from their prediction files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mops.data.dataset import read_split, read_task
from mops.data.tables import HUB
from mops.errors import MopsError, RunError
from mops.evaluate.predictions import SPLIT_FILE, PredictionRows, read_predictions
from mops.files import file_digest
from mops.reports.source import Source, TrialFiles
from mops.surveys.results.results import CandidateResult
from mops.tasks import Task

Values = NDArray[np.float64]
Texts = tuple[str, ...]
FEW, MOST = 4, 8  # candidates that are compared
FAR = 0.2  # of a similarity's range: a prediction farther from its label is called wrong


@dataclass(frozen=True)
class Answers:
    """One trial's predictions for the labelled rows that judge a task."""

    trial: TrialFiles
    rows: PredictionRows


def read_answers(trial: TrialFiles, name: str, on: str) -> Answers:
    path = trial.predictions(name, on)
    rows = read_predictions(path, trial.recipe.task_values()[name]).part(on)
    if not len(rows.targets):
        raise RunError(f"{path} has no labelled row that judges")
    return Answers(trial, rows)


# ------------------------------------------------------------------ several candidates


@dataclass(frozen=True)
class Comparison:
    """The answers of several candidates to the same rows."""

    task: Task
    seed: int | None  # None where they have no seed in common
    answers: tuple[Answers, ...]
    left_out: tuple[str, ...]  # candidates without usable predictions, and why

    @property
    def rows(self) -> PredictionRows:
        """Ids, labels and targets are the same for all; predictions are the first candidate's."""
        return self.answers[0].rows

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.trial.candidate for one in self.answers)

    @cached_property
    def losses(self) -> list[Values | None]:
        """By candidate; None where its file has none."""
        return [one.rows.numbers("loss") for one in self.answers]

    @cached_property
    def errors(self) -> Values:
        """Candidates x rows: 0 or 1 for classes, the distance to the label for values."""
        predictions = np.array([one.rows.values for one in self.answers])
        distance: Values = np.abs(predictions - self.rows.targets)
        return distance if self.task.is_similarity else (distance > 0).astype(np.float64)

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Candidates x rows."""
        low, high = self.task.range or (0.0, 1.0)
        return self.errors > FAR * (high - low)


def compare_answers(source: Source, task: str) -> Comparison | None:
    """None where no prediction file of the task can be read."""
    trials = list(source.same_seed_trials(compared_candidates(source, task)).values())
    seeds = {trial.result.seed for trial in trials}
    answers: list[Answers] = []
    left_out = []
    for trial in trials:
        try:
            own = read_answers(trial, task, source.results.on)
        except RunError as error:
            left_out.append(f"{trial.candidate}: {error}")
            continue
        if answers and own.rows.digest != answers[0].rows.digest:
            first = answers[0].trial.candidate
            left_out.append(f"{trial.candidate}: its rows differ from those of {first}")
        else:
            answers.append(own)
    if not answers:
        return None
    seed = seeds.pop() if len(seeds) == 1 else None
    return Comparison(answers[0].rows.task, seed, tuple(answers), tuple(left_out))


def compared_candidates(source: Source, task: str) -> list[str]:
    """The recommended one, the baseline, the model per task, then the best of each block.

    Where these are few, the best of the others follow.
    """
    results, decision = source.results, source.decision
    able = {o.name: o for o in results.candidates if task in o.tasks and source.trials_of(o.name)}
    by_score = sorted(able.values(), key=lambda one: -one.overall.mean)
    blocks: dict[tuple[str, int], CandidateResult] = {}
    for one in by_score:
        blocks.setdefault((one.reference, one.tie), one)
    best = [one.name for one in able.values() if one in blocks.values()]
    wanted = (decision.candidate if decision else None, results.baseline, results.single, *best)
    chosen = list(dict.fromkeys(name for name in wanted if name in able and name))[:MOST]
    others = [one.name for one in by_score if one.name not in chosen]
    return chosen + others[: max(0, FEW - len(chosen))]


# ------------------------------------------------------------------ their texts


def read_texts(answers: Answers, on: str) -> tuple[Sequence[Texts], str]:
    """The texts of the rows as training read them, or none and the reason."""
    trial, task = answers.trial, answers.rows.task
    entry, split = trial.recipe.tasks[task.name], SPLIT_FILE[on]
    file = entry.files().get(split) or entry.train or ""
    if reason := why_changed(file, trial.record.meta_info.data_sha256.get(file)):
        return (), reason
    try:
        if split in entry.files():
            part = read_split(entry, task, file, needs_label=split == "validation")
        else:  # validation was split off the training rows
            part = read_task(entry, task, (split,))[1][split]
        rows = [part.rows[place] for place in answers.rows.places]
    except (MopsError, IndexError) as cause:
        return (), f"{file} can no longer be read: {cause}"
    if [row.id for row in rows] != answers.rows.columns["id"].tolist():
        return (), f"the rows of {file} are not those that were answered"
    return [row.texts for row in rows], ""


def why_changed(file: str, sha256: str | None) -> str:
    """Why a data file is not the one that was trained with; empty if it is."""
    if file.startswith(HUB):
        return f"{file} is on the hub, which a report does not contact"
    if not Path(file).is_file():
        return f"{file} no longer exists"
    if sha256 and file_digest(file) != sha256:
        return f"{file} has changed since the training"
    return ""
