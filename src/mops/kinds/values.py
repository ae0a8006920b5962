"""A value: a number, in a range or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mops.kinds.metrics import Answers, Metric, Values, mean_of, pearson, r2, spearman

if TYPE_CHECKING:
    from mops.tasks import Task

DIGITS = 6  # decimals of a value: scores are computed from the values that are written
FLAT = 0.01  # of the range: predictions that vary less than this are meaningless


@dataclass(frozen=True)
class Number:
    """Targets and predictions are numbers. With a `scale` (mean and standard deviation of the
    training labels) heads and losses see standardised values.
    """

    has_scale: bool  # else the task has a range, and the head answers on it
    name: str = "value"
    has_labels: bool = False
    has_thresholds: bool = False
    reads_words: bool = False
    pipeline: str = ""
    limit: str = "every text or pair gets a number, whatever it is about"

    def outputs(self, task: Task) -> int:
        return 1

    def output_meaning(self, task: Task) -> str:
        mean, deviation = task.scale or (0.0, 1.0)
        value = f"{mean:.9g} + {deviation:.9g} x its output" if task.scale else "its output"
        limited = "" if task.range is None else ", limited to {:g} .. {:g}".format(*task.range)
        return f"the value is {value}{limited}"

    def first_output(self, task: Task) -> float | None:
        """The middle of the range."""
        return None if self.has_scale or task.range is None else sum(task.range) / 2

    def problems(self, task: Task) -> Iterator[str]:
        if task.range is None and not self.has_scale:
            yield f"a {task.type} needs `range: [lowest, highest]`"
        elif task.range is not None and task.range[0] >= task.range[1]:
            yield f"`range` is {list(task.range)}; it must increase"
        if task.labels or task.class_weights or task.is_balanced:
            yield f"a {task.type} has numbers as labels, not `labels` or `class_weights`"
        if task.scale is not None and (not self.has_scale or not task.scale[1] > 0):
            yield f"`scale` is {list(task.scale)}; it belongs to a regression: [mean, deviation]"

    def read_text(self, text: str) -> tuple[str, str]:
        return text, ""

    def mismatch(self, label: Any, texts: Sequence[str]) -> str:
        return ""

    def main_score(self, task: Task) -> str:
        return ""

    def read(self, text: str, task: Task) -> tuple[float, str]:
        low, high = task.range or (-math.inf, math.inf)
        try:
            value = float(text)
        except ValueError:
            return math.nan, f"{text!r} is not a number"
        if task.range is None:
            return value, "" if math.isfinite(value) else f"{text} is not a finite number"
        is_within = low <= value <= high  # nan is in no range
        return value, "" if is_within else f"{text} is not between {low:g} and {high:g}"

    def learn(self, task: Task, answers: Sequence[Any]) -> dict[str, Any]:
        """The mean and the standard deviation."""
        if not self.has_scale or task.scale is not None:
            return {}
        return {"scale": (float(np.mean(answers)), float(np.std(answers)))}

    def unlearnable(self, task: Task, answers: Sequence[Any]) -> str:
        return ""

    def doubts(self, task: Task, train: Sequence[Any], validation: Sequence[Any]) -> Iterator[str]:
        """Two values, or whole numbers in training alone."""
        values = sorted(set(train))
        if len(values) == 2:
            yield (
                f"all training labels are {values[0]:g} or {values[1]:g}: if they are classes, the "
                "type is classification or pair_classification"
            )
        elif all(map(float.is_integer, values)) and not all(map(float.is_integer, validation)):
            yield (
                "all training labels are whole numbers, and validation labels are not: they may "
                "be of different scales, or rounded"
            )

    def encode(self, task: Task, answers: Sequence[Any]) -> Values:
        return np.array(answers, dtype=np.float64)  # None becomes nan

    def decode(self, task: Task, values: Answers) -> list[float]:
        return [float(value) for value in values]

    def write(self, label: float) -> str:
        return repr(label)

    def show(self, task: Task, label: float, texts: Sequence[str]) -> str:
        return f"{label:.2f}"

    def by_label(
        self, task: Task, targets: Answers, values: Answers
    ) -> dict[str, tuple[int, float]]:
        return {}

    def soften(self, task: Task, targets: Answers, smoothing: float) -> Values:
        return targets

    def decide(self, task: Task, logits: Values) -> tuple[Values, Values]:
        mean, deviation = task.scale or (0.0, 1.0)
        values = logits[:, 0] * deviation + mean
        values = np.clip(values, *(task.range or (-np.inf, np.inf))).round(DIGITS)
        return values, np.zeros((len(values), 0))

    def row_weights(self, task: Task, targets: Answers) -> Values:
        return np.ones(len(targets))

    def thresholds(self, targets: Answers, logits: Values) -> Values:
        return np.zeros(logits.shape[1:])

    def confidences(self, values: Answers, probabilities: Values) -> list[float]:
        return []

    def losses(self, targets: Answers, values: Answers, probabilities: Values) -> Values:
        """The squared error."""
        return (values - targets) ** 2

    def distances(self, targets: Answers, values: Answers) -> Values:
        return np.abs(values - targets)

    def span(self, task: Task, values: Answers) -> tuple[float, float]:
        """The range, or that of some values."""
        return task.range or (float(values.min()), float(values.max()))

    def metrics(self, task: Task) -> dict[str, Metric]:
        errors = {"r2": r2, "mae": mean_of(self.distances)} if self.has_scale else {}
        return {"pearson": pearson, "spearman": spearman, **errors}

    def suspicious(self, task: Task, targets: Answers, values: Answers) -> Iterator[str]:
        low, high = self.span(task, targets)
        spread = float(values.std())
        if spread < FLAT * (high - low):
            yield (
                f"the predictions hardly vary (standard deviation {spread:.4f} on "
                f"the range {[low, high]}): this score means nothing"
            )
