"""Error analysis: which rows are hard, who alone gets one wrong, and where scores are low."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mops.reports.compared import FAR, Side, Values, set_side_by_side
from mops.reports.material import Material
from mops.reports.slices import by_label, by_length
from mops.reports.texts import Found, find_texts
from mops.tables import Table, with_minus_signs
from mops.tasks import Task

WORST = 30  # rows of a task
ALONE = 10  # rows of a candidate that it alone gets wrong
JUDGES = {"report": "the report half of validation", "test": "the test rows"}


@dataclass(frozen=True)
class Example:
    """One row and what the compared candidates answered."""

    id: str
    texts: tuple[str, ...]  # empty where the data file is gone
    label: str
    loss: float | None  # mean over the candidates
    answers: tuple[tuple[str, str, bool], ...]  # candidate, answer, is it right
    only: str = ""  # the candidate that alone is wrong


@dataclass(frozen=True)
class TaskErrors:
    """What goes wrong in one task."""

    task: str
    plans: tuple[str, ...]  # the candidates that are compared
    worst: tuple[Example, ...]
    only: tuple[Example, ...]  # errors that one candidate alone makes
    by_length: Table
    by_label: Table
    note: str


def find_errors(material: Material) -> tuple[TaskErrors, ...]:
    """For each task; without those whose predictions cannot be read."""
    return tuple(
        found for task in material.summary.tasks if (found := errors_of(material, task)) is not None
    )


def errors_of(material: Material, name: str) -> TaskErrors | None:
    side, lost = set_side_by_side(material, name)
    if side is None:
        return None
    found = find_texts(side, material.summary.on)
    losses = mean_losses(side)
    show = Shown(side, found, losses)
    return TaskErrors(
        task=name,
        plans=side.names,
        worst=tuple(show(place) for place in worst_rows(side, losses)),
        only=tuple(show(place, side.names[one]) for one, place in alone_wrong(side)),
        by_length=with_minus_signs(by_length(side, found.texts)),
        by_label=with_minus_signs(by_label(side)),
        note=" ".join(notes(material, side, found, lost)),
    )


def mean_losses(side: Side) -> Values | None:
    """Over the candidates whose files have losses."""
    known = [one.losses for one in side.answered if one.losses is not None]
    return np.mean(known, axis=0) if known else None


def worst_rows(side: Side, losses: Values | None) -> Sequence[int]:
    """By loss; without losses by how far all are off, of classes by how many are wrong."""
    badness = side.errors.mean(axis=0) if losses is None else np.nan_to_num(losses, nan=-1.0)
    order = np.argsort(-badness, kind="stable")[:WORST]
    return [int(place) for place in order if badness[place] > 0]


def alone_wrong(side: Side) -> Iterator[tuple[int, int]]:
    """(candidate, row) where all others are right; of each candidate the worst ones first."""
    if len(side.answered) < 2:
        return
    wrong, errors = side.wrong, side.errors
    is_alone = wrong.sum(axis=0) == 1
    for n, one in enumerate(side.answered):
        places = np.flatnonzero(is_alone & wrong[n])
        badness = errors[n] if one.losses is None else one.losses
        for place in places[np.argsort(-badness[places], kind="stable")][:ALONE]:
            yield n, int(place)


@dataclass(frozen=True)
class Shown:
    """Makes an example of a row."""

    side: Side
    found: Found
    losses: Values | None

    def __call__(self, place: int, only: str = "") -> Example:
        side, wrong = self.side, self.side.wrong[:, place]
        return Example(
            id=side.ids[place],
            texts=self.found.texts[place] if self.found.texts else (),
            label=worded(side.task, side.labels[place]),
            loss=None if self.losses is None else float(self.losses[place]),
            answers=tuple(
                (one.candidate, worded(side.task, one.words[place]), not wrong[n])
                for n, one in enumerate(side.answered)
            ),
            only=only,
        )


def worded(task: Task, word: str) -> str:
    return f"{float(word):.2f}" if task.is_similarity else word


def notes(material: Material, side: Side, found: Found, lost: Sequence[str]) -> Iterator[str]:
    seed = f"seed {side.seed}" if side.seed is not None else "each one's first seed"
    yield f"{len(side.ids):,} rows: {JUDGES[material.summary.on]}; answers of {seed}."
    if side.task.range:
        low, high = side.task.range
        yield f"An answer is called wrong when it is more than {FAR * (high - low):g} off."
    if all(one.losses is None for one in side.answered):
        yield "These predictions have no losses: rows are ordered by their errors."
    if found.why_not:
        yield f"Ids instead of texts: {found.why_not}."
    yield from (f"Left out: {line}." for line in lost)
