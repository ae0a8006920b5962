"""Error analysis: hard rows, errors of one candidate only, scores by text length and by label."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.data.dataset import read_split, read_task
from mops.errors import MopsError
from mops.evaluate.evaluate import PredictionRows, Values
from mops.evaluate.metrics import score
from mops.reports.source import JUDGES, Source, TrialFiles, read_answers
from mops.tables import Cell, Table, number_cell

COMPARED = 4  # candidates
FAR = 0.2  # of a similarity's range: a prediction farther from its label is called wrong
WORST = 30  # rows of a task
ALONE = 10  # rows per candidate that it alone gets wrong
RANGE_PARTS = 5  # of a similarity's range
FEWEST = 3  # rows of a correlation
Mask = NDArray[np.bool_]
Texts = tuple[str, ...]


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


class Comparison(NamedTuple):
    """The answers of several candidates to the same rows. Matrices are candidates x rows."""

    answers: Mapping[str, PredictionRows]
    rows: PredictionRows  # of the first candidate: ids, labels and targets are those of all
    texts: Sequence[Texts]  # empty where the data file is gone
    errors: Values  # 0 or 1 for classes, the distance to the label for values
    wrong: Mask
    losses: Values | None  # None if a file has none

    @property
    def badness(self) -> Values:
        """What rows are ordered by."""
        return self.errors if self.losses is None else self.losses


def find_errors(source: Source) -> Iterator[TaskErrors | str]:
    """The analysis of each task, or a sentence that says why there is none."""
    on = source.results.on
    for task in source.results.tasks:
        trials = source.same_seed_trials(compared_candidates(source, task))
        answers, left_out = read_answers(trials.values(), task, on)
        if not answers:
            yield f"No error analysis of {task}: no prediction file can be read."
            continue
        first = next(iter(answers))
        texts, why_no_texts = read_texts(trials[first], answers[first], on)
        comparison = compare_answers(answers, texts)
        seeds = {trials[name].result.seed for name in answers}
        facts = notes(comparison, on, seeds, why_no_texts, left_out)
        yield TaskErrors(
            task=task,
            candidates=tuple(answers),
            worst=tuple(make_example(comparison, row) for row in worst_rows(comparison)),
            only=tuple(make_example(comparison, *alone) for alone in errors_of_one(comparison)),
            by_length=scores_by_length(comparison),
            by_label=scores_by_label(comparison),
            note=" ".join(facts),
        )


def compared_candidates(source: Source, task: str) -> list[str]:
    """The recommended one, the baseline, the model per task, then those with the best scores."""
    names = [one.name for one in source.results.candidates if task in one.tasks]
    ranked = dict.fromkeys((*source.main_candidates, *names))
    return [name for name in ranked if name in names and source.trials_of(name)][:COMPARED]


def read_texts(trial: TrialFiles, rows: PredictionRows, on: str) -> tuple[Sequence[Texts], str]:
    """The texts of the rows as training read them, or none and the reason."""
    task, split = rows.task, "test" if on == "test" else "validation"
    entry = trial.recipe.tasks[task.name]
    file = entry.files().get(split) or entry.train or ""
    if reason := trial.why_changed(file):
        return (), reason
    try:
        if split in entry.files():
            part = read_split(entry, task, file, needs_label=split == "validation")
        else:  # validation was split off the training rows
            part = read_task(entry, task, (split,))[1][split]
        read = [part.rows[place] for place in rows.places]
    except (MopsError, IndexError) as cause:
        return (), f"{file} can no longer be read: {cause}"
    if [row.id for row in read] != rows.columns["id"].tolist():
        return (), f"the rows of {file} are not those that were answered"
    return [row.texts for row in read], ""


def compare_answers(answers: Mapping[str, PredictionRows], texts: Sequence[Texts]) -> Comparison:
    first, *_ = answers.values()
    errors = np.abs([rows.values - first.targets for rows in answers.values()])
    errors = errors if first.task.is_similarity else (errors > 0).astype(np.float64)
    low, high = first.task.range or (0.0, 1.0)
    losses = [own for rows in answers.values() if (own := rows.numbers("loss")) is not None]
    all_losses = np.array(losses) if len(losses) == len(answers) else None
    return Comparison(answers, first, texts, errors, errors > FAR * (high - low), all_losses)


def notes(
    comparison: Comparison, on: str, seeds: set[int], why_no_texts: str, left_out: Sequence[str]
) -> Iterator[str]:
    seed = "each candidate's first seed" if len(seeds) > 1 else f"seed {seeds.pop()}"
    yield f"{len(comparison.rows.targets):,} rows ({JUDGES[on]}), {seed}."
    if comparison.rows.task.range:
        low, high = comparison.rows.task.range
        yield f"An answer counts as wrong if it is more than {FAR * (high - low):g} off."
    if comparison.losses is None:
        yield "Some prediction files have no losses, so rows are ordered by their errors."
    if why_no_texts:
        yield f"Ids are shown instead of texts: {why_no_texts}."
    yield from (f"Left out: {line}." for line in left_out)


# ------------------------------------------------------------------ rows


def worst_rows(comparison: Comparison) -> Sequence[int]:
    """By mean loss; without losses by mean error."""
    badness = comparison.badness.mean(axis=0)
    return [int(row) for row in np.argsort(-badness, kind="stable")[:WORST] if badness[row] > 0]


def errors_of_one(comparison: Comparison) -> Iterator[tuple[int, str]]:
    """(row, candidate) where all others are right; the worst rows of each candidate first."""
    is_alone = (comparison.wrong.sum(axis=0) == 1) & (len(comparison.answers) > 1)
    own = zip(comparison.answers, comparison.wrong, comparison.badness, strict=True)
    for name, wrong, badness in own:
        rows = np.flatnonzero(is_alone & wrong)
        for row in rows[np.argsort(-badness[rows], kind="stable")][:ALONE]:
            yield int(row), name


def make_example(comparison: Comparison, row: int, only: str = "") -> Example:
    rows, texts, losses = comparison.rows, comparison.texts, comparison.losses
    columns = [rows.columns["label"]]
    columns += [own.columns["prediction"] for own in comparison.answers.values()]
    is_value = rows.task.is_similarity
    words = [f"{float(own[row]):.2f}" if is_value else own[row] for own in columns]
    is_right = [not is_wrong for is_wrong in comparison.wrong[:, row]]
    return Example(
        id=rows.columns["id"][row],
        texts=texts[row] if texts else (),
        label=words[0],
        loss=None if losses is None else float(losses[:, row].mean()),
        answers=tuple(zip(comparison.answers, words[1:], is_right, strict=True)),
        only=only,
    )


# ------------------------------------------------------------------ scores of some of the rows


def scores_by_length(comparison: Comparison) -> Table:
    """The task's own score in each quarter of the rows, the shortest texts first.

    Rows of equal length stay together, so quarters may be uneven or fewer than four.
    """
    task, targets = comparison.rows.task, comparison.rows.targets
    predictions = [rows.values for rows in comparison.answers.values()]

    def own_score(candidate: int, rows: Mask) -> float | None:
        if rows.sum() < FEWEST and task.is_similarity:
            return None
        return score(task, targets[rows], predictions[candidate][rows])[task.score_name]

    words = np.array([sum(len(text.split()) for text in row) for row in comparison.texts] or [0])
    bounds = np.unique(np.quantile(words, (0.25, 0.5, 0.75), method="inverted_cdf"))
    places = np.searchsorted(bounds, words)  # a bound belongs to the shorter quarter
    groups = {}
    for own in [places == n for n in np.unique(places)] if comparison.texts else ():
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
    columns = (column, "rows", *comparison.answers)
    table = Table(f"{task}-by-{title}", f"{task} by {title}", columns, tuple(rows), note)
    return table.with_minus_signs()
