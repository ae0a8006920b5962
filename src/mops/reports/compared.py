"""The answers that are set side by side: of a few candidates, to the rows that judge a task."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mops.errors import RunError
from mops.reports.material import Material, TrialFiles
from mops.surveys.results.rescoring import number_of
from mops.surveys.results.standings import Standing
from mops.tasks import Task

Values = NDArray[np.float64]
FEW, MOST = 4, 8  # candidates side by side
FAR = 0.2  # of a similarity's range: an answer that is farther off is called wrong


@dataclass(frozen=True)
class Answered:
    """What one candidate answered to the rows that judge."""

    candidate: str
    words: Sequence[str]
    numbers: Values  # class numbers, or values
    losses: Values | None  # none in older files


@dataclass(frozen=True)
class Side:
    """The answers of several candidates to the same rows, side by side."""

    first: TrialFiles  # of the first of them
    task: Task
    seed: int | None  # none where they have no seed in common
    places: NDArray[np.int64]  # of the rows in their file
    ids: Sequence[str]
    labels: Sequence[str]
    targets: Values
    answered: tuple[Answered, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.candidate for one in self.answered)

    @cached_property
    def errors(self) -> Values:
        """How far each answer is off; of classes 0 or 1. Candidates x rows."""
        numbers = np.array([one.numbers for one in self.answered])
        far: Values = np.abs(numbers - self.targets)
        return far if self.task.is_similarity else (far > 0).astype(np.float64)

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Candidates x rows."""
        low, high = self.task.range or (0.0, 1.0)
        return self.errors > FAR * (high - low)


def set_side_by_side(material: Material, task: str) -> tuple[Side | None, tuple[str, ...]]:
    """The answers of those who are compared, and why others are not among them."""
    on, lost = material.summary.on, []
    seed, trials = chosen_trials(material, task)
    side: Side | None = None
    for trial in trials:
        try:
            found = read_side(trial, trial.recipe.task_values()[task], on)
        except RunError as error:
            lost.append(f"{trial.candidate}: {error}")
            continue
        if side is None:
            side = replace(found, seed=seed)
        elif list(found.ids) == list(side.ids):
            side = replace(side, answered=(*side.answered, *found.answered))
        else:
            lost.append(f"{trial.candidate}: its rows are not those of {side.names[0]}")
    return side, tuple(lost)


# ------------------------------------------------------------------ who


def chosen_trials(material: Material, task: str) -> tuple[int | None, list[TrialFiles]]:
    """One trial each, of the first seed that all have; else of each one's own first."""
    of = {name: material.of(name) for name in compared(material, task)}
    common = [
        seed
        for seed in material.summary.seeds
        if all(any(trial.facts.seed == seed for trial in trials) for trials in of.values())
    ]
    if not common:
        return None, [trials[0] for trials in of.values()]
    return common[0], [
        next(trial for trial in trials if trial.facts.seed == common[0]) for trials in of.values()
    ]


def compared(material: Material, task: str) -> list[str]:
    """The recommended, the baseline, the model per task, then the best of each tie.

    Where these are few, the best of the others too.
    """
    summary, decision = material.summary, material.decision
    able = {
        one.name: one for one in summary.standings if task in one.tasks and material.of(one.name)
    }
    wanted = [
        (decision.candidate if decision else None) or "",
        summary.baseline,
        summary.single or "",
        *best_of_ties(list(able.values())),
    ]
    chosen = list(dict.fromkeys(name for name in wanted if name in able))[:MOST]
    others = [name for name in able if name not in chosen]
    others.sort(key=lambda name: -able[name].overall.mean)
    return chosen + others[: max(0, FEW - len(chosen))]


def best_of_ties(standings: Sequence[Standing]) -> Iterator[str]:
    ties: dict[tuple[str, int], list[Standing]] = {}
    for one in standings:
        ties.setdefault((one.reference, one.tie), []).append(one)
    for group in ties.values():
        yield max(group, key=lambda one: one.overall.mean).name


# ------------------------------------------------------------------ what they answered


def read_side(trial: TrialFiles, task: Task, on: str) -> Side:
    """The rows of a file that judge, with the answers of one candidate."""
    path = trial.predictions(task.name, on)
    columns = read_columns(path)
    try:
        halves = columns.get("half") or (on,) * len(columns["id"])
        labels = columns["label"]
        kept = [n for n, half in enumerate(halves) if half == on and labels[n] != ""]
        taken = {name: [column[n] for n in kept] for name, column in columns.items()}
        number = number_of(task)
        answered = Answered(
            trial.candidate,
            taken["prediction"],
            np.fromiter(map(number, taken["prediction"]), np.float64, len(kept)),
            losses_of(taken.get("loss")),
        )
        targets = np.fromiter(map(number, taken["label"]), np.float64, len(kept))
    except (KeyError, ValueError, IndexError) as cause:
        raise RunError(f"{path} cannot be read as predictions: {cause!r}") from cause
    places = np.array(kept, np.int64)
    return Side(trial, task, None, places, taken["id"], taken["label"], targets, (answered,))


def losses_of(words: Sequence[str] | None) -> Values | None:
    if words is None:
        return None
    return np.fromiter((float(word or "nan") for word in words), np.float64, len(words))


def read_columns(path: Path) -> Mapping[str, Sequence[str]]:
    """The columns of a file by their names; quick where nothing in it is quoted."""
    try:
        text = path.read_text("utf-8")
        if '"' in text:
            header, *rows = csv.reader(io.StringIO(text, newline=""))
            return dict(zip(header, zip(*rows, strict=True), strict=True))
        names = text.partition("\n")[0].split(",")
        cells = text.rstrip("\n").replace("\n", ",").split(",")
        if len(cells) % len(names):
            raise ValueError(f"a row has not the {len(names)} cells of the first line")
        return {name: cells[n + len(names) :: len(names)] for n, name in enumerate(names)}
    except (OSError, ValueError) as cause:
        raise RunError(f"{path} cannot be read as predictions: {cause}") from cause
