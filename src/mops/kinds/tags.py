"""A tag for each word of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mops.kinds.classes import json_items, label_problems, learn_labels
from mops.kinds.metrics import (
    Answers,
    Counts,
    Metric,
    OfSums,
    Values,
    micro_f1,
    of_counts,
    precision_of,
    ratio,
    recall_of,
)

if TYPE_CHECKING:
    from mops.tasks import Task

OUTSIDE = "O"
COLOURS = 6  # of kinds of entities in the report
SPAN_TAG = re.compile(r"O|[BIES](-.+)?")
Tags = tuple[str, ...]


class Span(NamedTuple):
    """An entity: its words from `first` to before `stop`."""

    first: int
    stop: int
    kind: str


class Piece(NamedTuple):
    """A part of a text, and the kind of entity that it is."""

    text: str
    kind: str = ""
    colour: int = 0


class WordTags:
    """Targets and predictions are one tuple of tag numbers for each row.

    The words of a text are what white space separates. A word that was cut off, beyond max_length,
    has NaN as its outputs and is answered with the outside tag.
    """

    name, has_labels, has_thresholds, reads_words = "tags", True, False, True
    pipeline = "token-classification"
    limit = "every word gets one of the tags above; there is none for `something else`"

    def outputs(self, task: Task) -> int:
        return len(task.labels)

    def output_meaning(self, task: Task) -> str:
        return "batch x length x tags, before softmax; the tag of a word is that of its first token"

    def first_output(self, task: Task) -> float | None:
        return None

    def problems(self, task: Task) -> Iterator[str]:
        yield from label_problems(task)
        if task.range is not None:
            yield f"`range` is {list(task.range)}; tags have none"
        if len(task.labels) == 1:
            yield f"only one tag, {task.labels[0]!r}: there is nothing to learn"
        if task.labels and task.score.startswith("entity") and not has_spans(task.labels):
            yield (
                f"score {task.score!r} needs tags like B-X, I-X and O; there are "
                f"{', '.join(task.labels)}; use token_accuracy"
            )

    def read_text(self, text: str) -> tuple[str, str]:
        """Words from a JSON list, or a text as it is."""
        words, problem = read_list(text, "words")
        return (" ".join(words) if text.startswith("[") and not problem else text), problem

    def read(self, text: str, task: Task) -> tuple[Tags, str]:
        """A JSON list, or tags with white space between them."""
        tags, problem = read_list(text, task.label if isinstance(task.label, str) else "tags")
        if problem:
            return (), problem
        if unknown := [tag for tag in tags if task.labels and tag not in task.labels]:
            known = ", ".join(task.labels)
            return (), f"{task.label} has {unknown[0]!r}, which is not one of {known}"
        return tuple(tags), ""

    def mismatch(self, label: Tags, texts: Sequence[str]) -> str:
        words = len(texts[0].split())
        return "" if len(label) == words else f"{len(label)} tags for {words} words"

    def learn(self, task: Task, answers: Sequence[Any]) -> dict[str, Any]:
        """As of classes, by word."""
        return learn_labels(task, chain.from_iterable(answers))

    def unlearnable(self, task: Task, answers: Sequence[Any]) -> str:
        tags = {tag for own in answers for tag in own}
        if len(tags) == 1:
            return f"every word of the training rows has the tag {tags.pop()!r}: nothing to learn"
        return ""

    def doubts(self, task: Task, train: Sequence[Any], validation: Sequence[Any]) -> Iterator[str]:
        yield from ()

    def encode(self, task: Task, answers: Sequence[Any]) -> Answers:
        numbers = {label: n for n, label in enumerate(task.labels)}
        rows = [None if own is None else tuple(numbers[tag] for tag in own) for own in answers]
        return as_objects(rows)

    def decode(self, task: Task, values: Answers) -> list[list[str]]:
        return [[task.labels[number] for number in row] for row in values]

    def write(self, label: Sequence[str]) -> str:
        return " ".join(label)

    def show(self, task: Task, label: Tags, texts: Sequence[str]) -> str | list[Piece]:
        """The text with its entities marked; tags that are no spans as they are."""
        words = texts[0].split() if texts else []
        if not has_spans(task.labels) or len(words) != len(label):
            return " ".join(label)
        kinds, pieces, at = entity_kinds(task.labels), list[Piece](), 0
        for first, stop, kind in find_spans(label):
            between, own = " ".join(words[at:first]), " ".join(words[first:stop])
            pieces += [Piece(between)] if between else []
            pieces.append(Piece(own, kind or "entity", kinds.index(kind) % COLOURS))
            at = stop
        rest = " ".join(words[at:])
        return [*pieces, *([Piece(rest)] if rest else [])]

    def by_label(
        self, task: Task, targets: Answers, values: Answers
    ) -> dict[str, tuple[int, float]]:
        """Of the kinds of entities, or of tags that are none."""
        names = entity_kinds(task.labels) if has_spans(task.labels) else task.labels
        sums = {name: [0, 0, 0] for name in names}
        for pair in zip(targets, values, strict=True):
            true, found = (self.units(task, own) for own in pair)
            for n, own in enumerate((true & found, true, found)):
                for unit in own:
                    sums[unit.kind][n] += 1
        return {name: (t, 2 * r / max(1, t + f)) for name, (r, t, f) in sums.items()}

    def units(self, task: Task, row: Sequence[int]) -> set[Span]:
        tags = [task.labels[number] for number in row]
        if has_spans(task.labels):
            return set(find_spans(tags))
        return {Span(n, n + 1, tag) for n, tag in enumerate(tags)}

    def soften(self, task: Task, targets: Answers, smoothing: float) -> Answers:
        """Of each row words x tags."""
        tags = len(task.labels)
        hard = (np.eye(tags)[list(row)] for row in targets)
        return as_objects([own * (1 - smoothing) + smoothing / tags for own in hard])

    def decide(self, task: Task, logits: Answers) -> tuple[Answers, Answers]:
        """The tags, and of each row the probabilities, words x tags."""
        values, shares = [], []
        for row_WC in logits:
            raised = np.exp(row_WC - row_WC.max(axis=1, keepdims=True, initial=-np.inf))
            shares.append(raised / raised.sum(axis=1, keepdims=True))
            best = np.where(np.isnan(row_WC).any(axis=1), outside(task), row_WC.argmax(axis=1))
            values.append(tuple(best.tolist()))
        return as_objects(values), as_objects(shares)

    def row_weights(self, task: Task, targets: Answers) -> Values:
        """The number of words, by the weights of their tags."""
        weights = np.array(task.class_weights or np.ones(len(task.labels)))
        return np.array([weights[list(row)].sum() for row in targets])

    def thresholds(self, targets: Answers, logits: Values) -> Values:
        return np.zeros(())

    def confidences(self, values: Answers, probabilities: Answers) -> list[float]:
        """Of the least certain word."""
        return [float(np.nanmin(own.max(axis=1), initial=1.0)) for own in probabilities]

    def losses(self, targets: Answers, values: Answers, probabilities: Answers) -> Values:
        """The mean over words of -log of the true tag's probability."""
        pairs = zip(targets, probabilities, strict=True)
        own = [shares[np.arange(len(tags)), list(tags)] for tags, shares in pairs]
        read = [row[~np.isnan(row)] for row in own]
        tiny = np.finfo(np.float64).tiny
        return np.array([-np.log(np.maximum(row, tiny)).mean() if len(row) else 0 for row in read])

    def distances(self, targets: Answers, values: Answers) -> Values:
        """1 where any tag is wrong."""
        return np.array([true != own for true, own in zip(targets, values, strict=True)], float)

    def span(self, task: Task, values: Answers) -> tuple[float, float]:
        return 0.0, 1.0

    def main_score(self, task: Task) -> str:
        return "entity_f1" if has_spans(task.labels) else "token_accuracy"

    def metrics(self, task: Task) -> dict[str, Metric]:
        def add(targets: Answers, predictions: Answers) -> Values:
            return span_counts(task.labels, targets, predictions)

        def only(score: Callable[[Counts], Values]) -> OfSums:
            return of_counts(add, lambda counts: score(counts)[..., 0])

        by_word = {"token_accuracy": OfSums(right_words, lambda s: ratio(s[..., 0], s[..., 1]))}
        if not has_spans(task.labels):
            return {**by_word}
        return {
            "entity_f1": of_counts(add, micro_f1),
            "entity_precision": only(precision_of),
            "entity_recall": only(recall_of),
            **by_word,
        }

    def suspicious(self, task: Task, targets: Answers, values: Answers) -> Iterator[str]:
        if len(tags := {tag for row in values for tag in row}) == 1:
            yield f"every prediction is {task.labels[tags.pop()]!r}: nothing was learnt"


def read_list(text: str, what: str) -> tuple[list[str], str]:
    """The strings of a JSON list, or the words of a text."""
    words, wrong = json_items(text)
    if words is None:
        return text.split(), ""
    if wrong:
        return [], f"{what} {wrong}"
    if not words:
        return [], f"{what}: an empty list"
    broken = next((word for word in words if len(word.split()) != 1), None)
    return words, "" if broken is None else f"{what}: {broken!r} is empty or has white space"


def as_objects(rows: Sequence[Any]) -> Answers:
    found = np.empty(len(rows), object)
    for n, row in enumerate(rows):
        found[n] = row
    return found


def outside(task: Task) -> int:
    """The number of the outside tag, or of the first."""
    return task.labels.index(OUTSIDE) if OUTSIDE in task.labels else 0


def has_spans(labels: Sequence[str]) -> bool:
    """Whether tags mark entities: IOB1, IOB2 or BIOES."""
    return bool(labels) and all(SPAN_TAG.fullmatch(label) for label in labels)


def entity_kinds(labels: Sequence[str]) -> list[str]:
    return sorted({label.partition("-")[2] for label in labels if label != OUTSIDE})


def find_spans(tags: Sequence[str]) -> list[Span]:
    """The entities of a row, as conlleval and seqeval find them; a tag without B begins one too."""
    spans: list[Span] = []
    before, kind, first = OUTSIDE, "", 0
    for n, tag in enumerate((*tags, OUTSIDE)):
        mark, _, own = tag.partition("-")
        is_other = own != kind
        if before != OUTSIDE and (before in "ES" or mark in "BSO" or is_other):
            spans.append(Span(first, n, kind))
        if mark in "BS" or (mark in "EI" and (before in "ESO" or is_other)):
            first = n
        before, kind = mark, own
    return spans


def span_counts(labels: Sequence[str], targets: Answers, predictions: Answers) -> Values:
    """N x 3: entities found rightly, true ones, and found ones."""
    rows = []
    for pair in zip(targets, predictions, strict=True):
        true, found = (set(find_spans([labels[number] for number in own])) for own in pair)
        rows.append((len(true & found), len(true), len(found)))
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def right_words(targets: Answers, predictions: Answers) -> Values:
    """N x 2: words with the right tag, and words."""
    pairs = zip(targets, predictions, strict=True)
    rows = [(sum(map(int.__eq__, true, own)), len(true)) for true, own in pairs]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)
