"""`mops predict`"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

import mops
from mops.cli.eval import find_entries
from mops.cli.options import DATA, DEVICE, JSON, PATH
from mops.cli.screen import ERR, ProgressBar, print_warnings
from mops.data.compose import choose_tasks
from mops.data.dataset import SHOWN_ROWS, Row, first_problems, read_rows, stream_rows
from mops.data.tables import DataTable, open_table
from mops.errors import DataError, UsageError
from mops.files import atomic_write, write_text
from mops.tasks import Task

if TYPE_CHECKING:
    from mops.predict.inference import Predictions

# task -> the word of the CS224N course for it and the header of its file, spelt as in the course
COURSE_FILES = {
    "sentiment": ("sst", "Predicted_Sentiment"),
    "paraphrase": ("para", "Predicted_Is_Paraphrase"),
    "similarity": ("sts", "Predicted_Similiary"),
}
COURSE_SPLITS = {"validation": "dev", "test": "test"}


@click.command()
@click.argument("model", type=PATH)
@click.argument("source", metavar="[INPUT]", required=False)
@click.option("--task", metavar="NAME", help="Only this task; default: all that fit the columns.")
@click.option("--text", metavar="COLUMN", multiple=True,
              help="Text column(s) of the input; default: the task's. Repeatable.")  # fmt: skip
@click.option("--out", type=PATH, help="Output file; default: stdout.")
@click.option("--cs224n", type=PATH, metavar="DIR",
              help="Write the CS224N submission files for dev and test into DIR.")  # fmt: skip
@DATA
@DEVICE
@JSON
def command(
    model: Path,
    source: str | None,
    out: Path | None,
    cs224n: Path | None,
    data: str | None,
    device: str | None,
    as_json: bool,
    task: str | None,
    text: tuple[str, ...],
) -> None:
    """Predict every row of a file with a trained model, in the order of the rows.

    INPUT is a csv, tsv, jsonl or parquet file, or - for standard input. The output is csv (id and
    one column per task), or with --json one object per line with the probability of each class.

    \b
    Example:
      mops predict runs/first/model reviews.csv --task sentiment --out predictions.csv
      printf 'sentence\\nA lovely film.\\n' | mops predict runs/first/model -
    """
    from mops.training.machine import choose_device, keep_freed_memory

    keep_freed_memory()
    predictor = mops.load(model, choose_device(device or "auto"))
    if cs224n is not None:
        return write_submission(predictor, cs224n, data)
    if source is None:
        raise UsageError("no input; give a file, or - for standard input")
    table = open_table(source, text)
    tasks = choose_tasks(predictor.bundle.layout.tasks, [task] if task else None)
    fitting = fitting_tasks(tasks.values(), table, text)
    if out is None:
        return write_predictions(predictor, fitting, table, sys.stdout, as_json)
    with atomic_write(out) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        return write_predictions(predictor, fitting, table, file, as_json)


def fitting_tasks(tasks: Iterable[Task], table: DataTable, text: tuple[str, ...]) -> list[Task]:
    """The tasks whose columns the input has; `text` names other columns."""
    if text:
        tasks = [replace(task, text=text) for task in tasks if len(task.text) == len(text)]
    fitting = [task for task in tasks if set(task.text) <= set(table.columns)]
    if not fitting:
        wanted = "; ".join(f"{task.name} reads {' and '.join(task.text)}" for task in tasks)
        raise DataError(
            f"{table.source} has the columns {', '.join(table.columns)}, and no task reads them "
            f"({wanted or 'no task reads so many columns'}); name the text columns with --text"
        )
    return fitting


def write_predictions(
    predictor: mops.Predictor, tasks: Sequence[Task], table: DataTable, file: TextIO, as_json: bool
) -> None:
    """Predict all tasks in one pass, window by window; tasks with the same columns share rows."""
    from mops.training.machine import give_back_memory

    streams = {}
    for text in dict.fromkeys(task.text for task in tasks):
        group = [task for task in tasks if task.text == text]
        rows = stream_rows(table, group[0], needs_label=False)
        streams[tuple(task.name for task in group)] = rows
    names = [task.name for task in tasks]
    writer = csv.writer(file, lineterminator="\n")
    if not as_json:
        writer.writerow(["id", *(["prediction"] if len(names) == 1 else names)])
    problems = 0
    shown: list[Row] = []
    with ProgressBar("predicting", table.count()) as bar:
        for windows, predictions in predictor.stream(streams):
            bad = {row.where: row for window in windows for row in window if row.problem}
            problems, shown = problems + len(bad), [*shown, *bad.values()][: SHOWN_ROWS + 1]
            ids = [row.id for row in windows[0]]
            if as_json:
                file.writelines(json_lines(ids, predictions))
            else:
                columns = (predictions[name].as_strings() for name in names)
                writer.writerows(zip(ids, *columns, strict=True))
            bar.show(advance=len(ids))
            give_back_memory()  # packs differ in size, which fragments memory over a long file
    if problems:
        warning = f"{problems} rows have a problem and were predicted anyway"
        print_warnings([f"{warning}: {first_problems(shown)}"])


def json_lines(ids: Sequence[str], predictions: Mapping[str, Predictions]) -> Iterator[str]:
    texts = {name: answers.as_strings() for name, answers in predictions.items()}
    for n, row_id in enumerate(ids):
        line: dict[str, Any] = {"id": row_id}
        for name, answers in predictions.items():
            text, labels = texts[name][n], answers.task.labels
            line[name] = {"prediction": text if labels else float(text)}
            if labels:
                shares = zip(labels, answers.probabilities[n].tolist(), strict=True)
                line[name]["shares"] = {label: round(share, 6) for label, share in shares}
        yield json.dumps(line, ensure_ascii=False) + "\n"


def write_submission(predictor: mops.Predictor, folder: Path, data: str | None) -> None:
    """The submission files of the CS224N default project: dev and test of three tasks."""
    names = [name for name in COURSE_FILES if name in predictor.tasks]
    if not names:
        raise UsageError(
            f"--cs224n needs a model with one of the tasks {', '.join(COURSE_FILES)}; "
            f"this model has {', '.join(predictor.tasks)}"
        )
    for name, entry in find_entries(predictor.bundle.entries, data, names).items():
        task, (word, header) = predictor.bundle.layout.tasks[name], COURSE_FILES[name]
        for split, source in entry.files().items():
            if split not in COURSE_SPLITS:
                continue
            rows = read_rows(source, task, needs_label=False, on_bad_row="skip").rows
            with ERR.status(f"predicting {source}"):
                answers = predictor.predict_tasks({name: [row.texts for row in rows]})[name]
            pairs = zip(rows, answers.as_strings(), strict=True)
            lines = [f"id \t {header} \n", *(f"{row.id} , {label} \n" for row, label in pairs)]
            path = folder / f"{word}-{COURSE_SPLITS[split]}-output.csv"
            write_text(path, "".join(lines))
            click.echo(path)
