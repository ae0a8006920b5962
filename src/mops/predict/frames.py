"""Predictions for a table in memory, as a table of the same library."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mops.data.compose import choose_tasks
from mops.data.dataset import SHOWN_ROWS, first_problems, stream_rows
from mops.data.frames import Frame, frame_columns, like_frame, read_frame
from mops.data.tables import DataTable, row_table
from mops.errors import DataError
from mops.predict.inference import DIGITS, Predictions
from mops.tasks import Task


def fitting_tasks(tasks: Iterable[Task], table: DataTable, text: Sequence[str]) -> list[Task]:
    """The tasks whose columns the input has; `text` names other columns."""
    if text:
        own = tuple(text)
        tasks = [replace(task, text=own) for task in tasks if len(task.text) == len(own)]
    fitting = [task for task in tasks if set(task.text) <= set(table.columns)]
    if not fitting:
        wanted = "; ".join(f"{task.name} reads {' and '.join(task.text)}" for task in tasks)
        raise DataError(
            f"{table.source} has the columns {', '.join(table.columns)}, and no task reads them "
            f"({wanted or 'no task reads so many columns'}); name the text columns as `text`"
        )
    return fitting


def read_texts(
    tasks: Mapping[str, Task], frame: Frame, task: str | None, text: Sequence[str]
) -> dict[str, list[tuple[str, ...]]]:
    """The texts of each task that the columns fit; a warning names rows with a problem."""
    is_empty = hasattr(frame, "__len__") and len(frame) == 0
    table = row_table("table", [] if is_empty else read_frame(frame), frame_columns(frame))
    if not table.columns:  # an empty list
        return {}
    chosen = choose_tasks(tasks, [task] if task else None)
    texts, problems = {}, dict[str, str]()
    for own in fitting_tasks(chosen.values(), table, text):
        rows = list(stream_rows(table, own, needs_label=False))
        texts[own.name] = [row.texts for row in rows]
        problems |= {row.where: f"{row.where} {row.problem}" for row in rows if row.problem}
    if problems:
        shown = first_problems([*problems.values()][: SHOWN_ROWS + 1])
        warnings.warn(
            f"{len(problems)} rows have a problem and were predicted anyway: {shown}", stacklevel=4
        )
    return texts


def to_table(frame: Frame, predictions: Mapping[str, Predictions]) -> Any:
    """A column of answers for each task, then one with the probability of each of its labels."""
    columns: dict[str, Sequence[Any]] = {}
    for name, answers in predictions.items():
        columns[name] = answers.labels
        if answers.has_shares:
            shares = answers.probabilities.round(DIGITS).T.tolist()
            labels = (f"{name}.{label}" for label in answers.task.labels)
            columns |= dict(zip(labels, shares, strict=True))
    return like_frame(frame, columns)
