"""What a kind of answer must be able to do, and the kinds of answers by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mops.kinds.classes import Classes
from mops.kinds.metrics import Answers, Metric, Values
from mops.kinds.values import RangeValues

if TYPE_CHECKING:
    from mops.tasks import Task


class Answer(Protocol):
    """What tasks answer: a class, a value.

    A label is what a row of a file holds (a string, a number); targets and predictions are arrays
    with one entry for each row along the first axis.
    """

    name: str  # what tables of losses and figures call it
    has_labels: bool  # the answers are among `labels` of the task

    def outputs(self, task: Task) -> int:
        """The width of the head's output."""

    def problems(self, task: Task) -> Iterator[str]:
        """What is wrong with the answers of a task in a recipe."""

    def read(self, text: str, task: Task) -> tuple[Any, str]:
        """The label in a cell of a file, and what is wrong with it."""

    def labels(self, task: Task, answers: Iterable[Any]) -> tuple[str, ...]:
        """The labels of a task that occur in its training rows."""

    def encode(self, task: Task, answers: Sequence[Any]) -> Answers:
        """Labels, or None, as targets."""

    def decode(self, task: Task, values: Answers) -> list[Any]:
        """Targets or predictions as labels."""

    def write(self, label: Any) -> str:
        """A label as the cell of a file, which `read` reads."""

    def soften(self, task: Task, targets: Answers, smoothing: float) -> Values:
        """Targets to mix with probabilities, with a part of each spread over all labels."""

    def decide(self, task: Task, logits: Values) -> tuple[Answers, Values]:
        """The predictions that the outputs of a head mean, and the probabilities behind them."""

    def confidences(self, values: Answers, probabilities: Values) -> list[float]:
        """How probable each prediction is; empty where there is no such number."""

    def losses(self, targets: Answers, values: Answers, probabilities: Values) -> Values:
        """How bad each prediction is."""

    def distances(self, targets: Answers, values: Answers) -> Values:
        """How far each prediction is from its label: 0 right, 1 wrong, or on the task's scale."""

    def metrics(self, task: Task) -> dict[str, Metric]:
        """All scores by name."""

    def suspicious(self, task: Task, targets: Answers, values: Answers) -> Iterator[str]:
        """Signs that predictions mean nothing, one sentence each."""


CLASS, VALUE = Classes(), RangeValues()
