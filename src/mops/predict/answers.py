"""From the network's outputs to answers: classes with their shares, or values on a range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mops.tasks import Task

Values = NDArray[np.float64]
DIGITS = 6  # of a similarity: what is scored is what is written


@dataclass(frozen=True)
class Answers:
    """What a task says of rows, in their order."""

    task: Task
    predictions: Values  # class number, or the value
    shares: Values  # rows x classes, sums to 1; for a similarity rows x 0

    def words(self) -> list[str]:
        """The answers as they are written to a file."""
        if self.task.is_similarity:
            return [repr(float(value)) for value in self.predictions]
        return [self.task.labels[int(number)] for number in self.predictions]

    def confidences(self) -> list[float]:
        """The share of each predicted class; of a similarity there is none."""
        return [] if self.task.is_similarity else self.shares.max(axis=1).tolist()

    def losses(self, targets: Values) -> Values:
        """How wrong each answer is: -log of the true class's share, or the squared error.

        NaN where the target is.
        """
        if self.task.is_similarity:
            return (self.predictions - targets) ** 2
        known = ~np.isnan(targets)
        losses = np.full(len(targets), np.nan)
        shares = self.shares[known, targets[known].astype(int)]
        losses[known] = -np.log(np.maximum(shares, np.finfo(np.float64).tiny))
        return losses


def decide(task: Task, outputs: NDArray[np.float32]) -> Answers:
    """Outputs of a head as answers."""
    logits = outputs.astype(np.float64)
    if task.is_similarity:
        assert task.range is not None
        values: Values = np.clip(logits[:, 0], *task.range).round(DIGITS)
        return Answers(task, values, np.zeros((len(values), 0)))
    logits = CLASS_LOGITS[task.loss_name](logits)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = raised / raised.sum(axis=1, keepdims=True)
    return Answers(task, logits.argmax(axis=1).astype(np.float64), shares)


def beside_zero(logits: Values) -> Values:
    """One logit for two classes: sigmoid is a softmax over (0, logit)."""
    return np.concatenate([np.zeros_like(logits), logits], axis=1)


def between_steps(logits: Values) -> Values:
    """Logits of P(y > k) as logarithms of P(y = k) = P(y > k-1) - P(y > k).

    A network may say P(y > 1) < P(y > 2): the smallest so far holds, so that no share is below 0.
    """
    above = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))  # exp is finite there
    falling = np.minimum.accumulate(above, axis=1)
    edges = np.pad(falling, ((0, 0), (1, 0)), constant_values=1.0)
    shares: Values = edges - np.pad(falling, ((0, 0), (0, 1)))
    with np.errstate(divide="ignore"):
        logs: Values = np.log(shares)
    return logs


# loss of a classification -> its outputs as one logit per class
CLASS_LOGITS: dict[str, Callable[[Values], Values]] = {
    "cross_entropy": lambda logits: logits,
    "binary_cross_entropy": beside_zero,
    "ordinal": between_steps,
}
