"""Error analysis: hard rows, errors of one candidate only, scores by text length and by label."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mops.data.dataset import read_split, read_task
from mops.errors import MopsError
from mops.evaluate.evaluate import PredictionRows
from mops.evaluate.metrics import score
from mops.reports.source import JUDGES, Source, TrialFiles, read_answers
from mops.tables import Cell, Table, number_cell

COMPARED = 4  # candidates
FAR = 0.2  # of a similarity's range: a prediction farther from its label is called wrong
WORST = 30  # rows of a task
ALONE = 10  # rows per candidate that it alone gets wrong
RANGE_PARTS = 5  # of a similarity's range
FEWEST = 3  # rows of a correlation
Texts = tuple[str, ...]
Cells = tuple[Cell, ...]


@dataclass(frozen=True)
class Example:
    """One row with the answers of the compared candidates."""

    id: str
    texts: Texts  # empty where the data file is gone
    label: str
    loss: float  # mean over the candidates
    answers: tuple[tuple[str, str, bool], ...]  # candidate, answer, is it right
    only: str = ""  # the only candidate that is wrong


@dataclass(frozen=True)
class TaskErrors:
    """The error analysis of one task."""

    task: str
    candidates: tuple[str, ...]
    worst: tuple[Example, ...]
    only: tuple[Example, ...]  # rows that one candidate alone gets wrong
    tables: tuple[Table, ...]  # scores by length, where texts are known, and by label
    note: str


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
        comparison = Comparison(answers, texts)
        seeds = {trials[name].result.seed for name in answers}
        seed = "each candidate's first seed" if len(seeds) > 1 else f"seed {seeds.pop()}"
        notes = [f"{len(comparison.targets):,} rows ({JUDGES[on]}), {seed}."]
        if comparison.task.range:
            notes += [f"An answer counts as wrong if it is more than {comparison.far:g} off."]
        if why_no_texts:
            notes += [f"Ids are shown instead of texts: {why_no_texts}."]
        notes += [f"Left out: {line}." for line in left_out]
        yield TaskErrors(
            task=task,
            candidates=tuple(answers),
            worst=tuple(comparison.worst()),
            only=tuple(comparison.errors_of_one()),
            tables=(*comparison.scores_by_length(), comparison.scores_by_label()),
            note=" ".join(notes),
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


class Comparison:
    """The answers of several candidates to the same rows. Matrices are candidates x rows."""

    def __init__(self, answers: Mapping[str, PredictionRows], texts: Sequence[Texts]) -> None:
        self.answers, self.texts = answers, texts
        self.rows = next(iter(answers.values()))  # ids, labels and targets are those of all
        self.task, self.targets = self.rows.task, self.rows.targets
        self.predictions = np.array([rows.values for rows in answers.values()])
        self.losses = np.array([rows.numbers("loss") for rows in answers.values()])
        off = np.abs(self.predictions - self.targets)
        self.errors = off if self.task.is_similarity else (off > 0).astype(np.float64)
        low, high = self.task.range or (0.0, 1.0)
        self.far = FAR * (high - low)
        self.wrong = self.errors > self.far

    def worst(self) -> Iterator[Example]:
        """The rows with the largest mean loss."""
        losses = self.losses.mean(axis=0)
        for row in np.argsort(-losses, kind="stable")[:WORST].tolist():
            if losses[row] > 0:
                yield self.example(row)

    def errors_of_one(self) -> Iterator[Example]:
        """Rows where all others are right; the largest losses of each candidate first."""
        is_alone = (self.wrong.sum(axis=0) == 1) & (len(self.answers) > 1)
        for name, wrong, losses in zip(self.answers, self.wrong, self.losses, strict=True):
            rows = np.flatnonzero(is_alone & wrong)
            for row in rows[np.argsort(-losses[rows], kind="stable")][:ALONE].tolist():
                yield self.example(row, name)

    def example(self, row: int, only: str = "") -> Example:
        columns = [self.rows.columns["label"]]
        columns += [own.columns["prediction"] for own in self.answers.values()]
        is_value = self.task.is_similarity
        words = [f"{float(own[row]):.2f}" if is_value else own[row] for own in columns]
        is_right = [not is_wrong for is_wrong in self.wrong[:, row]]
        return Example(
            id=self.rows.columns["id"][row],
            texts=self.texts[row] if self.texts else (),
            label=words[0],
            loss=float(self.losses[:, row].mean()),
            answers=tuple(zip(self.answers, words[1:], is_right, strict=True)),
            only=only,
        )

    def scores_by_length(self) -> Iterator[Table]:
        """The task's own score in each quarter of the rows, the shortest texts first.

        Rows of equal length stay together, so quarters may be uneven or fewer than four.
        """
        if not self.texts:
            return
        words = np.array([sum(len(text.split()) for text in row) for row in self.texts])
        bounds = np.unique(np.quantile(words, (0.25, 0.5, 0.75), method="inverted_cdf"))
        places = np.searchsorted(bounds, words)  # a bound belongs to the shorter quarter
        name, rows = self.task.score_name, []
        for mask in (places == n for n in np.unique(places)):
            low, high = words[mask].min(), words[mask].max()
            is_enough = mask.sum() >= FEWEST or not self.task.is_similarity
            scores = [
                score(self.task, self.targets[mask], own[mask])[name] if is_enough else None
                for own in self.predictions
            ]
            rows.append(slice_row(f"{low}" if low == high else f"{low} to {high}", mask, scores))
        note = f"{name} in quarters of the rows, by the number of words in their texts."
        yield self.table("length", "words", rows, note)

    def scores_by_label(self) -> Table:
        """Accuracy per class; for a similarity the mean distance in equal parts of its range."""
        values, note = 1 - self.errors, "Fraction of correct answers among the rows of a label."
        places, names = self.targets.astype(int), list(self.task.labels)
        if self.task.range:
            note = "Mean distance between prediction and label; smaller is better."
            values = self.errors
            edges = np.linspace(*self.task.range, RANGE_PARTS + 1)
            places = np.searchsorted(edges[1:-1], self.targets, side="right")
            names = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
        rows = []
        for mask, name in ((places == n, name) for n, name in enumerate(names)):
            if mask.any():
                rows.append(slice_row(name, mask, [float(own[mask].mean()) for own in values]))
        return self.table("label", "label", rows, note)

    def table(self, by: str, column: str, rows: Sequence[Cells], note: str) -> Table:
        name, columns = self.task.name, (column, "rows", *self.answers)
        table = Table(f"{name}-by-{by}", f"{name} by {by}", columns, tuple(rows), note)
        return table.with_minus_signs()


def slice_row(words: str, mask: NDArray[np.bool_], values: Sequence[float | None]) -> Cells:
    """Which rows, how many, and the value of each candidate on them."""
    count = number_cell(int(mask.sum()), "{:,}")
    return Cell(words), count, *(number_cell(value, "{:.3f}") for value in values)
