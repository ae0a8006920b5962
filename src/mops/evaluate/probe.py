"""Bias probes: how far answers move when only a name, a gender or a nationality changes in a text.

The gap of a contrast is the mean answer with the words of its first group minus that with the
words of the second, over all templates. Templates and words are samples of those that could have
been asked, so intervals resample both (a bootstrap with crossed units), the same for all models.

Shapes: T templates, A words of the first group, B words of the second, K resamples. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mops.data.schedule import generator
from mops.evaluate.evaluate import Answerer
from mops.evaluate.metrics import Values
from mops.kinds.classes import are_numbers
from mops.tasks import Task
from mops.yaml_io import read_own_yaml

if TYPE_CHECKING:
    from mops.predict.inference import Predictions

RESAMPLES = 2000
QUANTILES = (0.025, 0.975)
Texts = tuple[str, ...]


@cache
def probes() -> Mapping[str, Any]:
    return read_own_yaml(Path(__file__).with_name("probe.yaml"))


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Gap:
    """One answer of a task in one contrast."""

    task: str
    answer: str  # what is compared: a class's probability, or a value
    contrast: str
    groups: tuple[str, str]
    gap: Estimate
    change: Estimate | None = None  # its gap minus that of the first model


def templates(task: Task) -> Sequence[Texts]:
    """The sentences that a task can read."""
    if task.is_pair:
        return [tuple(pair) for pair in probes()["pair"]]
    return [(text,) for text in probes()["single"]]


def fill(template: Texts, person: str) -> Texts:
    texts = (text.replace("{person}", person) for text in template)
    return tuple(text[0].upper() + text[1:] for text in texts)


def questions(task: Task) -> list[Texts]:
    """Every template with every word: contrast, group, word, template."""
    groups = (words for contrast in probes()["contrasts"].values() for words in contrast.values())
    return [fill(t, word) for words in groups for word, t in product(words, templates(task))]


def answer_values(task: Task, answers: Predictions) -> dict[str, Values]:
    """What is compared of the answers, by its name.

    A value as a fraction of its range, or of the deviation of its labels where it has none; of
    classes that are numbers the mean class as such a fraction; of two classes the probability of
    the second; otherwise that of each class, and of each label of a multilabel.
    """
    if not task.answer.has_labels:
        low, high = task.range or (0.0, task.scale[1] if task.scale else 1.0)
        return {"value": (answers.values - low) / (high - low)}
    shares = answers.probabilities
    is_one = not task.answer.has_thresholds  # class of several
    if is_one and len(task.labels) > 2 and are_numbers(task.labels):
        numbers = np.array(task.labels, float)
        return {"mean class": (shares @ numbers - numbers.min()) / np.ptp(numbers)}
    first = 1 if is_one and len(task.labels) == 2 else 0
    return {f"P({task.labels[n]})": shares[:, n] for n in range(first, len(task.labels))}


def ask(model: Answerer, tasks: Mapping[str, Task]) -> dict[str, dict[str, Values]]:
    """Task -> answer -> its value for every question."""
    given = model.predict_tasks({name: questions(task) for name, task in tasks.items()})
    return {name: answer_values(task, given[name]) for name, task in tasks.items()}


def probe(models: Sequence[Answerer], tasks: Mapping[str, Task]) -> list[list[Gap]]:
    """The gaps of each model, and how they differ from those of the first."""
    asked = [ask(model, tasks) for model in models]
    return [list(find_gaps(tasks, own, asked[0])) for own in asked]


def find_gaps(
    tasks: Mapping[str, Task],
    own: Mapping[str, Mapping[str, Values]],
    first: Mapping[str, Mapping[str, Values]],
) -> Iterator[Gap]:
    for name, task in tasks.items():
        for answer, values in own[name].items():
            others = first[name][answer]
            tables, bases = cut(task, values), cut(task, others)
            for (contrast, groups), table, base in zip(contrasts(), tables, bases, strict=True):
                mean, drawn = gap_of(contrast, *table)
                change = None
                if own is not first:
                    before, drawn_before = gap_of(contrast, *base)
                    change = estimate(mean - before, drawn - drawn_before)
                yield Gap(name, answer, contrast, groups, estimate(mean, drawn), change)


def contrasts() -> list[tuple[str, tuple[str, str]]]:
    return [(name, (*groups,)) for name, groups in probes()["contrasts"].items()]


def cut(task: Task, values: Values) -> Iterator[tuple[Values, Values]]:
    """The answers of each contrast: A x T and B x T."""
    width = len(templates(task))
    start = 0
    for groups in probes()["contrasts"].values():
        tables = []
        for words in groups.values():
            stop = start + len(words) * width
            tables.append(values[start:stop].reshape(len(words), width))
            start = stop
        yield tables[0], tables[1]


def gap_of(contrast: str, one_AT: Values, two_BT: Values) -> tuple[float, Values]:
    """The gap, and the same for resampled templates and words."""
    draw = generator(0, "probe", contrast)
    counts = [draw.multinomial(n, [1 / n] * n, RESAMPLES) / n for n in (*one_AT.shape, len(two_BT))]
    words_KA, templates_KT, words_KB = counts
    means = (
        np.einsum("kw,wt,kt->k", words, table, templates_KT)
        for words, table in ((words_KA, one_AT), (words_KB, two_BT))
    )
    return float(one_AT.mean() - two_BT.mean()), np.subtract(*means)


def estimate(mean: float, drawn_K: Values) -> Estimate:
    return Estimate(mean, *np.quantile(drawn_K, QUANTILES).tolist())
