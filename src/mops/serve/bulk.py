"""Whole files: rows of tables in, written lines out, on this machine or through Ray Data.

Both engines read the same windows of rows and answer them with the same functions. With Ray, a
task for each file reads the rows, and a pool of actors, each with a copy of the model, answers them
in blocks. If a process dies, its block is answered again. Answers come in the order of the rows.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from mops.data.dataset import stream_rows
from mops.data.splits import Row
from mops.data.tables import DataTable
from mops.errors import MopsError, RunError
from mops.predict.bundle import Predictor, take_windows
from mops.predict.inference import Predictions
from mops.tables import without_formula
from mops.tasks import Task
from mops.training.machine import give_back_memory

BLOCK_BYTES = 2**18  # of rows that travel together: about a thousand pairs, seconds of work
Windows = Sequence[Sequence[Row]]  # the same records, as each group of tasks reads them


class Form(NamedTuple):
    """How answers are written."""

    ending: str
    header: Callable[[Sequence[str]], str]  # of these tasks
    lines: Callable[[Sequence[str], Mapping[str, Predictions]], str]  # ids, predictions


class Answers(NamedTuple):
    """The answers to some rows of a table, in their order."""

    text: str  # as it is written
    rows: int
    problems: list[str]  # `file:line reason` of rows that were answered anyway


@dataclass(frozen=True)
class Input:
    """A table, the tasks that answer its rows, and how the answers are written."""

    table: DataTable
    tasks: tuple[Task, ...]
    form: Form

    @property
    def header(self) -> str:
        return self.form.header([task.name for task in self.tasks])

    @cached_property
    def groups(self) -> dict[tuple[str, ...], Task]:
        """The names of tasks with the same columns, which share rows; and one of these tasks."""
        columns = dict.fromkeys(task.text for task in self.tasks)
        same = [[task for task in self.tasks if task.text == text] for text in columns]
        return {tuple(task.name for task in tasks): tasks[0] for tasks in same}

    def rows(self) -> dict[tuple[str, ...], Iterator[Row]]:
        return {
            names: stream_rows(self.table, task, needs_label=False)
            for names, task in self.groups.items()
        }

    def answers(self, windows: Windows, predictions: Mapping[str, Predictions]) -> Answers:
        """The predictions as they are written."""
        bad = {row.where: row.problem for window in windows for row in window if row.problem}
        ordered = {task.name: predictions[task.name] for task in self.tasks}
        text = self.form.lines([row.id for row in windows[0]], ordered)
        problems = [f"{where} {problem}" for where, problem in bad.items()]
        return Answers(text, len(windows[0]), problems)


def csv_lines(ids: Sequence[str], predictions: Mapping[str, Predictions]) -> str:
    columns = ids, *(answers.as_strings() for answers in predictions.values())
    return to_lines([map(without_formula, column) for column in columns])


def raw_lines(ids: Sequence[str], predictions: Mapping[str, Predictions]) -> str:
    return to_lines([ids, *(answers.as_strings() for answers in predictions.values())])


def to_lines(columns: Sequence[Iterable[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(zip(*columns, strict=True))
    return out.getvalue()


def json_lines(ids: Sequence[str], predictions: Mapping[str, Predictions]) -> str:
    columns = (answers.as_data() for answers in predictions.values())
    rows = zip(ids, zip(*columns, strict=True), strict=True)
    lines = ({"id": row_id} | dict(zip(predictions, row, strict=True)) for row_id, row in rows)
    return "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)


def csv_header(tasks: Sequence[str]) -> str:
    return f"id,{'prediction' if len(tasks) == 1 else ','.join(tasks)}\n"


CSV, RAW_CSV = Form(".csv", csv_header, csv_lines), Form(".csv", csv_header, raw_lines)
JSON_LINES = Form(".jsonl", lambda tasks: "", json_lines)


# ------------------------------------------------------------------ on this machine


def answer_here(predictor: Predictor, inputs: Sequence[Input]) -> Iterator[tuple[int, Answers]]:
    """(number of the source, answers), window by window, in constant memory."""
    for number, source in enumerate(inputs):
        for windows, predictions in predictor.stream(source.rows()):
            yield number, source.answers(windows, predictions)
            give_back_memory()  # packs differ in size, which fragments memory over a long file


# ------------------------------------------------------------------ through Ray Data


def answer_on_ray(
    ray: Any, load: Callable[[], Predictor], inputs: Sequence[Input], jobs: int
) -> Iterator[tuple[int, Answers]]:
    """The same through Ray Data, with `jobs` copies of the model that have a core each.

    Reading takes no core of its own: a reader waits most of the time.
    """
    data, count = importlib.import_module("ray.data"), len(inputs)
    files = data.from_items([{"file": n} for n in range(count)], override_num_blocks=count)
    files.context.execution_options.preserve_order = True
    files.context.target_max_block_size = BLOCK_BYTES
    files.context.enable_progress_bars = False
    files.context.print_on_execution_start = False
    readers, actors = data.TaskPoolStrategy(min(jobs, count)), data.ActorPoolStrategy(size=jobs)
    answered = files.map_batches(
        read_blocks, fn_args=[inputs], batch_size=None, num_cpus=0, compute=readers
    ).map_batches(
        Answerer, fn_constructor_args=[load, inputs], batch_size=None, batch_format="pyarrow",
        num_cpus=1, compute=actors,
    )  # fmt: skip
    try:
        for block in answered.iter_batches(batch_size=None, batch_format="pyarrow"):
            for row in block.to_pylist():
                yield row["file"], Answers(*json.loads(row["answers"]))
    except ray.exceptions.RayError as error:
        raise original_error(error) from error


def original_error(error: BaseException) -> MopsError:
    """The error of mops that ended a worker, or what Ray says."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, MopsError):
        found = getattr(found, "cause", None) or found.__cause__
    return found or RunError(f"Ray stopped: {str(error).strip().splitlines()[-1]}")


def read_blocks(batch: Mapping[str, Any], inputs: Sequence[Input]) -> Iterator[Any]:
    """Runs in a task: the rows of a file as Arrow tables, a record per line."""
    arrow = importlib.import_module("pyarrow")
    for number in map(int, batch["file"]):
        for windows in take_windows(inputs[number].rows().values()):
            records = [
                json.dumps([(row.id, row.texts, row.where, row.problem) for row in rows])
                for rows in zip(*windows, strict=True)
            ]
            yield arrow.table({"file": [number] * len(records), "record": records})


class Answerer:
    """Runs in an actor: a copy of the model that answers blocks, on one thread."""

    def __init__(self, load: Callable[[], Predictor], inputs: Sequence[Input]) -> None:
        torch.set_num_threads(1)
        self.predictor, self.inputs = load(), inputs

    def __call__(self, block: Any) -> Any:
        numbers, answers = list[int](), list[str]()
        for number, lines in groupby(block.to_pylist(), itemgetter("file")):
            source = self.inputs[number]
            windows = to_windows(line["record"] for line in lines)
            predictions = self.predictor.predict_windows(tuple(source.groups), windows)
            numbers.append(number)
            answers.append(json.dumps(source.answers(windows, predictions)))
            give_back_memory()
        return importlib.import_module("pyarrow").table({"file": numbers, "answers": answers})


def to_windows(records: Iterable[str]) -> Windows:
    groups = zip(*map(json.loads, records), strict=True)
    return [
        [Row(row_id, tuple(texts), None, where, problem) for row_id, texts, where, problem in group]
        for group in groups
    ]
