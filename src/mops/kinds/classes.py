"""A class: one label of several."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mops.kinds.metrics import (
    Answers,
    Metric,
    Values,
    f1_of,
    macro,
    matthews,
    mean_of,
    mean_where,
    of_counts,
    precision_of,
    recall_of,
    second_or_macro,
)

if TYPE_CHECKING:
    from mops.tasks import Task

SHOWN = 3  # labels in a message
MANY = 20  # numbers that are more than this are rather values than classes
WHOLE = re.compile(r"^([+-]?\d+)\.0*$")  # a whole number written as a fraction


class Classes:
    """Targets and predictions are class numbers."""

    name, has_labels, has_thresholds, reads_words = "class", True, False, False
    pipeline = "text-classification"
    limit = "every text or pair gets one of the answers above; there is none for `something else`"

    def outputs(self, task: Task) -> int:
        """One per class, one between neighbours, or one."""
        classes = len(task.labels)
        return {"cross_entropy": classes, "ordinal": classes - 1}.get(task.loss_name, 1)

    def output_meaning(self, task: Task) -> str:
        return OUTPUT_MEANINGS[task.loss_name]

    def first_output(self, task: Task) -> float | None:
        return None

    def problems(self, task: Task) -> Iterator[str]:
        labels = len(task.labels)
        if task.range is not None:
            yield f"`range` is {list(task.range)}; it belongs to a similarity and must increase"
        yield from label_problems(task)
        if labels == 1:
            yield f"only one class, {task.labels[0]!r}: there is nothing to learn"
        if task.loss == "binary_cross_entropy" and labels not in (0, 2):
            yield f"binary_cross_entropy needs two labels, there are {labels}"
        if task.loss == "ordinal" and labels in (1, 2):
            yield f"ordinal needs three labels or more, there are {labels}"

    def read_text(self, text: str) -> tuple[str, str]:
        return text, ""

    def mismatch(self, label: Any, texts: Sequence[str]) -> str:
        return ""

    def main_score(self, task: Task) -> str:
        return ""

    def read(self, text: str, task: Task) -> tuple[str, str]:
        label = canonical_label(text)
        if task.labels and label not in task.labels:
            return "", f"{task.label} is {text!r}, not one of {', '.join(task.labels)}"
        return label, f"{task.label} is an empty list" if label == "[]" else ""

    def learn(self, task: Task, answers: Sequence[Any]) -> dict[str, Any]:
        """The classes that occur, and their weights."""
        return learn_labels(task, answers)

    def unlearnable(self, task: Task, answers: Sequence[Any]) -> str:
        if task.loss_name == "ordinal" and not task.labels and not are_numbers(set(answers)):
            words = ", ".join(sorted_labels(set(answers)))
            return (
                f"loss ordinal needs ordered classes, the training file has the words {words}; "
                "list them under `labels`, the lowest first"
            )
        return ""

    def doubts(self, task: Task, train: Sequence[Any], validation: Sequence[Any]) -> Iterator[str]:
        """Numbers that are no names: fractions, or many; classes that are not judged."""
        labels = sorted_labels(set(train))
        yield from unjudged_labels(Counter(train), set(validation))
        if are_numbers(labels) and (len(labels) > MANY or any("." in label for label in labels)):
            shown = ", ".join(labels[:4]) + (", ..." if len(labels) > 4 else "")
            yield (
                f"its {len(labels)} classes are numbers ({shown}): if they are values, the type is "
                "similarity or regression"
            )

    def encode(self, task: Task, answers: Sequence[Any]) -> Values:
        numbers = {label: float(n) for n, label in enumerate(task.labels)}
        return np.array([numbers.get(answer, math.nan) for answer in answers], dtype=np.float64)

    def decode(self, task: Task, values: Answers) -> list[str]:
        return [task.labels[int(index)] for index in values]

    def write(self, label: str) -> str:
        return label

    def show(self, task: Task, label: str, texts: Sequence[str]) -> str:
        return label

    def by_label(
        self, task: Task, targets: Answers, values: Answers
    ) -> dict[str, tuple[int, float]]:
        return {}

    def soften(self, task: Task, targets: Answers, smoothing: float) -> Values:
        """N x classes."""
        classes = len(task.labels)
        return np.eye(classes)[targets.astype(int)] * (1 - smoothing) + smoothing / classes

    def decide(self, task: Task, logits: Values) -> tuple[Values, Values]:
        """Class numbers, and the probability of each class."""
        logits = CLASS_LOGITS[task.loss_name](logits)
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = raised / raised.sum(axis=1, keepdims=True)
        return logits.argmax(axis=1).astype(np.float64), probabilities

    def row_weights(self, task: Task, targets: Answers) -> Values:
        weights_C = np.array(task.class_weights or np.ones(len(task.labels)))
        return targets @ weights_C if targets.ndim == 2 else weights_C[targets.astype(int)]

    def thresholds(self, targets: Answers, logits: Values) -> Values:
        return np.zeros(logits.shape[1:])

    def confidences(self, values: Answers, probabilities: Values) -> list[float]:
        """The probability of each predicted class."""
        return probabilities.max(axis=1).tolist()

    def losses(self, targets: Answers, values: Answers, probabilities: Values) -> Values:
        """-log of the true class's probability."""
        own = probabilities[np.arange(len(targets)), targets.astype(int)]
        return -np.log(np.maximum(own, np.finfo(np.float64).tiny))

    def distances(self, targets: Answers, values: Answers) -> Values:
        return (targets != values).astype(np.float64)

    def span(self, task: Task, values: Answers) -> tuple[float, float]:
        return 0.0, 1.0

    def metrics(self, task: Task) -> dict[str, Metric]:
        add = partial(class_counts, len(task.labels))
        scores = {name: of_counts(add, score) for name, score in OF_COUNTS.items()}
        return {"accuracy": mean_of(np.equal), **scores}

    def suspicious(self, task: Task, targets: Answers, values: Answers) -> Iterator[str]:
        if len(classes := np.unique(values)) == 1:
            yield f"every prediction is {task.labels[int(classes[0])]!r}: nothing was learnt"
            return
        accuracy = np.mean(targets == values)
        majority = np.bincount(targets.astype(int)).max() / len(targets)
        if accuracy <= majority:
            yield f"accuracy {accuracy:.3f} is not above the majority class's {majority:.3f}"


OF_COUNTS = {
    "f1": second_or_macro(f1_of),
    "precision": second_or_macro(precision_of),
    "recall": second_or_macro(recall_of),
    "matthews": matthews,
    "macro_f1": macro(f1_of),
    "balanced_accuracy": lambda counts: mean_where(recall_of(counts), counts.true > 0),
}


def class_counts(classes: int, targets: Answers, predictions: Answers) -> Values:
    true, guessed = (np.eye(classes)[own.astype(int)] for own in (targets, predictions))
    return np.concatenate([true * guessed, true, guessed], axis=-1)


def unjudged_labels(train: Mapping[str, int], validation: Set[str]) -> Iterator[str]:
    """The labels of training rows that no validation row has."""
    missing = sorted_labels(set(train) - validation)
    if validation and missing:
        shown = [f"{name!r} ({train[name]:,} in training)" for name in missing[:SHOWN]]
        more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        yield f"no validation row is {', '.join(shown)}{more}: the score says nothing of it"


def learn_labels(task: Task, answers: Iterable[str]) -> dict[str, Any]:
    """The labels that occur; balanced weights are inverse to how often (King and Zeng 2001)."""
    counts = Counter(answers)
    labels = task.labels or sorted_labels(set(counts))
    mean = counts.total() / len(labels)
    weights = tuple(mean / max(1, counts[label]) for label in labels)
    return {"labels": labels, **({"class_weights": weights} if task.is_balanced else {})}


def label_problems(task: Task) -> Iterator[str]:
    """Wrong `labels` and their weights."""
    if len(set(task.labels)) < len(task.labels):
        yield f"`labels` names a label twice: {', '.join(task.labels)}"
    if task.class_weights and task.labels and len(task.class_weights) != len(task.labels):
        yield f"{len(task.class_weights)} class weights for {len(task.labels)} labels"


def ordinal_logits(logits: Values) -> Values:
    """log P(y = k) = log(P(y > k-1) - P(y > k)) from the logits of P(y > k).

    Non-monotone cumulative probabilities are clipped, so that no class probability is negative.
    """
    above = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))  # exp is finite there
    falling = np.minimum.accumulate(above, axis=1)
    edges = np.pad(falling, ((0, 0), (1, 0)), constant_values=1.0)
    with np.errstate(divide="ignore"):
        return np.log(edges - np.pad(falling, ((0, 0), (0, 1))))


# loss of a classification -> its outputs as one logit per class
CLASS_LOGITS: dict[str, Callable[[Values], Values]] = {
    "cross_entropy": lambda logits: logits,
    # One logit for two classes: sigmoid is a softmax over (0, logit).
    "binary_cross_entropy": lambda logits: np.pad(logits, ((0, 0), (1, 0))),
    "ordinal": ordinal_logits,
}


OUTPUT_MEANINGS = {  # the same for cards
    "cross_entropy": "a number for each answer, before softmax",
    "binary_cross_entropy": "one number, whose sigmoid is the probability of the second answer",
    "ordinal": "a number between neighbours, whose sigmoid is the probability of a higher answer",
}


def canonical_label(value: str) -> str:
    """One spelling per label: '1.0', '1' and ' 1' are the same class."""
    return WHOLE.sub(r"\1", value.strip())


def json_items(text: str) -> tuple[list[str] | None, str]:
    """The items of a JSON list as words, and what is wrong with them; None: no such list."""
    if not text.startswith("["):
        return None, ""
    try:
        items = json.loads(text)
    except ValueError:
        return None, ""
    for item in items:
        if not isinstance(item, str | int | float) or str(item) == "nan":
            return [], f"has {json.dumps(item)} in a list, which is no word or number"
    return [item if isinstance(item, str) else json.dumps(item) for item in items], ""


def sorted_labels(labels: set[str]) -> tuple[str, ...]:
    """Numbers in numeric order, words in alphabetical order."""
    return tuple(sorted(labels, key=float if are_numbers(labels) else str))


def are_numbers(labels: Iterable[str]) -> bool:
    """Whether the labels have an order of their own."""
    try:
        return all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        return False
