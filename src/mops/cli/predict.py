"""`mops predict`"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from mops.cli.options import DATA, DEVICE, JSON
from mops.errors import DataError, UsageError

if TYPE_CHECKING:
    from mops.data.examples import Row
    from mops.data.tables import Table
    from mops.predict.inference import Predictions
    from mops.predict.predictor import Predictor
    from mops.tasks import Task


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("source", metavar="[INPUT]", required=False)
@click.option("--task", metavar="NAME", help="Only this task; default: all that fit the columns.")
@click.option(
    "--text", metavar="COLUMN", multiple=True, help="Column(s) to read; default: the task's."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write here instead of to stdout.")
@click.option(
    "--cs224n", type=click.Path(path_type=Path), metavar="DIR",
    help="Write the course's submission files for dev and test into DIR.",
)  # fmt: skip
@DATA
@DEVICE
@JSON
def command(
    model: Path,
    source: str | None,
    task: str | None,
    text: tuple[str, ...],
    out: Path | None,
    cs224n: Path | None,
    data: str | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Answer every row of a file with a trained model, in the order of the rows.

    INPUT is a csv, tsv, jsonl or parquet file, or - for standard input. Every row is answered; the
    answers go to stdout as csv (id, one column per task), with --json as one object per line with
    the share of each class.

    \b
    Example:
      mops predict runs/first/model reviews.csv --task sentiment --out answers.csv
      printf 'sentence\\nA lovely film.\\n' | mops predict runs/first/model -
    """
    from mops.predict.predictor import load
    from mops.training.machine import choose_device, keep_freed_memory

    keep_freed_memory()
    predictor = load(model, choose_device(device or "auto"))
    if cs224n is not None:
        from mops.cli.submission import write_submission

        write_submission(predictor, cs224n, data)
        return
    if source is None:
        raise UsageError("no input is named; give a file, or - for standard input")
    from mops.data.tables import open_table

    table = open_table(source, text)
    tasks = fitting_tasks(predictor, table, task, text)
    with opened(out) as file:
        write_answers(predictor, tasks, table, file, as_json)


def fitting_tasks(
    predictor: Predictor, table: Table, name: str | None, text: tuple[str, ...]
) -> list[Task]:
    """The tasks whose columns the input has."""
    known = predictor.bundle.layout.tasks
    if name is not None and name not in known:
        raise UsageError(f"the model has no task {name!r}; it has {', '.join(known)}")
    asked = [known[name]] if name else list(known.values())
    if text:
        asked = [replace(task, text=text) for task in asked if len(task.text) == len(text)]
    fitting = [task for task in asked if set(task.text) <= set(table.columns)]
    if not fitting:
        wanted = "; ".join(f"{task.name} reads {' and '.join(task.text)}" for task in asked)
        raise DataError(
            f"{table.source} has the columns {', '.join(table.columns)}, and no task reads them "
            f"({wanted or 'no task reads so many columns'}); name the columns with --text"
        )
    return fitting


def write_answers(
    predictor: Predictor, tasks: Sequence[Task], table: Table, file: TextIO, as_json: bool
) -> None:
    """All tasks are answered in one pass, window by window."""
    from mops.cli.screen import ProgressBar, print_warnings
    from mops.data.examples import SHOWN_ROWS, first_problems, stream_rows
    from mops.training.machine import give_back_memory

    readers: dict[tuple[str, ...], list[Task]] = {}
    for task in tasks:
        readers.setdefault(task.text, []).append(task)
    asked = {
        tuple(task.name for task in group): stream_rows(table, group[0], needs_label=False)
        for group in readers.values()
    }
    write = json_lines if as_json else csv_lines(file, [task.name for task in tasks])
    troubled = 0
    shown: list[Row] = []
    with ProgressBar("predicting", table.count()) as bar:
        for windows, answers in predictor.stream(asked):
            found = {row.where: row for window in windows for row in window if row.problem}
            troubled, shown = troubled + len(found), [*shown, *found.values()][: SHOWN_ROWS + 1]
            file.writelines(write(windows[0], answers))
            bar.update(advance=len(windows[0]))
            give_back_memory()  # packs differ in size: a long file would leave ever more holes
    if troubled:
        said = "rows have a problem and were answered all the same"
        print_warnings([f"{troubled} {said}: {first_problems(shown)}"])


def csv_lines(file: TextIO, names: Sequence[str]) -> Any:
    """A writer of csv lines; the header is written at once."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", *(["prediction"] if len(names) == 1 else names)])

    def write(rows: Sequence[Row], answers: Mapping[str, Predictions]) -> Iterator[str]:
        columns = [answers[name].as_strings() for name in names]
        writer.writerows([row.id, *cells] for row, *cells in zip(rows, *columns, strict=True))
        return iter(())

    return write


def json_lines(rows: Sequence[Row], answers: Mapping[str, Predictions]) -> Iterator[str]:
    words = {name: of.as_strings() for name, of in answers.items()}
    for n, row in enumerate(rows):
        found: dict[str, Any] = {"id": row.id}
        for name, of in answers.items():
            if of.task.is_similarity:
                found[name] = {"prediction": float(words[name][n])}
            else:
                shares = zip(of.task.labels, of.probabilities[n], strict=True)
                found[name] = {
                    "prediction": words[name][n],
                    "shares": {label: round(float(share), 6) for label, share in shares},
                }
        yield json.dumps(found, ensure_ascii=False) + "\n"


@contextmanager
def opened(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears complete or not at all."""
    if out is None:
        yield sys.stdout
        return
    from mops.files import atomic_write

    with atomic_write(out) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        yield file
