"""What makes scores doubtful before anything is trained: leaks, few rows, doubtful labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from mops.errors import GuardError
from mops.tasks import Task

if TYPE_CHECKING:
    from mops.data.dataset import RowsRead

TRAIN = "train"
FEW_ROWS = 300  # for training and validation: a tenth of them tells plans apart only by accident
SKEWED = 10  # times as many rows of one class as of another
Content = tuple[str, ...]  # of a row: its normalised texts
Splits = Mapping[str, Mapping[str, "RowsRead"]]  # task -> split -> rows


def find_leaks(splits: Splits) -> Iterator[str]:
    """Rows that are scored and also trained on, by their own task or by another one.

    A task with another number of texts has seen a row if it has seen all of its texts.
    """
    contents = {
        task: {split: [row.content for row in read.good] for split, read in own.items()}
        for task, own in splits.items()
    }
    trained = {task: set(own.get(TRAIN, ())) for task, own in contents.items()}
    texts = {task: {text for row in rows for text in row} for task, rows in trained.items()}

    def has_seen(other: str, row: Content, width: int) -> bool:
        seen = next(iter(trained[other]), ())
        return row in trained[other] if len(seen) == width else texts[other].issuperset(row)

    for task, own in contents.items():
        for split, rows in ((split, rows) for split, rows in own.items() if split != TRAIN):
            width = len(rows[0]) if rows else 0
            counts = {
                other: sum(has_seen(other, row, width) for row in rows)
                for other in contents
                if other == task or trained[other] != trained[task]
            }
            if known := counts.pop(task):
                yield f"{task}: {known:,} of {len(rows):,} {split} rows are also in train"
            if found := [f"{n:,} of {other}" for other, n in counts.items() if n]:
                yield (
                    f"{task}: of {len(rows):,} {split} rows, these are also in the training rows "
                    f"of other tasks: {', '.join(found)}"
                )


def describe_skew(counts: Mapping[str, int]) -> str:
    """How far the classes are from equally many rows; empty where they are near enough."""
    common, rare = (pick(counts, key=counts.__getitem__, default="") for pick in (max, min))
    if len(counts) < 2 or counts[common] < SKEWED * counts[rare]:
        return ""
    return f"{counts[common]:,} rows are {common!r}, {counts[rare]:,} {rare!r}"


def refuse_leaks(leaks: Iterable[str]) -> None:
    """For `strict`."""
    if told := list(dict.fromkeys(leaks)):
        raise GuardError(
            f"strict: rows that are scored are also trained on: {'; '.join(told)}; remove them "
            "from the training files, or leave out `strict`"
        )


def doubtful_labels(tasks: Mapping[str, Task], splits: Splits) -> Iterator[str]:
    """Labels that are probably not what the type of their task says."""
    for name, own in splits.items():
        labels = {split: [row.label for row in read.labelled] for split, read in own.items()}
        validation = labels.get("validation", [])
        for doubt in tasks[name].answer.doubts(tasks[name], labels.get(TRAIN, []), validation):
            yield f"{name}: {doubt}"
