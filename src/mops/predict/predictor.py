"""The predictor: rows in, answers out, in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch

from mops.data.examples import Row
from mops.data.tokens import TokenTable, tokenise
from mops.errors import UsageError, nearest
from mops.predict.bundle import Bundle, load_bundle
from mops.predict.inference import WINDOW, Predictions, compute_outputs, decide

Texts = Sequence[str | tuple[str, ...]]  # of one task: a text a row, or a pair a row


class Predictor:
    """A loaded bundle that answers."""

    def __init__(self, bundle: Bundle, device: str | torch.device = "cpu") -> None:
        self.bundle = bundle
        self.device = device
        bundle.network.to(device)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.bundle.layout.tasks)

    def predict(self, task: str, texts: Texts) -> list[str | float]:
        """The answers of one task: labels, or values of a similarity."""
        answers = self.predict_tasks({task: texts})[task]
        if answers.task.is_similarity:
            return [float(value) for value in answers.values]
        return list(answers.as_strings())

    def predict_tasks(self, asked: Mapping[str, Texts]) -> dict[str, Predictions]:
        """The answers of each task for its own texts, all in one pass.

        What the tasks share is computed once: a text that several of them ask, alone or in a pair
        that is read apart, passes the shared layers once.
        """
        tables = self.tokenised({task: self.rows_of(task, texts) for task, texts in asked.items()})
        outputs = compute_outputs(self.bundle.network, tables, device=self.device)
        return {task: decide(self.bundle.layout.tasks[task], outputs[task]) for task in asked}

    def stream(
        self, asked: Mapping[tuple[str, ...], Iterator[Row]]
    ) -> Iterator[tuple[list[list[Row]], dict[str, Predictions]]]:
        """Predictions for any number of rows in constant memory, window by window.

        Each group of tasks has its own rows; the windows come in the order of the groups.
        """
        while any(windows := [list(islice(rows, WINDOW)) for rows in asked.values()]):
            texts = [[row.texts for row in window] for window in windows]
            groups = zip(asked, texts, strict=True)
            yield windows, self.predict_tasks({task: of for tasks, of in groups for task in tasks})

    def rows_of(self, task: str, texts: Texts) -> list[tuple[str, ...]]:
        """The texts as rows; refuses what the task cannot read."""
        known = self.bundle.layout.tasks
        if task not in known:
            raise UsageError(
                f"the model has no task {task!r}; it has {', '.join(known)}.{nearest(task, known)}"
            )
        if isinstance(texts, str):
            raise UsageError("texts are a list: write [text], not the text alone")
        rows = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        wanted = len(known[task].text)
        wrong = next((len(row) for row in rows if len(row) != wanted), None)
        if wrong is not None:
            raise UsageError(f"task {task!r} reads {wanted} text(s) a row, {wrong} were given")
        return rows

    def tokenised(self, asked: Mapping[str, list[tuple[str, ...]]]) -> dict[str, TokenTable]:
        """A table for each task; tasks that ask the same rows have one table."""
        reading, tokenizer = self.bundle.layout.reading, self.bundle.tokenizer
        tables: dict[str, TokenTable] = {}
        for task, rows in asked.items():
            same = [table for other, table in tables.items() if asked[other] == rows]
            tables[task] = same[0] if same else tokenise(tokenizer, rows, reading)
        return tables


def load(folder: str | Path, device: str = "cpu") -> Predictor:
    """A trained model from its bundle folder."""
    return Predictor(load_bundle(folder), device)
