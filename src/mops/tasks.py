"""Tasks: a named job on one or two texts, with its labels or range, its loss and its score."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mops.errors import RecipeError
from mops.kinds.answers import CLASS, LABELS, NUMBER, TAGS, VALUE, Answer

CORRELATIONS = ("matthews", "pearson", "spearman")
NAME = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True)
class Kind:
    """A kind of task: the texts it reads, its answers, and the losses and scores that fit them.

    The first loss and the first score are the defaults.
    """

    texts: tuple[int, ...]  # allowed numbers of text columns
    answer: Answer
    losses: tuple[str, ...]
    scores: tuple[str, ...]
    has_cosine: bool = False  # a cosine can be its head


CLASS_LOSSES = ("cross_entropy", "binary_cross_entropy", "ordinal")
CLASS_SCORES = (
    "accuracy", "f1", "macro_f1", "precision", "recall", "balanced_accuracy", "matthews",
)  # fmt: skip
LABEL_SCORES = ("micro_f1", "macro_f1", "subset_accuracy")
TAG_SCORES = ("entity_f1", "entity_precision", "entity_recall", "token_accuracy")
KINDS = {
    "classification": Kind((1,), CLASS, CLASS_LOSSES, CLASS_SCORES),
    "pair_classification": Kind((2,), CLASS, CLASS_LOSSES, CLASS_SCORES),
    "similarity": Kind((2,), VALUE, ("mse",), ("pearson", "spearman"), has_cosine=True),
    "regression": Kind((1, 2), NUMBER, ("mse", "mae", "huber"), ("pearson", "spearman", "r2")),
    "tagging": Kind((1,), TAGS, ("cross_entropy",), TAG_SCORES),
    "multilabel": Kind((1, 2), LABELS, ("binary_cross_entropy",), LABEL_SCORES),
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: the columns it reads, the allowed answers, and how it is trained and scored.

    `labels` is empty for numbers, and until the training file is read; `scale` is the mean and the
    standard deviation of a regression's training labels.
    """

    name: str
    type: str
    text: tuple[str, ...]
    label: str | tuple[str, ...]  # a column, or one of 0 and 1 for each label
    labels: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    loss: str = ""
    score: str = ""
    class_weights: tuple[float, ...] = ()
    is_balanced: bool = False  # class weights follow from the training rows
    separator: str = ";"  # between the labels in a cell of a multilabel

    def __post_init__(self) -> None:
        if self.type not in KINDS:
            allowed = ", ".join(KINDS)
            raise RecipeError(f"task {self.name!r}: type is {self.type!r}; allowed: {allowed}")
        answer_problems = self.answer.problems(self)
        columns = *column_problems(self), *several_problems(self)
        for problem in (*columns, *answer_problems, *method_problems(self)):
            raise RecipeError(f"task {self.name!r}: {problem}")

    @property
    def kind(self) -> Kind:
        return KINDS[self.type]

    @property
    def answer(self) -> Answer:
        return self.kind.answer

    @property
    def is_pair(self) -> bool:
        return len(self.text) == 2

    @property
    def label_columns(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def loss_name(self) -> str:
        """The loss in force: as named, else the default of the kind."""
        is_binary_pair = (
            self.is_pair and len(self.labels) == 2 and "binary_cross_entropy" in self.kind.losses
        )
        return self.loss or ("binary_cross_entropy" if is_binary_pair else self.kind.losses[0])

    @property
    def score_name(self) -> str:
        """The score that stands for this task in tables and in the overall scores."""
        return self.score or self.answer.main_score(self) or self.kind.scores[0]

    @property
    def outputs(self) -> int:
        """The width of the head's output."""
        return self.answer.outputs(self)


def score_bounds(name: str) -> tuple[float, float]:
    """The lowest and the highest value that a score can have."""
    return {"r2": -math.inf, **dict.fromkeys(CORRELATIONS, -1.0)}.get(name, 0.0), 1.0


def column_problems(task: Task) -> Iterator[str]:
    if not NAME.fullmatch(task.name):
        yield "a name may contain only small letters, digits, '_' and '-'"
    if len(task.text) not in task.kind.texts:
        wanted = " or ".join(map(str, task.kind.texts))
        yield (
            f"type {task.type} reads {wanted} text column(s), `text` names {len(task.text)}: "
            f"{', '.join(task.text)}"
        )
    for name in (name for name in task.label_columns if name in task.text):
        yield (
            f"the label column {name!r} is also an input, so the model would read the "
            "answer; name another column under `text` or `label`"
        )


def several_problems(task: Task) -> Iterator[str]:
    """Label columns that are not one."""
    if len(task.label_columns) != 1 and task.answer is not LABELS:
        yield f"`label` names {len(task.label_columns)} columns; a {task.type} has one"
    elif len(task.label_columns) > 1 and task.labels not in ((), task.label_columns):
        yield "`labels` differs from the columns under `label`; leave it out"
    elif not task.label_columns or len(set(task.label_columns)) < len(task.label_columns):
        yield "`label` must name one column or several different ones"
    if len(task.separator) != 1:
        yield f"`separator` is {task.separator!r}; it must be one character"


def method_problems(task: Task) -> Iterator[str]:
    """A loss or a score that does not fit the answers."""
    kind = task.kind
    methods = ("loss", task.loss, kind.losses), ("score", task.score, kind.scores)
    for key, value, allowed in methods:
        if value and value not in allowed:
            yield f"{key} {value!r} does not fit a {task.type}; allowed: {', '.join(allowed)}"
