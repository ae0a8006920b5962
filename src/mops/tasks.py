"""Tasks: a named job on one or two texts, with its labels or range, its loss and its score."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mops.errors import RecipeError

CORRELATIONS = ("matthews", "pearson", "spearman")
NAME = re.compile(r"[a-z0-9_-]+")
WHOLE = re.compile(r"^([+-]?\d+)\.0*$")  # a whole number written as a fraction


@dataclass(frozen=True)
class TaskType:
    """A kind of task: the texts it reads, and the losses and scores that fit its answers."""

    texts: int
    has_range: bool = False  # answers are numbers in a range instead of classes
    losses: tuple[str, ...] = ("cross_entropy", "binary_cross_entropy", "ordinal")
    scores: tuple[str, ...] = ("accuracy", "f1", "precision", "recall", "matthews")


TYPES = {
    "classification": TaskType(texts=1),
    "pair_classification": TaskType(texts=2),
    "similarity": TaskType(
        texts=2, has_range=True, losses=("mse",), scores=("pearson", "spearman")
    ),
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: the columns it reads, the allowed answers, and how it is trained and scored.

    `labels` is empty for a similarity, and for a classification until its training file is read.
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
        if self.type not in TYPES:
            allowed = ", ".join(TYPES)
            raise RecipeError(f"task {self.name!r}: type is {self.type!r}; allowed: {allowed}")
        for problem in (*column_problems(self), *answer_problems(self), *method_problems(self)):
            raise RecipeError(f"task {self.name!r}: {problem}")

    @property
    def is_pair(self) -> bool:
        return len(self.text) == 2

    @property
    def is_similarity(self) -> bool:
        return TYPES[self.type].has_range

    @property
    def loss_name(self) -> str:
        """The loss in force: as named, else the default of the type."""
        is_binary_pair = self.is_pair and len(self.labels) == 2
        default = "binary_cross_entropy" if is_binary_pair else TYPES[self.type].losses[0]
        return self.loss or default

    @property
    def score_name(self) -> str:
        """The score that stands for this task in tables and in the overall scores."""
        return self.score or TYPES[self.type].scores[0]

    @property
    def outputs(self) -> int:
        """The width of the head's output: one per class, one between neighbours, or one."""
        classes = len(self.labels)
        return {"cross_entropy": classes, "ordinal": classes - 1}.get(self.loss_name, 1)


def column_problems(task: Task) -> Iterator[str]:
    if not NAME.fullmatch(task.name):
        yield "a name may contain only small letters, digits, '_' and '-'"
    wanted = TYPES[task.type].texts
    if len(task.text) != wanted:
        yield (
            f"type {task.type} reads {wanted} text column(s), `text` names {len(task.text)}: "
            f"{', '.join(task.text)}"
        )
    if task.label in task.text:
        yield (
            f"the label column {task.label!r} is also an input, so the model would read the "
            "answer; name another column under `text` or `label`"
        )


def answer_problems(task: Task) -> Iterator[str]:
    if task.is_similarity and task.range is None:
        yield "a similarity needs `range: [lowest, highest]`"
    if task.range is not None and (not task.is_similarity or task.range[0] >= task.range[1]):
        yield f"`range` is {list(task.range)}; it belongs to a similarity and must increase"
    if task.is_similarity and (task.labels or task.class_weights):
        yield "a similarity has a `range`, not `labels` or `class_weights`"
    if len(set(task.labels)) < len(task.labels):
        yield f"`labels` names a label twice: {', '.join(task.labels)}"
    if len(task.labels) == 1:
        yield f"only one class, {task.labels[0]!r}: there is nothing to learn"
    if task.class_weights and task.labels and len(task.class_weights) != len(task.labels):
        yield f"{len(task.class_weights)} class weights for {len(task.labels)} labels"


def method_problems(task: Task) -> Iterator[str]:
    """A loss or a score that does not fit the answers."""
    kind, labels = TYPES[task.type], len(task.labels)
    methods = ("loss", task.loss, kind.losses), ("score", task.score, kind.scores)
    for key, value, allowed in methods:
        if value and value not in allowed:
            yield f"{key} {value!r} does not fit a {task.type}; allowed: {', '.join(allowed)}"
    if task.loss == "binary_cross_entropy" and labels not in (0, 2):
        yield f"binary_cross_entropy needs two labels, there are {labels}"
    if task.loss == "ordinal" and labels in (1, 2):
        yield f"ordinal needs three labels or more, there are {labels}"


def canonical_label(value: str) -> str:
    """One spelling per label: '1.0', '1' and ' 1' are the same class."""
    return WHOLE.sub(r"\1", value.strip())


def sorted_labels(labels: set[str]) -> tuple[str, ...]:
    """Numbers in numeric order, words in alphabetical order."""
    return tuple(sorted(labels, key=float if are_numbers(labels) else str))


def are_numbers(labels: Iterable[str]) -> bool:
    """Whether the labels have an order of their own."""
    try:
        return all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        return False
