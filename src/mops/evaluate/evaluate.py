"""Evaluation: predictions of rows become scores on the parts of a split, files and warnings.

    rows = read_predictions(run / "predictions" / "sentiment-report.csv", task)
    rows.targets, rows.values, rows.columns["id"], rows.numbers("loss")

No torch.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mops.data.dataset import SPLITS, Dataset, RowsRead, encode_targets
from mops.data.schedule import generator
from mops.data.splits import Row
from mops.errors import RunError
from mops.evaluate.metrics import Values, overall_scores, score, standard_error
from mops.files import atomic_write, file_digest
from mops.kinds.metrics import Answers, as_bytes, known
from mops.record import Metrics, RunScores
from mops.tables import Cell, Table, number_cell, with_formula, without_formula
from mops.tasks import Task

if TYPE_CHECKING:
    from mops.predict.inference import Predictions

Strings = NDArray[np.object_]
JUDGING = ("report", "test")  # the files whose rows judge: validation rows cross-fitted, test rows
PARTS = ("report", "validation", "test", "train")
TRAIN_SAMPLE = 500  # training rows of a task that are scored


class Answerer(Protocol):
    """Who answers rows: a predictor, or something that knows them already."""

    def predict_tasks(
        self, asked: Mapping[str, Sequence[tuple[str, ...]]], /
    ) -> Mapping[str, Predictions]: ...


def answer_dataset(
    predictor: Answerer, dataset: Dataset, seed: int
) -> Iterator[tuple[str, str, Sequence[Row], Predictions]]:
    """(task, split, rows, answers) for every split; of the training rows a fixed sample.

    The tasks of a split are answered in one pass.
    Rows that cannot be scored are answered too, so that a file of predictions has every row.
    """
    for split in SPLITS:
        rows = {
            name: sample(splits[split], name, seed) if split == "train" else splits[split].rows
            for name, splits in dataset.splits.items()
            if split in splits
        }
        texts = {name: [row.texts for row in asked] for name, asked in rows.items()}
        answers = predictor.predict_tasks(texts)
        for name, asked in rows.items():
            yield name, split, asked, answers[name]


def sample(read: RowsRead, name: str, seed: int) -> tuple[Row, ...]:
    rows = read.good
    chosen = generator(seed, "train-sample", name).permutation(len(rows))[:TRAIN_SAMPLE]
    return tuple(rows[i] for i in np.sort(chosen))


def judge(answers: Predictions, rows: Sequence[Row], name: str) -> dict[str, Any]:
    """The scores of one task on one split; empty if no row has a label."""
    task, targets = answers.task, encode_targets(answers.task, rows)
    is_known = known(targets)
    if not is_known.any():
        return {}
    pair = targets[is_known], answers.values[is_known]
    return {name: {**score(task, *pair), "stderr": standard_error(task, *pair)}}


def overall_of(
    tasks: Mapping[str, Task], scores: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Both overall scores over the tasks that were scored."""
    main = {name: scores[name][task.score_name] for name, task in tasks.items() if name in scores}
    return overall_scores(tasks, main) if main else {}


def score_table(
    tasks: Mapping[str, Task],
    scores: Mapping[str, Mapping[str, Metrics]],
    untrained: Sequence[str] = (),
) -> RunScores:
    """Task scores and both overall scores on each part; untrained tasks do not count."""
    counted = {name: task for name, task in tasks.items() if name not in untrained}
    overall = {}
    for part in PARTS:  # a mean over some of the tasks would look like the mean over all
        known = {name: scores[name][part] for name in counted if part in scores[name]}
        overall[part] = overall_of(counted, known) if len(known) == len(counted) else {}
    return RunScores(
        main={name: task.score_name for name, task in tasks.items()},
        overall=overall,
        tasks=dict(scores),
        untrained=tuple(untrained),
    )


def run_table(title: str, scores: RunScores) -> Table:
    """A row for each task and overall score, a column for each split."""
    splits = [name for name in PARTS if any(name in split for split in scores.tasks.values())]
    rows = []
    for name, by_split in scores.tasks.items():
        main = scores.main[name]
        values = [by_split[split].get(main) if split in by_split else None for split in splits]
        cells = [number_cell(value, "{:.3f}") for value in values]
        if "report" in by_split:
            text = f"{by_split['report'][main]:.3f} ± {by_split['report']['stderr']:.3f}"
            cells[splits.index("report")] = Cell(text, by_split["report"][main])
        rows.append((Cell(f"{name} ({main})"), *cells))
    for name in ("overall", "overall_normalised"):
        values = [scores.overall[split].get(name) for split in splits]
        rows.append((Cell(name), *(number_cell(value, "{:.3f}") for value in values)))
    note = (
        "report: validation rows, each judged by the state that the other half of them chose, "
        "± one standard error; train: a fixed sample"
    )
    return Table("scores", title, ("score", *splits), tuple(rows), note)


def suspicious(task: Task, targets: Answers, predictions: Answers) -> Iterator[str]:
    """Signs that a task's predictions on validation rows mean nothing, one sentence each."""
    if len(predictions) >= 2:
        for sign in task.answer.suspicious(task, targets, predictions):
            yield f"{task.name}: {sign}"


def write_predictions(path: Path, rows: Sequence[Row], predictions: Predictions) -> None:
    """predictions/TASK-SPLIT.csv: every input row in order; label and loss where it was scored."""
    write = predictions.task.answer.write
    labels = ["" if row.label is None or row.problem else write(row.label) for row in rows]
    columns: dict[str, Sequence[Any]] = {
        "id": [row.id for row in rows],
        "prediction": predictions.as_strings(),
    }
    if any(label != "" for label in labels):
        columns["label"] = labels
    if confidences := predictions.confidences():
        columns["confidence"] = [f"{value:.4f}" for value in confidences]
    if "label" in columns:
        losses = predictions.losses(encode_targets(predictions.task, rows))
        columns["loss"] = ["" if np.isnan(loss) else f"{loss:.4g}" for loss in losses]
    write_columns(path, columns)


def write_columns(path: Path, columns: Mapping[str, Sequence[Any] | Strings]) -> None:
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        safe = (map(without_formula, column) for column in columns.values())
        writer.writerows(zip(*safe, strict=True))


NUMERIC = ("confidence", "loss")  # columns of predictions


def digest_predictions(run: Path) -> dict[str, str]:
    """Each file of predictions in the folder of a run -> its SHA-256."""
    files = sorted((run / "predictions").glob("*.csv"))
    return {path.name: file_digest(path) for path in files}


@dataclass(frozen=True)
class PredictionRows:
    """The labelled rows of a file of predictions, in the order of the file."""

    task: Task
    columns: Mapping[str, Strings]  # as written: id, prediction, label, confidence, loss
    places: NDArray[np.int64]  # row numbers in the file, from 0
    values: Answers  # the predictions: class numbers or values
    targets: Answers

    def numbers(self, name: str) -> Values:
        """A numeric column, NaN where a cell is empty."""
        return np.array([float(text or "nan") for text in self.columns[name]], np.float64)

    def among(self, chosen: NDArray[np.bool_]) -> PredictionRows:
        """Those of the rows that are chosen; `chosen` has every row of the file."""
        kept = chosen[self.places]
        return PredictionRows(
            task=self.task,
            columns={name: column[kept] for name, column in self.columns.items()},
            places=self.places[kept],
            values=self.values[kept],
            targets=self.targets[kept],
        )

    @cached_property
    def probabilities(self) -> Values:
        """Of the true classes; the loss of a class is written as -log of it."""
        return np.exp(-self.numbers("loss"))

    @cached_property
    def digest(self) -> str:
        """Identifies the rows and their targets, whatever was predicted."""
        ids = "\n".join(self.columns["id"]).encode()
        return hashlib.sha256(ids + as_bytes(self.targets)).hexdigest()


def read_predictions(path: Path, task: Task) -> PredictionRows:
    """The rows of a file that have a label."""
    try:
        columns = read_columns(path)
        scored = columns["label"] != ""
        columns = {name: column[scored] for name, column in columns.items()}
        values, targets = (parse(task, columns[name]) for name in ("prediction", "label"))
        rows = PredictionRows(task, columns, np.flatnonzero(scored), values, targets)
        for name in (name for name in NUMERIC if name in columns):
            rows.numbers(name)
        return rows
    except (OSError, ValueError, KeyError, IndexError) as cause:
        raise RunError(f"{path} cannot be read as predictions of {task.name}: {cause!r}") from cause


def parse(task: Task, cells: Sequence[str] | Strings) -> Answers:
    """Cells that were written by the task's kind."""
    labels = {cell: task.answer.read(cell, task) for cell in dict.fromkeys(cells)}
    if wrong := next((problem for _, problem in labels.values() if problem), ""):
        raise ValueError(wrong)
    return task.answer.encode(task, [labels[cell][0] for cell in cells])


def read_columns(path: Path) -> dict[str, Strings]:
    """The columns of a CSV file; without the csv module where nothing is quoted: 5 x as fast."""
    text = path.read_text("utf-8")
    if '"' in text:
        names, *rows = csv.reader(io.StringIO(text, newline=""))
        cells = [cell for row in rows for cell in row]
    else:
        first, _, rest = text.partition("\n")
        names = first.split(",")
        cells = rest.rstrip("\n").replace("\n", ",").split(",") if rest else []
    if len(cells) % len(names):
        raise ValueError(f"a row does not have the {len(names)} cells of the first line")
    if "'" in text:
        cells = [*map(with_formula, cells)]
    return {n: np.array(cells[i :: len(names)], np.object_) for i, n in enumerate(names)}
