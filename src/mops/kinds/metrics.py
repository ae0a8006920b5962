"""Scores of a whole split, never averaged over batches. numpy only.

Nearly every score is a function of sums over rows: a row adds its K numbers, and resampled rows are
one matrix product. So a score, its bootstrap error and its covariance between runs are one rule.

Shapes: N rows, B resamples, K numbers of a row, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Answers = NDArray[Any]  # targets or predictions: one entry for each row along the first axis
Resampler = Callable[[Values], Values]
FLAT = 1e-12  # of the mean square: a smaller variance is rounding


def known(targets: Answers) -> NDArray[np.bool_]:
    """Which rows have a target."""
    if targets.dtype == object:
        return np.array([target is not None for target in targets], dtype=bool)
    return np.asarray(~np.isnan(targets.reshape(len(targets), -1)).any(axis=1))


def as_bytes(answers: Answers) -> bytes:
    """The same for equal answers."""
    return repr(answers.tolist()).encode() if answers.dtype == object else answers.tobytes()


class Metric(Protocol):
    """A score of targets and predictions."""

    def __call__(self, targets: Answers, predictions: Answers, /) -> float: ...

    def resampler(self, targets: Answers, predictions: Answers, /) -> Resampler:
        """A function of B x N, how often each row was drawn, to B scores."""


@dataclass(frozen=True)
class OfSums:
    """A score that is a function of sums over rows."""

    add: Callable[[Answers, Answers], Values]  # N x K: what each row adds
    of_sums: Callable[[Values], Values]  # of ... x K sums

    def __call__(self, targets: Answers, predictions: Answers, /) -> float:
        return float(self.of_sums(self.add(targets, predictions).sum(0)))

    def resampler(self, targets: Answers, predictions: Answers, /) -> Resampler:
        rows_NK = self.add(targets, predictions)
        return lambda counts_BN: self.of_sums(counts_BN @ rows_NK)


@dataclass(frozen=True)
class OfRows:
    """Any other score: resample by resample."""

    score: Callable[[Answers, Answers], float]

    def __call__(self, targets: Answers, predictions: Answers, /) -> float:
        return self.score(targets, predictions)

    def resampler(self, targets: Answers, predictions: Answers, /) -> Resampler:
        def resample(counts_BN: Values) -> Values:
            numbers = np.arange(len(targets))
            picks = (np.repeat(numbers, counts_N.astype(int)) for counts_N in counts_BN)
            return np.array([self.score(targets[pick], predictions[pick]) for pick in picks])

        return resample


def ratio(over: Values, under: Values) -> Values:
    """0 where it is not defined."""
    return np.divide(over, under, out=np.zeros(np.shape(over)), where=np.asarray(under) > 0)


def mean_of(measure: Callable[[Answers, Answers], Any]) -> OfSums:
    """The mean over rows of a number of each row."""

    def add(targets: Answers, predictions: Answers) -> Values:
        own = np.asarray(measure(targets, predictions), dtype=np.float64)
        return np.stack([np.ones(len(own)), own], axis=-1)

    return OfSums(add, lambda sums: ratio(sums[..., 1], sums[..., 0]))


@dataclass(frozen=True)
class Counts:
    """Of each class: how often it is answered rightly, true, and answered."""

    right: Values  # ... x C
    true: Values
    guessed: Values

    @property
    def occurs(self) -> NDArray[np.bool_]:
        return (self.true + self.guessed) > 0


def of_counts(
    add: Callable[[Answers, Answers], Values], score: Callable[[Counts], Values]
) -> OfSums:
    """`add` gives N x 3C: right, true and guessed of each class."""
    return OfSums(add, lambda sums: score(Counts(*np.split(sums, 3, axis=-1))))


def mean_where(values: Values, is_counted: NDArray[np.bool_]) -> Values:
    """The mean over some classes."""
    return ratio((values * is_counted).sum(-1), is_counted.sum(-1).astype(np.float64))


def f1_of(counts: Counts) -> Values:
    return ratio(2 * counts.right, counts.true + counts.guessed)


def precision_of(counts: Counts) -> Values:
    return ratio(counts.right, counts.guessed)


def recall_of(counts: Counts) -> Values:
    return ratio(counts.right, counts.true)


def second_or_macro(of_class: Callable[[Counts], Values]) -> Callable[[Counts], Values]:
    """Of the second of two classes, or the mean over the classes that occur."""

    def score(counts: Counts) -> Values:
        values = of_class(counts)
        is_binary = values.shape[-1] == 2
        return values[..., 1] if is_binary else mean_where(values, counts.occurs)

    return score


def macro(of_class: Callable[[Counts], Values]) -> Callable[[Counts], Values]:
    """The mean over the classes that occur."""
    return lambda counts: mean_where(of_class(counts), counts.occurs)


def micro_f1(counts: Counts) -> Values:
    """F1 of all classes counted together."""
    whole = counts.true.sum(-1) + counts.guessed.sum(-1)
    return ratio(2 * counts.right.sum(-1), whole)


def matthews(counts: Counts) -> Values:
    """The correlation of two classifications (Gorodkin 2004); 0 when one of them is constant."""
    true, guessed, n = counts.true, counts.guessed, counts.true.sum(-1)
    covariance = counts.right.sum(-1) * n - (true * guessed).sum(-1)
    spread = np.sqrt((n**2 - (guessed**2).sum(-1)) * (n**2 - (true**2).sum(-1)))
    return ratio(covariance, spread)


def moments(targets: Answers, predictions: Answers) -> Values:
    """N x 6: 1, x, y, x^2, y^2, x y, of values around their means."""
    x, y = targets - targets.mean(), predictions - predictions.mean()
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=-1)


def correlation(sums: Values) -> Values:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.sqrt(variance(xx / n, x / n) * variance(yy / n, y / n))
    return ratio(xy / n - (x / n) * (y / n), spread)


def explained(sums: Values) -> Values:
    """1 - sum of squared errors / sum of squares around the mean."""
    n, x, xx, squared_errors = np.moveaxis(sums, -1, 0)
    total = n * variance(xx / n, x / n)
    return np.where(total > 0, 1 - ratio(squared_errors, total), 0.0)


def errors(targets: Answers, predictions: Answers) -> Values:
    """N x 4: 1, x, x^2, (y - x)^2, with x around its mean."""
    x = targets - targets.mean()
    return np.stack([np.ones(len(x)), x, x * x, (predictions - targets) ** 2], axis=-1)


def variance(mean_square: Values, mean: Values) -> Values:
    left = mean_square - mean**2
    return np.where(left > FLAT * mean_square, left, 0.0)


# The linear correlation; 0 when one side is constant, where it is not defined.
pearson = OfSums(moments, correlation)


r2 = OfSums(errors, explained)  # the coefficient of determination


def rank_correlation(targets: Answers, predictions: Answers) -> float:
    return pearson(ranks(targets), ranks(predictions))


spearman = OfRows(rank_correlation)


def ranks(values: Values) -> Values:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Values = (last - counts + last - 1) / 2
    return means[inverse]
