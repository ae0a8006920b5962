"""Any number of labels at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from mops.kinds.classes import (
    canonical_label,
    json_items,
    label_problems,
    sorted_labels,
    unjudged_labels,
)
from mops.kinds.metrics import (
    Answers,
    Counts,
    Metric,
    Values,
    f1_of,
    macro,
    mean_of,
    micro_f1,
    of_counts,
)

if TYPE_CHECKING:
    from mops.tasks import Task

TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no")
Labels = tuple[str, ...]


class LabelSet:
    """Targets and predictions are rows of 0 and 1, one for each label of the task."""

    name, has_labels, has_thresholds, reads_words = "labels", True, True, False
    pipeline = "text-classification"
    limit = "every text or pair gets the labels that are above their thresholds, which may be none"

    def outputs(self, task: Task) -> int:
        return len(task.labels)

    def output_meaning(self, task: Task) -> str:
        return "a number for each label, given where it is > 0; its sigmoid is the probability"

    def first_output(self, task: Task) -> float | None:
        return None

    def problems(self, task: Task) -> Iterator[str]:
        yield from label_problems(task)

    def read_text(self, text: str) -> tuple[str, str]:
        return text, ""

    def mismatch(self, label: Any, texts: Sequence[str]) -> str:
        return ""

    def main_score(self, task: Task) -> str:
        return ""

    def read(self, text: str, task: Task) -> tuple[Labels, str]:
        """A JSON list, or labels with the task's separator between them."""
        words, wrong = json_items(text)
        if wrong or (words is None and text.startswith(("[", "{"))):
            return (), f"{task.label} {wrong or f'is {text!r}, which is no JSON list'}"
        words = text.split(task.separator) if words is None else words
        labels = tuple(dict.fromkeys(filter(None, map(canonical_label, words))))
        if unknown := [label for label in labels if task.labels and label not in task.labels]:
            known = ", ".join(task.labels)
            return (), f"{task.label} has {unknown[0]!r}, which is not one of {known}"
        return labels, ""

    def learn(self, task: Task, answers: Sequence[Any]) -> dict[str, Any]:
        """The labels that occur; several columns are labels themselves. A balanced weight makes
        the rows with a label count as much as those without.
        """
        counts = Counter(chain.from_iterable(answers))
        columns = task.label_columns if len(task.label_columns) > 1 else ()
        labels = task.labels or columns or sorted_labels(set(counts))
        weights = tuple(max(1, len(answers) - counts[n]) / max(1, counts[n]) for n in labels)
        return {"labels": labels, **({"class_weights": weights} if task.is_balanced else {})}

    def unlearnable(self, task: Task, answers: Sequence[Any]) -> str:
        columns = task.label_columns if len(task.label_columns) > 1 else ()
        for name in task.labels or columns:
            count = sum(name in own for own in answers)
            if count in (0, len(answers)):
                share = "none" if count == 0 else "all"
                return (
                    f"{share} of the {len(answers)} training rows have the label {name!r}; there "
                    "is nothing to learn: leave it out"
                )
        return ""

    def doubts(self, task: Task, train: Sequence[Any], validation: Sequence[Any]) -> Iterator[str]:
        """Labels that are not judged."""
        counts = Counter(chain.from_iterable(train))
        yield from unjudged_labels(counts, set(chain.from_iterable(validation)))

    def encode(self, task: Task, answers: Sequence[Any]) -> Values:
        numbers = {label: n for n, label in enumerate(task.labels)}
        targets = np.zeros((len(answers), len(task.labels)))
        for row, own in zip(targets, answers, strict=True):
            row[:] = np.nan if own is None else 0.0
            row[[numbers[label] for label in own or () if label in numbers]] = 1.0
        return targets

    def decode(self, task: Task, values: Answers) -> list[list[str]]:
        return [[task.labels[n] for n in np.flatnonzero(row == 1)] for row in values]

    def write(self, label: Sequence[str]) -> str:
        return json.dumps(list(label), ensure_ascii=False)

    def show(self, task: Task, label: Sequence[str], texts: Sequence[str]) -> str:
        return ", ".join(label) or "none"

    def by_label(
        self, task: Task, targets: Answers, values: Answers
    ) -> dict[str, tuple[int, float]]:
        counts = Counts(*np.split(label_counts(targets, values).sum(0), 3))
        pairs = zip(counts.true.astype(int).tolist(), f1_of(counts).tolist(), strict=True)
        return dict(zip(task.labels, pairs, strict=True))

    def soften(self, task: Task, targets: Answers, smoothing: float) -> Values:
        return targets * (1 - smoothing) + smoothing / 2

    def decide(self, task: Task, logits: Values) -> tuple[Values, Values]:
        """The labels above their thresholds, which the logits are relative to."""
        return (logits > 0).astype(np.float64), 1 / (1 + np.exp(-np.clip(logits, -700, 700)))

    def row_weights(self, task: Task, targets: Answers) -> Values:
        return np.ones(len(targets))

    def thresholds(self, targets: Answers, logits: Values) -> Values:
        """Of each label the one with the highest F1 on these rows."""
        return np.array([best_cut(*columns) for columns in zip(targets.T, logits.T, strict=True)])

    def confidences(self, values: Answers, probabilities: Values) -> list[float]:
        """The probability of the whole set, if labels are independent."""
        own = np.where(values == 1, probabilities, 1 - probabilities)
        return own.prod(axis=1).tolist()

    def losses(self, targets: Answers, values: Answers, probabilities: Values) -> Values:
        """The mean over labels of -log of the truth's probability."""
        own = np.where(targets == 1, probabilities, 1 - probabilities)
        return -np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean(axis=1)

    def distances(self, targets: Answers, values: Answers) -> Values:
        """1 where any label is wrong."""
        return (targets != values).any(axis=1).astype(np.float64)

    def span(self, task: Task, values: Answers) -> tuple[float, float]:
        return 0.0, 1.0

    def metrics(self, task: Task) -> dict[str, Metric]:
        return {
            "micro_f1": of_counts(label_counts, micro_f1),
            "macro_f1": of_counts(label_counts, macro(f1_of)),
            "subset_accuracy": mean_of(lambda true, guessed: (true == guessed).all(axis=1)),
        }

    def suspicious(self, task: Task, targets: Answers, values: Answers) -> Iterator[str]:
        if (values == values[0]).all():
            only = ", ".join(self.decode(task, values[:1])[0]) or "no label"
            yield f"every prediction is {only}: nothing was learnt"


def label_counts(targets: Answers, predictions: Answers) -> Values:
    return np.concatenate([targets * predictions, targets, predictions], axis=-1)


def best_cut(targets_N: Values, logits_N: Values) -> float:
    """The threshold with the highest F1, halfway between two logits; 0 without a positive row."""
    order = np.argsort(-logits_N, kind="stable")
    sorted_N = logits_N[order]
    right_N = np.cumsum(targets_N[order])
    f1_N = 2 * right_N / (np.arange(1, len(order) + 1) + targets_N.sum())
    is_edge_N = np.append(sorted_N[:-1] > sorted_N[1:], True)
    best = int(np.argmax(np.where(is_edge_N, f1_N, -1.0)))
    if right_N[best] == 0:
        return 0.0
    below = sorted_N[best + 1] if best + 1 < len(order) else sorted_N[best] - 1.0
    return float((sorted_N[best] + below) / 2)


def join_columns(columns: Sequence[str], cells: Sequence[str]) -> tuple[str, str]:
    """Several 0/1 columns as the cell of one column; empty where all of them are."""
    names = []
    for name, cell in zip(columns, cells, strict=True):
        word = canonical_label(cell).lower()
        if word not in (*TRUE, *FALSE):
            wrong = f"{name} is {cell!r}, not 0 or 1" if word else f"has no {name}"
            return "", wrong if any(cells) else ""
        names += [name] if word in TRUE else []
    return json.dumps(names), ""
