"""The predictor: rows in, answers out, in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch

from mops.data.rows import Row
from mops.data.tokens import tokenise
from mops.errors import UsageError, nearest
from mops.predict.answers import Answers, compute_outputs, decide
from mops.predict.bundle import Bundle, load_bundle

WINDOW = 8192  # rows that are in memory at a time


class Predictor:
    """A loaded bundle that answers."""

    def __init__(self, bundle: Bundle, device: str | torch.device = "cpu") -> None:
        self.bundle = bundle
        self.device = device
        bundle.network.to(device)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.bundle.layout.tasks)

    def predict(self, task: str, texts: Sequence[str | tuple[str, str]]) -> list[str | float]:
        """The answers of one task: labels, or values of a similarity."""
        if isinstance(texts, str):
            raise UsageError("texts are a list: write [text], not the text alone")
        rows = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        answers = self.answers((task,), rows)[task]
        if answers.task.is_similarity:
            return [float(value) for value in answers.predictions]
        return list(answers.words())

    def answers(
        self, tasks: Sequence[str], texts: Sequence[tuple[str, ...]]
    ) -> Mapping[str, Answers]:
        """The answers of tasks that read the same texts; shared layers are computed once."""
        known = self.bundle.layout.tasks
        for name in tasks:
            if name not in known:
                raise UsageError(
                    f"the model has no task {name!r}; it has {', '.join(known)}."
                    f"{nearest(name, known)}"
                )
            wanted = len(known[name].text)
            wrong = next((len(row) for row in texts if len(row) != wanted), None)
            if wrong is not None:
                raise UsageError(f"task {name!r} reads {wanted} text(s) a row, {wrong} were given")
        table = tokenise(self.bundle.tokenizer, texts, self.bundle.layout.reading)
        outputs = compute_outputs(self.bundle.network, table, tasks, self.device)
        return {name: decide(known[name], outputs[name]) for name in tasks}

    def stream(
        self, tasks: Sequence[str], rows: Iterator[Row]
    ) -> Iterator[tuple[list[Row], Mapping[str, Answers]]]:
        """Answers for any number of rows in constant memory, window by window."""
        while window := list(islice(rows, WINDOW)):
            yield window, self.answers(tasks, [row.texts for row in window])


def load(folder: str | Path, device: str = "cpu") -> Predictor:
    """A trained model from its bundle folder."""
    return Predictor(load_bundle(folder), device)
