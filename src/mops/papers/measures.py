"""What a column of a paper is of ours, in the paper's own convention and unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import mean

from mops.evaluate.cost import FLOAT_BYTES, tm_relative
from mops.papers.ours import SCORES, Ours
from mops.surveys.results.results import CandidateResult
from mops.units import format_seconds

THOUSAND_KIB = 1000 * 1024  # the founding paper prints thousands of KiB


@dataclass(frozen=True)
class Asked:
    """Our candidate beside a row of a paper, and the one beside the table's first row."""

    ours: Ours
    one: CandidateResult
    base: CandidateResult | None
    split: str


@dataclass(frozen=True)
class Measure:
    """How a column is filled and how its numbers read."""

    of: Callable[[Asked], float | None]
    words: Callable[[float], str]
    printed: Callable[[float], str] | None = None  # of the paper's numbers, where these read else


def score_of(asked: Asked, task: str) -> float | None:
    values = asked.ours.scores(asked.one, task, asked.split)
    return mean(values) if values else None


def overall_of(asked: Asked, convention: str) -> float | None:
    return asked.ours.overall(asked.one, asked.split, convention)


def epoch_of(asked: Asked) -> float | None:
    """Counted from 0, as the founding paper does: the first evaluation closes epoch 0."""
    return mean(trial.best_epoch for trial in asked.one.trials) - 1


def seconds_of(asked: Asked) -> float | None:
    found = asked.one.costs.train_seconds
    return None if found is None else float(found)


def checkpoint_bytes(one: CandidateResult) -> float | None:
    """A checkpoint as the founding paper stored it: weights, and Adam's two moments of what learns.

    Its "model size" is this file; weights alone hardly differ between regimes.
    """
    weights, trained = one.costs.weight_bytes, one.costs.trained_parameters
    return None if weights is None or trained is None else weights + 2 * trained * FLOAT_BYTES


def size_of(asked: Asked) -> float | None:
    found = checkpoint_bytes(asked.one)
    return None if found is None else found / THOUSAND_KIB


def tm_of(asked: Asked) -> float | None:
    """The founding paper's formula (figure 3), with its size; the first row's is 1."""
    base = asked.base
    if base is None or base.costs.source != asked.one.costs.source:
        return None  # times of different moments say nothing of each other
    facts = [
        (asked.ours.overall(one, asked.split, "overall"), one.costs.train_seconds,
         checkpoint_bytes(one))
        for one in (asked.one, base)
    ]  # fmt: skip
    known = [value for of in facts for value in of if value]
    if len(known) < 6:
        return None
    score, seconds, size, score0, seconds0, size0 = known
    return tm_relative(score, seconds, size, score0=score0, seconds0=seconds0, size0=size0)


def tm_printed_of(asked: Asked) -> float | None:
    """As its tables print it: without the division by the baseline's score."""
    found = tm_of(asked)
    if found is None or asked.base is None:
        return None
    first = asked.ours.overall(asked.base, asked.split, "overall")
    return None if first is None else found * first


def three_digits(value: float) -> str:
    return f"{value:.3f}"


def all_digits(value: float) -> str:
    return three_digits(value) if round(value, 3) == value else f"{value:.4f}"


MEASURES = {
    **{task: Measure(partial(score_of, task=task), three_digits, all_digits) for task in SCORES},
    **{
        name: Measure(partial(overall_of, convention=name), three_digits)
        for name in ("overall", "overall_normalised")
    },
    "epoch": Measure(epoch_of, lambda value: f"{value:.1f}".removesuffix(".0")),
    "seconds": Measure(seconds_of, lambda value: f"{value:,.0f} s"),
    "hours": Measure(seconds_of, format_seconds),
    "size": Measure(size_of, lambda value: f"{value:,.0f}K"),
    "tm_printed": Measure(tm_printed_of, three_digits),
    "tm": Measure(tm_of, three_digits),
}
