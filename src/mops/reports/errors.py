"""Error analysis: hard rows, errors of one candidate only, scores by text length and by label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.data.dataset import read_split, read_task
from mops.data.tables import HUB
from mops.errors import MopsError, RunError
from mops.evaluate.metrics import score
from mops.evaluate.predictions import SPLIT_FILE, PredictionRows, read_predictions
from mops.files import file_digest
from mops.reports.source import JUDGES, Source, TrialFiles
from mops.tables import Cell, Table, number_cell, with_minus_signs

FEW, MOST = 4, 8  # candidates that are compared
FAR = 0.2  # of a similarity's range: a prediction farther from its label is called wrong
WORST = 30  # rows of a task
ALONE = 10  # rows per candidate that it alone gets wrong
RANGE_PARTS = 5  # of a similarity's range
FEWEST = 3  # rows of a correlation
Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Texts = tuple[str, ...]


class Answers(NamedTuple):
    """One trial's predictions for the labelled rows that judge a task."""

    trial: TrialFiles
    rows: PredictionRows


def read_answers(trial: TrialFiles, name: str, on: str) -> Answers:
    path = trial.predictions(name, on)
    rows = read_predictions(path, trial.recipe.task_values()[name]).part(on)
    if not len(rows.targets):
        raise RunError(f"{path} has no labelled row that judges")
    return Answers(trial, rows)


class Comparison(NamedTuple):
    """The answers of several candidates to the same rows."""

    rows: PredictionRows  # ids, labels and targets of all; predictions of the first candidate
    names: tuple[str, ...]  # of the candidates
    answers: tuple[Answers, ...]
    losses: list[Values | None]  # None where a file has none
    mean_losses: Values | None
    errors: Values  # candidates x rows: 0 or 1 for classes, the distance to the label for values
    wrong: Mask  # candidates x rows
    left_out: tuple[str, ...]  # candidates without usable predictions, and why


def compare_answers(source: Source, task: str) -> Comparison | None:
    """None where no prediction file of the task can be read."""
    answers: list[Answers] = []
    left_out = []
    for trial in source.same_seed_trials(compared_candidates(source, task)).values():
        try:
            own = read_answers(trial, task, source.results.on)
            if answers and own.rows.digest != answers[0].rows.digest:
                raise RunError(f"its rows differ from those of {answers[0].trial.candidate}")
            answers.append(own)
        except RunError as error:
            left_out.append(f"{trial.candidate}: {error}")
    if not answers:
        return None
    rows, names = answers[0].rows, tuple(one.trial.candidate for one in answers)
    losses = [one.rows.numbers("loss") for one in answers]
    known = [own for own in losses if own is not None]
    mean = np.mean(known, axis=0) if known else None
    errors = np.abs([one.rows.values - rows.targets for one in answers])
    errors = errors if rows.task.is_similarity else (errors > 0).astype(np.float64)
    low, high = rows.task.range or (0.0, 1.0)
    wrong = errors > FAR * (high - low)
    return Comparison(rows, names, tuple(answers), losses, mean, errors, wrong, tuple(left_out))


def compared_candidates(source: Source, task: str) -> list[str]:
    """The recommended one, the baseline, the model per task, then the best of each block.

    Where these are few, the best of the others follow.
    """
    able = [o for o in source.results.candidates if task in o.tasks and source.trials_of(o.name)]
    by_score = sorted(able, key=lambda one: -one.overall.mean)
    blocks = {(one.reference, one.tie): one.name for one in reversed(by_score)}
    best = [one.name for one in able if one.name in blocks.values()]
    main = [name for name in source.main_candidates if name in {one.name for one in able}]
    chosen = list(dict.fromkeys((*main, *best)))[:MOST]
    others = [one.name for one in by_score if one.name not in chosen]
    return chosen + others[: max(0, FEW - len(chosen))]


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


# ------------------------------------------------------------------ analysis


@dataclass(frozen=True)
class Example:
    """One row with the answers of the compared candidates."""

    id: str
    texts: Texts  # empty where the data file is gone
    label: str
    loss: float | None  # mean over the candidates
    answers: tuple[tuple[str, str, bool], ...]  # candidate, answer, is it right
    only: str = ""  # the only candidate that is wrong


@dataclass(frozen=True)
class TaskErrors:
    """The error analysis of one task."""

    task: str
    candidates: tuple[str, ...]
    worst: tuple[Example, ...]
    only: tuple[Example, ...]  # rows that one candidate alone gets wrong
    by_length: Table
    by_label: Table
    note: str


def find_errors(source: Source) -> Iterator[TaskErrors | str]:
    """The analysis of each task, or a sentence that says why there is none."""
    on = source.results.on
    for task in source.results.tasks:
        comparison = compare_answers(source, task)
        if comparison is None:
            yield f"No error analysis of {task}: no prediction file can be read."
            continue
        texts, why_no_texts = read_texts(comparison.answers[0], on)
        alone = errors_of_one(comparison)
        yield TaskErrors(
            task=task,
            candidates=comparison.names,
            worst=tuple(make_example(comparison, row, texts) for row in worst_rows(comparison)),
            only=tuple(make_example(comparison, row, texts, only) for only, row in alone),
            by_length=scores_by_length(comparison, texts),
            by_label=scores_by_label(comparison),
            note=" ".join(notes(comparison, on, why_no_texts)),
        )


def worst_rows(comparison: Comparison) -> Sequence[int]:
    """By mean loss; without losses by mean error."""
    losses = comparison.mean_losses
    badness = comparison.errors.mean(axis=0) if losses is None else np.nan_to_num(losses, nan=-1.0)
    return [int(row) for row in np.argsort(-badness, kind="stable")[:WORST] if badness[row] > 0]


def errors_of_one(comparison: Comparison) -> Iterator[tuple[str, int]]:
    """(candidate, row) where all others are right; the worst rows of each candidate first."""
    if len(comparison.answers) < 2:
        return
    wrong = comparison.wrong
    for n, (name, losses) in enumerate(zip(comparison.names, comparison.losses, strict=True)):
        rows = np.flatnonzero((wrong.sum(axis=0) == 1) & wrong[n])
        badness = comparison.errors[n] if losses is None else losses
        for row in rows[np.argsort(-badness[rows], kind="stable")][:ALONE]:
            yield name, int(row)


def make_example(
    comparison: Comparison, row: int, texts: Sequence[Texts], only: str = ""
) -> Example:
    is_value = comparison.rows.task.is_similarity
    columns = [comparison.rows.columns["label"]]
    columns += [one.rows.columns["prediction"] for one in comparison.answers]
    words = [f"{float(own[row]):.2f}" if is_value else own[row] for own in columns]
    is_right = [not is_wrong for is_wrong in comparison.wrong[:, row]]
    losses = comparison.mean_losses
    return Example(
        id=comparison.rows.columns["id"][row],
        texts=texts[row] if texts else (),
        label=words[0],
        loss=None if losses is None else float(losses[row]),
        answers=tuple(zip(comparison.names, words[1:], is_right, strict=True)),
        only=only,
    )


def notes(comparison: Comparison, on: str, why_no_texts: str) -> Iterator[str]:
    seeds = {one.trial.result.seed for one in comparison.answers}
    seed = "each candidate's first seed" if len(seeds) > 1 else f"seed {seeds.pop()}"
    yield f"{len(comparison.rows.targets):,} rows ({JUDGES[on]}), {seed}."
    if comparison.rows.task.range:
        low, high = comparison.rows.task.range
        yield f"An answer counts as wrong if it is more than {FAR * (high - low):g} off."
    if comparison.mean_losses is None:
        yield "The prediction files have no losses, so rows are ordered by their errors."
    if why_no_texts:
        yield f"Ids are shown instead of texts: {why_no_texts}."
    yield from (f"Left out: {line}." for line in comparison.left_out)


# ------------------------------------------------------------------ scores of some of the rows


def scores_by_length(comparison: Comparison, texts: Sequence[Texts]) -> Table:
    """The task's own score in each quarter of the rows, the shortest texts first.

    Rows of equal length stay together, so quarters may be uneven or fewer than four.
    """
    task, targets = comparison.rows.task, comparison.rows.targets

    def own_score(candidate: int, rows: Mask) -> float | None:
        if rows.sum() < FEWEST and task.is_similarity:
            return None
        predictions = comparison.answers[candidate].rows.values
        return score(task, targets[rows], predictions[rows])[task.score_name]

    words = np.array([sum(len(text.split()) for text in row) for row in texts] or [0])
    bounds = np.unique(np.quantile(words, (0.25, 0.5, 0.75), method="inverted_cdf"))
    places = np.searchsorted(bounds, words)  # a bound belongs to the shorter quarter
    groups = {}
    for own in [places == n for n in np.unique(places)] if texts else ():
        low, high = words[own].min(), words[own].max()
        groups[f"{low}" if low == high else f"{low} to {high}"] = own
    note = f"{task.score_name} in quarters of the rows, by the number of words in their texts."
    return slice_table(comparison, ("length", "words"), groups, own_score, note)


def scores_by_label(comparison: Comparison) -> Table:
    """Accuracy per class; for a similarity the mean distance in equal parts of its range."""
    task, targets = comparison.rows.task, comparison.rows.targets
    if task.range:
        edges = np.linspace(*task.range, RANGE_PARTS + 1)
        places = np.clip(np.searchsorted(edges, targets, side="right") - 1, 0, RANGE_PARTS - 1)
        names = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
        note = "Mean distance between prediction and label; smaller is better."
    else:
        places, names = targets.astype(int), list(task.labels)
        note = "Fraction of correct answers among the rows of a label."
    values = comparison.errors if task.range else 1 - comparison.errors
    groups = {name: places == n for n, name in enumerate(names)}
    return slice_table(
        comparison, ("label", "label"), groups, lambda n, rows: float(values[n, rows].mean()), note
    )


def slice_table(
    comparison: Comparison,
    by: tuple[str, str],  # for the title, for the first column
    groups: Mapping[str, Mask],
    measure: Callable[[int, Mask], float | None],  # of a candidate on some rows
    note: str,
) -> Table:
    """A row for each group of rows that is not empty, a column for each candidate."""
    rows = []
    for words, mask in groups.items():
        if mask.any():
            values = [measure(n, mask) for n in range(len(comparison.answers))]
            count = number_cell(int(mask.sum()), "{:,}")
            rows.append((Cell(words), count, *(number_cell(value, "{:.3f}") for value in values)))
    task, (title, column) = comparison.rows.task.name, by
    columns = (column, "rows", *comparison.names)
    table = Table(f"{task}-by-{title}", f"{task} by {title}", columns, tuple(rows), note)
    return with_minus_signs(table)
