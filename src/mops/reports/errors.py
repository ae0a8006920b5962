"""Error analysis: hard rows, errors of one candidate only, scores by text length and by label."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mops.config.recipe import Recipe
from mops.data.dataset import read_split, read_task, shared_files
from mops.data.tables import HUB
from mops.errors import MopsError, RunError
from mops.evaluate.evaluate import PredictionRows
from mops.files import file_digest
from mops.kinds.answers import ByLabel
from mops.kinds.tags import Piece
from mops.reports.source import JUDGES, Source, TrialFiles, read_answers
from mops.tables import Cell, Table, number_cell

COMPARED = 4  # candidates
FAR = 0.2  # of a similarity's range: a prediction farther from its label is called wrong
WORST = 30  # rows of a task
ALONE = 10  # rows per candidate that it alone gets wrong
LONG = 12  # letters of an answer
RANGE_PARTS = 5  # of a similarity's range
Texts = tuple[str, ...]
Shown = str | Sequence[Piece]  # an answer, or the text with its entities


@dataclass(frozen=True)
class Example:
    """One row with the answers of the compared candidates."""

    id: str
    texts: Texts  # empty where the data file is gone
    label: Shown
    loss: float  # mean over the candidates
    answers: tuple[tuple[str, Shown, bool], ...]  # candidate, answer, is it right
    only: str = ""  # the only candidate that is wrong

    @property
    def has_long_answers(self) -> bool:
        """Whether an answer needs the whole line, as marked texts and sets of labels do."""
        return any(not isinstance(own, str) or len(own) > LONG for _, own, _ in self.answers)


@dataclass(frozen=True)
class TaskErrors:
    task: str
    candidates: tuple[str, ...]
    worst: tuple[Example, ...]
    only: tuple[Example, ...]  # rows that one candidate alone gets wrong
    tables: tuple[Table, ...]  # by length, where texts are known, and by label
    note: str


def find_errors(source: Source) -> Iterator[TaskErrors | str]:
    """The analysis of each task, or a sentence that says why there is none."""
    on = source.results.on
    for task in source.results.tasks:
        trials = source.compared_trials(task, COMPARED)
        answers, left_out = read_answers(trials.values(), task, on)
        if not answers:
            yield f"No error analysis of {task}: no prediction file can be read."
            continue
        first = next(iter(answers))
        seeds = ", ".join(sorted({str(trials[name].result.seed) for name in answers}))
        notes = [f"{len(answers[first].targets):,} rows ({JUDGES[on]}), seed {seeds}."]
        texts: Sequence[Texts] = ()
        try:
            texts = read_texts(trials[first], answers[first], on)
        except MopsError as reason:
            notes.append(f"Ids are shown instead of texts: {reason}.")
        comparison = Comparison(answers, texts)
        if not comparison.task.answer.has_labels:
            notes.append(f"An answer counts as wrong if it is more than {comparison.far:g} off.")
        notes += [f"Left out: {line}." for line in left_out]
        yield TaskErrors(
            task=task,
            candidates=tuple(answers),
            worst=tuple(comparison.worst()),
            only=tuple(comparison.errors_of_one()),
            tables=tuple(comparison.tables()),
            note=" ".join(notes),
        )


def read_texts(trial: TrialFiles, rows: PredictionRows, on: str) -> list[Texts]:
    """The texts of the rows as training read them; an error where its file is gone or changed."""
    task, split = rows.task, "test" if on == "test" else "validation"
    entry = trial.recipe.tasks[task.name]
    file = entry.files().get(split, "")
    for each in [file] if file else entry.train_files:
        check_file(each, trial)
    shared = shared_files(trial.recipe.tasks).get(task.name)
    if split == "validation" and trial.recipe.training.folds:
        part = read_split(entry, task, entry.files()["train"], "train", shared)
        return [part.good[place].texts for place in rows.places]
    if split in entry.files():
        part = read_split(entry, task, file, split, shared)
    else:  # validation was split off the training rows
        part = read_task(entry, task, (split,), shared)[1][split]
    return [part.rows[place].texts for place in rows.places]


def check_file(file: str, trial: TrialFiles) -> None:
    """Refuse a file of which training has read nothing: a stranger's record may name any."""
    if file.startswith(HUB):
        raise RunError(f"{file} is on the hub, which a report does not contact")
    if not (digest := trial.record.meta_info.data_sha256.get(file)):
        raise RunError(f"no digest of {file} is recorded")
    folder, place = data_folder(trial.recipe), Path(file).resolve()
    if not place.is_relative_to(folder):
        raise RunError(f"{file} is outside the folder of the training data, {folder}")
    if not place.is_file():
        raise RunError(f"{file} no longer exists")
    if file_digest(file) != digest:
        raise RunError(f"{file} has changed since the training")


def data_folder(recipe: Recipe) -> Path:
    """The folder that has the training and validation files of all tasks."""
    files = (f for e in recipe.tasks.values() for f in (*e.train_files, e.validation) if f)
    folders = [Path(file).resolve().parent for file in files if not file.startswith(HUB)]
    return Path(os.path.commonpath(folders))


class Comparison:
    """The answers of several candidates to the same rows. Matrices are candidates x rows."""

    def __init__(self, answers: Mapping[str, PredictionRows], texts: Sequence[Texts]) -> None:
        self.answers, self.texts = answers, texts
        self.rows = next(iter(answers.values()))  # ids, labels and targets are those of all
        self.task, self.targets = self.rows.task, self.rows.targets
        self.losses = np.array([rows.numbers("loss") for rows in answers.values()])
        distance = self.task.answer.distances
        self.errors = np.array([distance(self.targets, rows.values) for rows in answers.values()])
        low, high = self.task.answer.span(self.task, self.targets)
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
        texts, answer = self.texts[row] if self.texts else (), self.task.answer
        labels = [answer.read(own[row], self.task)[0] for own in columns]
        shown = [answer.show(self.task, label, texts) for label in labels]
        is_right = [not is_wrong for is_wrong in self.wrong[:, row]]
        return Example(
            id=self.rows.columns["id"][row],
            texts=texts,
            label=shown[0],
            loss=float(self.losses[:, row].mean()),
            answers=tuple(zip(self.answers, shown[1:], is_right, strict=True)),
            only=only,
        )

    def tables(self) -> Iterator[Table]:
        """By text length in quarters of the rows, and by class or in equal parts of the range."""
        if self.texts:
            words = np.array([sum(len(text.split()) for text in row) for row in self.texts])
            # Rows of equal length stay together, so quarters may be uneven or fewer than four.
            bounds = np.unique(np.quantile(words, (0.25, 0.5, 0.75), method="inverted_cdf"))
            places = np.searchsorted(bounds, words)
            quarters = [words[places == n] for n in np.unique(places)]
            ends = [dict.fromkeys((own.min(), own.max())) for own in quarters]
            spans = [" to ".join(map(str, own)) for own in ends]
            yield self.table("length", "words", places, spans)
        answer, task = self.task.answer, self.task
        own = {n: answer.by_label(task, self.targets, a.values) for n, a in self.answers.items()}
        if scores := next(iter(own.values())):
            yield self.f1_table({name: own[name] for name in own}, list(scores))
            return
        if answer.has_labels:
            places, names = self.targets.astype(int), task.labels
        else:
            edges = np.linspace(*self.task.answer.span(self.task, self.targets), RANGE_PARTS + 1)
            places = np.searchsorted(edges[1:-1], self.targets, side="right")
            names = tuple(f"{low:g} to {high:g}" for low, high in pairwise(edges))
        yield self.table("label", "label", places, names)

    def f1_table(self, scores: Mapping[str, ByLabel], names: Sequence[str]) -> Table:
        """A row for each label of which a row or a text may have several."""
        rows = []
        for name in names:
            count = next(iter(scores.values()))[name][0]
            cells = (number_cell(own[name][1], "{:.3f}") for own in scores.values())
            rows.append((Cell(name or "entity"), number_cell(count, "{:,}"), *cells))
        task, columns = self.task.name, ("label", "true", *self.answers)
        note = "F1 of each label, and how often it is true."
        return Table(f"{task}-by-label", f"{task} by label", columns, tuple(rows), note)

    def table(self, by: str, column: str, places: NDArray[np.int64], names: Sequence[str]) -> Table:
        """A row for each name: rows that have its place, and what each candidate makes of them."""
        values, note = 1 - self.errors, "Fraction of correct answers."
        if not self.task.answer.has_labels:
            values = self.errors
            note = "Mean distance between prediction and label; smaller is better."
        rows = []
        for mask, name in ((places == n, name) for n, name in enumerate(names)):
            if mask.any():
                means = values[:, mask].mean(axis=1).tolist()
                count = number_cell(int(mask.sum()), "{:,}")
                rows.append((Cell(name), count, *(number_cell(mean, "{:.3f}") for mean in means)))
        task, columns = self.task.name, (column, "rows", *self.answers)
        return Table(f"{task}-by-{by}", f"{task} by {by}", columns, tuple(rows), note)
