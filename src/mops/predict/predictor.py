"""The predictor: texts in, predictions out, in the order of the texts."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch

from mops.data.examples import Row
from mops.data.tokens import TokenTable, tokenise
from mops.errors import UsageError, nearest
from mops.predict.bundle import Bundle, load_bundle
from mops.predict.inference import WINDOW, Predictions, compute_outputs, decide

Texts = Sequence[str | tuple[str, ...]]  # of one task: a text or a pair for each row


class Predictor:
    """A loaded bundle on a device."""

    def __init__(self, bundle: Bundle, device: str | torch.device = "cpu") -> None:
        self.bundle = bundle
        self.device = device
        bundle.network.to(device)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.bundle.layout.tasks)

    def predict(self, task: str, texts: Texts) -> list[str | float]:
        """The predictions of one task: labels, or values of a similarity."""
        predictions = self.predict_tasks({task: texts})[task]
        if predictions.task.is_similarity:
            return [float(value) for value in predictions.values]
        return list(predictions.as_strings())

    def predict_tasks(self, texts: Mapping[str, Texts]) -> dict[str, Predictions]:
        """The predictions of each task for its own texts, in one pass.

        Shared layers compute a text once, even if several tasks need it.
        """
        rows = {task: self.check_texts(task, own) for task, own in texts.items()}
        layout, tables = self.bundle.layout, dict[str, TokenTable]()
        for task, own in rows.items():  # tasks with equal rows share one table
            same = [table for other, table in tables.items() if rows[other] == own]
            tables[task] = same[0] if same else tokenise(self.bundle.tokenizer, own, layout.reading)
        outputs = compute_outputs(self.bundle.network, tables, device=self.device)
        return {task: decide(layout.tasks[task], outputs[task]) for task in texts}

    def stream(
        self, rows: Mapping[tuple[str, ...], Iterator[Row]]
    ) -> Iterator[tuple[list[list[Row]], dict[str, Predictions]]]:
        """Predictions for any number of rows in constant memory, window by window.

        Each group of tasks has its own rows; the windows come in the order of the groups.
        """
        while any(windows := [list(islice(group, WINDOW)) for group in rows.values()]):
            texts = {
                task: [row.texts for row in window]
                for tasks, window in zip(rows, windows, strict=True)
                for task in tasks
            }
            yield windows, self.predict_tasks(texts)

    def check_texts(self, task: str, texts: Texts) -> list[tuple[str, ...]]:
        """The texts as tuples; refuses texts that the task cannot read."""
        known = self.bundle.layout.tasks
        if task not in known:
            raise UsageError(
                f"the model has no task {task!r}; it has {', '.join(known)}.{nearest(task, known)}"
            )
        if isinstance(texts, str):
            raise UsageError("texts must be a list: write [text] instead of text")
        rows = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        count = len(known[task].text)
        wrong = next((len(row) for row in rows if len(row) != count), None)
        if wrong is not None:
            raise UsageError(f"task {task!r} takes {count} text(s) per row, but got {wrong}")
        return rows


def load(folder: str | Path, device: str = "cpu") -> Predictor:
    """Load a trained model from its bundle folder."""
    return Predictor(load_bundle(folder), device)
