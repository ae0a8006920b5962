"""Task: a named job on one or two texts, with its labels or its range, its loss and its score."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mops.errors import RecipeError

TYPES = ("classification", "pair_classification", "similarity")
CLASS_SCORES = ("accuracy", "f1", "precision", "recall", "matthews")
VALUE_SCORES = ("pearson", "spearman")
CLASS_LOSSES = ("cross_entropy", "binary_cross_entropy", "ordinal")
CORRELATIONS = ("matthews", "pearson", "spearman")
NAME = re.compile(r"[a-z0-9_-]+")
WHOLE = re.compile(r"^([+-]?\d+)\.0*$")  # a whole number written as a fraction


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one task asks: which columns it reads, what an answer may be, how it is judged.

    `labels` is empty for a similarity and for a classification whose labels are still to be
    read from its training file; everything after the data has been read sees them filled.
    """

    name: str
    type: str
    text: tuple[str, ...]
    label: str
    labels: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    loss: str = ""
    score: str = ""
    class_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise RecipeError(f"task {self.name!r}: {problem}")

    @property
    def is_pair(self) -> bool:
        return len(self.text) == 2

    @property
    def is_similarity(self) -> bool:
        return self.type == "similarity"

    @property
    def loss_name(self) -> str:
        """The loss in force: as named, else the one that fits the type (never MSE on a class)."""
        if self.loss:
            return self.loss
        if self.is_similarity:
            return "mse"
        is_binary_pair = self.is_pair and len(self.labels) == 2
        return "binary_cross_entropy" if is_binary_pair else "cross_entropy"

    @property
    def score_name(self) -> str:
        """The score that stands for this task in tables and in the overall scores."""
        return self.score or ("pearson" if self.is_similarity else "accuracy")

    @property
    def outputs(self) -> int:
        """How many numbers the head gives: one per class, one between neighbours, or one alone."""
        classes = len(self.labels)
        return {"cross_entropy": classes, "ordinal": classes - 1}.get(self.loss_name, 1)

    def with_labels(self, labels: tuple[str, ...]) -> Task:
        return replace(self, labels=labels)


def _problems(task: Task) -> list[str]:
    """What makes this task impossible, most important first."""
    found = []
    if not NAME.fullmatch(task.name):
        found.append("a name may hold only small letters, digits, '_' and '-'")
    if task.type not in TYPES:
        found.append(f"type is {task.type!r}; allowed: {', '.join(TYPES)}")
    wanted = 1 if task.type == "classification" else 2
    if task.type in TYPES and len(task.text) != wanted:
        found.append(
            f"type {task.type} reads {wanted} text column(s), `text` names {len(task.text)}: "
            f"{', '.join(task.text)}"
        )
    if task.label in task.text:
        found.append(
            f"the label column {task.label!r} is also an input, so the model would read the "
            "answer; name another column under `text` or `label`"
        )
    found += _problems_of_answers(task)
    return found


def _problems_of_answers(task: Task) -> list[str]:
    found = []
    if task.is_similarity and task.range is None:
        found.append("a similarity needs `range: [lowest, highest]`")
    if task.range is not None and (not task.is_similarity or task.range[0] >= task.range[1]):
        found.append(f"`range` is {list(task.range)}; it belongs to a similarity and must rise")
    if task.is_similarity and (task.labels or task.class_weights):
        found.append("a similarity has a `range`, not `labels` or `class_weights`")
    if len(set(task.labels)) < len(task.labels):
        found.append(f"`labels` names a label twice: {', '.join(task.labels)}")
    if len(task.labels) == 1:
        found.append(f"only one class, {task.labels[0]!r}: there is nothing to learn")
    if task.class_weights and task.labels and len(task.class_weights) != len(task.labels):
        found.append(f"{len(task.class_weights)} class weights for {len(task.labels)} labels")
    return found + _mismatches(task)


def _mismatches(task: Task) -> list[str]:
    """A loss or a score that does not belong to the type of the answers."""
    found = []
    fitting = ("mse",) if task.is_similarity else CLASS_LOSSES
    if task.loss and task.loss not in fitting:
        found.append(
            f"loss {task.loss!r} does not fit a {task.type}; allowed: {', '.join(fitting)}"
        )
    if task.loss == "binary_cross_entropy" and len(task.labels) not in (0, 2):
        found.append(f"binary_cross_entropy wants two labels, there are {len(task.labels)}")
    if task.loss == "ordinal" and len(task.labels) in (1, 2):
        found.append(f"ordinal wants three labels or more, there are {len(task.labels)}")
    scores = VALUE_SCORES if task.is_similarity else CLASS_SCORES
    if task.score and task.score not in scores:
        found.append(
            f"score {task.score!r} does not fit a {task.type}; allowed: {', '.join(scores)}"
        )
    return found


def canonical_label(value: str) -> str:
    """One spelling per label: '1.0', '1' and ' 1' are the same class."""
    text = value.strip()
    return WHOLE.sub(r"\1", text)


def sorted_labels(found: set[str]) -> tuple[str, ...]:
    """Numbers in the order of numbers, words in the order of words."""
    return tuple(sorted(found, key=float if are_numbers(found) else str))


def are_numbers(labels: Iterable[str]) -> bool:
    """Whether the labels have an order of their own."""
    try:
        return all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        return False
