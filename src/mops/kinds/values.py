"""A value: a number, in a range or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mops.kinds.metrics import Answers, Metric, Values, pearson, spearman

if TYPE_CHECKING:
    from mops.tasks import Task

DIGITS = 6  # decimals of a value: scores are computed from the values that are written
FLAT = 0.01  # of the range: predictions that vary less than this are meaningless


class RangeValues:
    """Targets and predictions are numbers within the range of the task."""

    name, has_labels = "value", False

    def outputs(self, task: Task) -> int:
        return 1

    def problems(self, task: Task) -> Iterator[str]:
        if task.range is None:
            yield f"a {task.type} needs `range: [lowest, highest]`"
        elif task.range[0] >= task.range[1]:
            yield f"`range` is {list(task.range)}; it belongs to a similarity and must increase"
        if task.labels or task.class_weights:
            yield f"a {task.type} has a `range`, not `labels` or `class_weights`"

    def read(self, text: str, task: Task) -> tuple[float, str]:
        low, high = task.range or (-math.inf, math.inf)
        try:
            value = float(text)
        except ValueError:
            return math.nan, f"{text!r} is not a number"
        is_within = low <= value <= high  # nan is in no range
        return value, "" if is_within else f"{text} is not between {low:g} and {high:g}"

    def labels(self, task: Task, answers: Iterable[Any]) -> tuple[str, ...]:
        return ()

    def encode(self, task: Task, answers: Sequence[Any]) -> Values:
        return np.array(answers, dtype=np.float64)  # None becomes nan

    def decode(self, task: Task, values: Answers) -> list[float]:
        return [float(value) for value in values]

    def write(self, label: float) -> str:
        return repr(label)

    def soften(self, task: Task, targets: Answers, smoothing: float) -> Values:
        return targets

    def decide(self, task: Task, logits: Values) -> tuple[Values, Values]:
        values = np.clip(logits[:, 0], *(task.range or (None, None))).round(DIGITS)
        return values, np.zeros((len(values), 0))

    def confidences(self, values: Answers, probabilities: Values) -> list[float]:
        return []

    def losses(self, targets: Answers, values: Answers, probabilities: Values) -> Values:
        """The squared error."""
        return (values - targets) ** 2

    def distances(self, targets: Answers, values: Answers) -> Values:
        return np.abs(values - targets)

    def metrics(self, task: Task) -> dict[str, Metric]:
        return {"pearson": pearson, "spearman": spearman}

    def suspicious(self, task: Task, targets: Answers, values: Answers) -> Iterator[str]:
        low, high = task.range or (float(targets.min()), float(targets.max()))
        spread = float(values.std())
        if spread < FLAT * (high - low):
            yield (
                f"the predictions hardly vary (standard deviation {spread:.4f} on "
                f"the range {[low, high]}): this score means nothing"
            )
