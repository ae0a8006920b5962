"""Facts about the data of one task, for `mops check` and the report, before anything is trained."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mops.config.recipe import Recipe
from mops.data.dataset import SHOWN_ROWS, RowsRead
from mops.data.doubts import FEW_ROWS, describe_skew
from mops.data.splits import Row
from mops.kinds.classes import sorted_labels
from mops.tasks import Task

TRAIN, VALIDATION, TEST = "train", "validation", "test"
Texts = tuple[str, ...]


@dataclass(frozen=True)
class SplitReport:
    """One file of a task; overlaps with train are None for train itself."""

    source: str
    rows: int
    bad_rows: int
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    labels: dict[str, int]
    numbers: Mapping[str, Any] | None  # the distribution of the labels of a similarity
    duplicates: int
    rows_in_train: int | None
    rows_sharing_a_sentence_with_train: int | None
    rows_in_validation: int | None = None  # of a test split


@dataclass(frozen=True)
class TaskReport:
    """All splits of a task, and the score that needs no model.

    `baseline` is the fraction of validation rows with train's most frequent class; a constant
    answer has no correlation with anything, so for a similarity it is 0 by definition.
    """

    task: str
    type: str
    splits: dict[str, SplitReport]
    samples: tuple[Mapping[str, Any], ...]  # texts, label and where of the first rows
    baseline_class: str | None
    baseline: float | None


def examine(task: Task, splits: Mapping[str, RowsRead]) -> TaskReport:
    """The facts about the rows of `splits` (train, validation, test), unusable ones counted."""
    texts = {name: [row.content for row in read.good] for name, read in splits.items()}
    train, validation = splits[TRAIN].good, splits.get(VALIDATION, RowsRead("", ())).good
    common, baseline = _baseline(task, train, validation)
    return TaskReport(
        task=task.name,
        type=task.type,
        splits={name: _report(task, name, read, texts) for name, read in splits.items()},
        samples=tuple(
            {"texts": tuple(map(_shorten, row.texts)), "label": row.label, "where": row.where}
            for row in train[:SHOWN_ROWS]
        ),
        baseline_class=common,
        baseline=baseline,
    )


def advise(recipe: Recipe, splits: Mapping[str, Mapping[str, RowsRead]]) -> Iterator[str]:
    """Settings that may help with rare classes and few rows."""
    few: dict[str, int] = {}
    for name, own in splits.items():
        entry, parts = recipe.tasks[name], [own[TRAIN], own.get(VALIDATION, RowsRead("", ()))]
        counts = Counter(row.label for row in own[TRAIN].labelled if isinstance(row.label, str))
        if not entry.class_weights and (skew := describe_skew(counts)):
            yield (
                f"{name}: {skew}; `class_weights: balanced` makes classes count alike in the loss, "
                "and `score: macro_f1` in the score"
            )
        rows = sum(len(part.labelled) for part in parts)
        if rows <= FEW_ROWS and not (entry.validation or entry.fold or recipe.training.folds):
            few[name] = rows
    if few and not any(entry.validation for entry in recipe.tasks.values()):
        fewest = min(few, key=few.__getitem__)
        held = len(splits[fewest][VALIDATION].labelled)
        yield (
            f"{fewest}: {held:,} of {few[fewest]:,} rows are few to judge by; folds (`training."
            "folds: 5`) judge every row"
        )


def named_labels(row: Row) -> tuple[str, ...]:
    """The labels of a row, if they are words."""
    if isinstance(row.label, tuple):
        return row.label
    return (row.label,) if isinstance(row.label, str) else ()


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _report(task: Task, name: str, read: RowsRead, texts: Mapping[str, list[Texts]]) -> SplitReport:
    own, train = texts[name], set(texts[TRAIN])
    counts = Counter(chain.from_iterable(map(named_labels, read.good)))
    # All classes where rows are labelled, so that a class without rows shows its zero.
    classes = sorted_labels(set(counts) | set(task.labels)) if counts else ()
    sentences = {sentence for row in train for sentence in row}
    validation = set(texts[VALIDATION]) if name == TEST and VALIDATION in texts else None
    return SplitReport(
        source=read.source,
        rows=len(read.rows),
        bad_rows=len(read.bad),
        reasons=tuple(f"{row.where} {row.problem}" for row in read.bad[:SHOWN_ROWS]),
        notes=read.notes,
        labels={label: counts[label] for label in classes},
        numbers=_statistics([row.label for row in read.good if isinstance(row.label, float)]),
        duplicates=len(own) - len(set(own)),
        rows_in_train=None if name == TRAIN else sum(row in train for row in own),
        rows_sharing_a_sentence_with_train=None
        if name == TRAIN or not task.is_pair
        else sum(not sentences.isdisjoint(row) for row in own),
        rows_in_validation=None if validation is None else sum(row in validation for row in own),
    )


def _statistics(values: list[float]) -> Mapping[str, Any] | None:
    if not values:
        return None
    return {
        "lowest": min(values),
        "highest": max(values),
        "mean": statistics.fmean(values),
        "deviation": statistics.pstdev(values),
    }


def _baseline(
    task: Task, train: Sequence[Row], validation: Sequence[Row]
) -> tuple[str | None, float | None]:
    labels = [row.label for row in validation if row.label is not None]
    if labels and not task.answer.has_labels:
        return None, 0.0
    counts = Counter(row.label for row in train if isinstance(row.label, str))
    if not labels or not counts:
        return None, None
    common = counts.most_common(1)[0][0]
    return common, labels.count(common) / len(labels)
