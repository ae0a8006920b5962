"""What a kind of answer must be able to do, and the kinds of answers by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mops.kinds.classes import Classes
from mops.kinds.labels import LabelSet
from mops.kinds.metrics import Answers, Metric, Values
from mops.kinds.tags import Piece, WordTags
from mops.kinds.values import Number

if TYPE_CHECKING:
    from mops.tasks import Task


ByLabel = Mapping[str, tuple[int, float]]  # label -> how often it is true, and its F1


class Answer(Protocol):
    """What tasks answer: a class, a value.

    A label is what a row of a file holds (a string, a number); targets and predictions are arrays
    with one entry for each row along the first axis.
    """

    @property
    def name(self) -> str:
        """What tables of losses and figures call it."""

    @property
    def has_labels(self) -> bool:
        """Whether the answers are among `labels` of the task."""

    @property
    def reads_words(self) -> bool:
        """Whether every word of a text has an answer, instead of the text."""

    @property
    def has_thresholds(self) -> bool:
        """Whether a prediction is what is above a threshold."""

    @property
    def pipeline(self) -> str:
        """What model hubs call a model that answers so; empty: they have no name for it."""

    @property
    def limit(self) -> str:
        """What every text gets, whatever it is, as a sentence of the card."""

    def outputs(self, task: Task) -> int:
        """The width of the head's output."""

    def output_meaning(self, task: Task) -> str:
        """What the numbers of an exported graph are, for the card."""

    def first_output(self, task: Task) -> float | None:
        """Where the output of a head starts; None: anywhere."""

    def problems(self, task: Task) -> Iterator[str]:
        """What is wrong with the answers of a task in a recipe."""

    def read_text(self, text: str) -> tuple[str, str]:
        """A text in a cell of a file, and what is wrong with it."""

    def mismatch(self, label: Any, texts: Sequence[str]) -> str:
        """Why a label does not fit its texts; empty if it does."""

    def main_score(self, task: Task) -> str:
        """The score of a task that names none; empty: the first of its kind."""

    def read(self, text: str, task: Task) -> tuple[Any, str]:
        """The label in a cell of a file, and what is wrong with it."""

    def learn(self, task: Task, answers: Sequence[Any]) -> dict[str, Any]:
        """What a task takes from the labels of its training rows, where the recipe is silent."""

    def unlearnable(self, task: Task, answers: Sequence[Any]) -> str:
        """Why nothing can be learnt from these labels; empty if it can."""

    def doubts(self, task: Task, train: Sequence[Any], validation: Sequence[Any]) -> Iterator[str]:
        """Signs that these labels are of another kind."""

    def encode(self, task: Task, answers: Sequence[Any]) -> Answers:
        """Labels, or None, as targets."""

    def decode(self, task: Task, values: Answers) -> list[Any]:
        """Targets or predictions as labels."""

    def write(self, label: Any) -> str:
        """A label as the cell of a file, which `read` reads."""

    def show(self, task: Task, label: Any, texts: Sequence[str]) -> str | Sequence[Piece]:
        """A label for a reader of the report; pieces where parts of the text are marked."""

    def by_label(self, task: Task, targets: Answers, values: Answers) -> ByLabel:
        """The F1 of each label, where a row has several."""

    def soften(self, task: Task, targets: Answers, smoothing: float) -> Answers:
        """Targets to mix with probabilities, with a part of each spread over all labels."""

    def decide(self, task: Task, logits: Answers) -> tuple[Answers, Answers]:
        """The predictions that the outputs of a head mean, and the probabilities behind them."""

    def row_weights(self, task: Task, targets: Answers) -> Values:
        """The weight of each row in the mean loss of several; targets may be soft."""

    def thresholds(self, targets: Answers, logits: Values) -> Values:
        """The best ones on these rows, subtracted from the outputs of a head to decide."""

    def confidences(self, values: Answers, probabilities: Answers) -> list[float]:
        """How probable each prediction is; empty where there is no such number."""

    def losses(self, targets: Answers, values: Answers, probabilities: Answers) -> Values:
        """How bad each prediction is."""

    def distances(self, targets: Answers, values: Answers) -> Values:
        """How far each prediction is from its label: 0 right, 1 wrong, or on the task's scale."""

    def span(self, task: Task, values: Answers) -> tuple[float, float]:
        """The lowest and the highest distance that matters, or value."""

    def metrics(self, task: Task) -> dict[str, Metric]:
        """All scores by name."""

    def suspicious(self, task: Task, targets: Answers, values: Answers) -> Iterator[str]:
        """Signs that predictions mean nothing, one sentence each."""


CLASS, LABELS, TAGS = Classes(), LabelSet(), WordTags()
VALUE, NUMBER = Number(has_scale=False), Number(has_scale=True)
