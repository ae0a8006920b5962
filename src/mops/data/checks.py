"""What `mops check` tells of the data of one task, before anything is trained."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mops.data.examples import SHOWN_ROWS, Row, RowsRead
from mops.data.splits import normalised
from mops.tasks import Task, sorted_labels

SHOWN_CHARACTERS = 80
TRAIN, VALIDATION, TEST = "train", "validation", "test"

Texts = tuple[str, ...]


@dataclass(frozen=True)
class Numbers:
    """How the labels of a similarity are spread."""

    lowest: float
    quartiles: tuple[float, float, float]
    highest: float
    mean: float
    deviation: float


@dataclass(frozen=True)
class SplitReport:
    """One file of a task; what concerns train is None for train itself."""

    source: str
    rows: int
    bad_rows: int
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    labels: dict[str, int]
    numbers: Numbers | None
    duplicates: int
    rows_in_train: int | None
    rows_sharing_a_sentence_with_train: int | None
    rows_in_validation: int | None = None  # of a test split


@dataclass(frozen=True)
class Sample:
    texts: tuple[str, ...]
    label: str | float | None
    where: str


@dataclass(frozen=True)
class TaskReport:
    """All splits of a task, and the score that needs no model.

    `baseline` is the share of validation rows that have train's most frequent class; a constant
    answer has no correlation with anything, so for a similarity it is 0 by definition.
    """

    task: str
    type: str
    splits: dict[str, SplitReport]
    samples: tuple[Sample, ...]
    baseline_class: str | None
    baseline: float | None


def examine(task: Task, splits: Mapping[str, RowsRead]) -> TaskReport:
    """The facts about the rows of `splits` (train, validation, test), unusable ones counted."""
    texts = {name: [_normalised_texts(row) for row in read.good] for name, read in splits.items()}
    train = splits[TRAIN].good
    validation = splits[VALIDATION].good if VALIDATION in splits else ()
    common, baseline = _baseline(task, train, validation)
    reports = {
        name: _report(task, read, texts[name], None if name == TRAIN else texts[TRAIN])
        for name, read in splits.items()
    }
    if {VALIDATION, TEST} <= set(splits):
        within = _rows_within(texts[TEST], texts[VALIDATION])
        reports[TEST] = replace(reports[TEST], rows_in_validation=within)
    return TaskReport(
        task=task.name,
        type=task.type,
        splits=reports,
        samples=tuple(_sample(row) for row in train[:SHOWN_ROWS]),
        baseline_class=common,
        baseline=baseline,
    )


def _report(
    task: Task, read: RowsRead, texts: list[Texts], train: list[Texts] | None
) -> SplitReport:
    counts = Counter(row.label for row in read.good if isinstance(row.label, str))
    bad = read.bad
    return SplitReport(
        source=read.source,
        rows=len(read.rows),
        bad_rows=len(bad),
        reasons=tuple(f"{row.where} {row.problem}" for row in bad[:SHOWN_ROWS]),
        notes=read.notes,
        labels={label: counts[label] for label in _labels_to_count(task, counts)},
        numbers=_numbers([row.label for row in read.good if isinstance(row.label, float)]),
        duplicates=len(texts) - len(set(texts)),
        rows_in_train=None if train is None else _rows_within(texts, train),
        rows_sharing_a_sentence_with_train=(
            None if train is None or not task.is_pair else _rows_sharing(texts, train)
        ),
    )


def _labels_to_count(task: Task, counts: Counter[str]) -> tuple[str, ...]:
    """All classes where rows are labelled, so that one without rows shows its zero."""
    return sorted_labels(set(counts) | set(task.labels)) if counts else ()


def _rows_within(texts: list[Texts], train: list[Texts]) -> int:
    known = set(train)
    return sum(row in known for row in texts)


def _rows_sharing(texts: list[Texts], train: list[Texts]) -> int:
    known = {sentence for row in train for sentence in row}
    return sum(not known.isdisjoint(row) for row in texts)


def _numbers(values: list[float]) -> Numbers | None:
    if not values:
        return None
    several = values if values[1:] else values * 2  # one value is its own quartiles
    low, middle, high = statistics.quantiles(several, method="inclusive")
    return Numbers(
        lowest=min(values),
        quartiles=(low, middle, high),
        highest=max(values),
        mean=statistics.fmean(values),
        deviation=statistics.pstdev(values),
    )


def _baseline(
    task: Task, train: Sequence[Row], validation: Sequence[Row]
) -> tuple[str | None, float | None]:
    labels = [row.label for row in validation if row.label is not None]
    if not labels:
        return None, None
    if task.is_similarity:
        return None, 0.0
    counts = Counter(row.label for row in train if isinstance(row.label, str))
    if not counts:
        return None, None
    common = counts.most_common(1)[0][0]
    return common, labels.count(common) / len(labels)


def _sample(row: Row) -> Sample:
    return Sample(tuple(map(_shortened, row.texts)), row.label, row.where)


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _normalised_texts(row: Row) -> Texts:
    """In the order of words: a pair that was only swapped is the same row."""
    return tuple(sorted(map(normalised, row.texts)))
