"""The data of a survey: rows per split, duplicates, leaks, and constant baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mops.data.checks import TaskReport, examine
from mops.data.dataset import SPLITS, read_task
from mops.errors import MopsError
from mops.reports.answers import why_changed
from mops.reports.source import Source, TrialFiles
from mops.tables import EMPTY, Cell, Table, number_cell

MOST_BYTES = 3_000_000  # of data that is read again, smallest tasks first: about half a second
COLUMNS = {  # column -> field of the split's report
    "rows": "rows",
    "skipped": "bad_rows",
    "duplicates": "duplicates",
    "also in train": "rows_in_train",
    "sentence in train": "rows_sharing_a_sentence_with_train",
    "also in validation": "rows_in_validation",
}
NOTE = (
    "Rows as parsed. Duplicates: rows whose texts occurred before. Sentence in train: rows that "
    "share a sentence with a training row. Texts are compared without punctuation and case."
)
Cells = tuple[Cell, ...]


def data_table(source: Source) -> tuple[Table, list[str]]:
    """A row for each split of each task, and sentences that go with it."""
    trials = {
        task: next((t for t in source.trials if task in t.recipe.tasks), None)
        for task in source.results.tasks
    }
    known = {task: trial for task, trial in trials.items() if trial is not None}
    reports = examine_tasks(source, known)
    rows: list[Cells] = []
    lines: list[str] = []
    for task, trial in known.items():
        report = reports[task]
        if isinstance(report, str):
            rows += recorded_rows(trial, task)
            lines.append(f"{task}: {report}")
        else:
            rows += examined_rows(report)
            lines += baseline_and_leaks(report)
    return Table("data", "Data", ("task", "split", *COLUMNS), tuple(rows), NOTE), lines


def examine_tasks(source: Source, trials: Mapping[str, TrialFiles]) -> dict[str, TaskReport | str]:
    """What `mops check` finds in each task, or why it was not examined again."""
    sizes = {}
    for task, trial in trials.items():
        paths = [Path(file) for file in trial.recipe.tasks[task].files().values()]
        sizes[task] = sum(path.stat().st_size for path in paths if path.is_file())
    left = MOST_BYTES
    reports: dict[str, TaskReport | str] = {}
    for task in sorted(trials, key=sizes.__getitem__):
        left -= sizes[task]
        if left >= 0:
            reports[task] = examine_task(trials[task], task)
        else:
            recipe = (trials[task].folder / "recipe.yaml").relative_to(source.folder)
            reports[task] = (
                f"{sizes[task] / 1e6:.1f} MB are too much to be read again for a report; "
                f"`mops check --config {recipe}` looks for duplicates and leaks."
            )
    return reports


def examine_task(trial: TrialFiles, name: str) -> TaskReport | str:
    entry = trial.recipe.tasks[name]
    digests = trial.record.meta_info.data_sha256
    for file in entry.files().values():
        if reason := why_changed(file, digests.get(file)):
            return f"{reason}, so duplicates and leaks were not looked for."
    try:
        task, splits = read_task(entry, entry.task(name), SPLITS)
    except MopsError as error:
        return f"the data cannot be read again: {error}"
    return examine(task, splits)


def examined_rows(report: TaskReport) -> Iterator[Cells]:
    for name, split in report.splits.items():
        counts = [number_cell(getattr(split, key), "{:,}") for key in COLUMNS.values()]
        yield Cell(report.task), Cell(name), *counts


def recorded_rows(trial: TrialFiles, task: str) -> Iterator[Cells]:
    """Row counts alone, from the record."""
    scores = trial.record.scores.tasks.get(task, {})
    train = trial.record.train_info.tasks.get(task)
    rows = {
        "train": train.rows if train else None,
        **{split: scores.get(split, {}).get("rows") for split in ("validation", "test")},
    }
    unknown = (EMPTY,) * (len(COLUMNS) - 1)
    for split, count in rows.items():
        if count:
            yield Cell(task), Cell(split), number_cell(int(count), "{:,}"), *unknown


def baseline_and_leaks(report: TaskReport) -> Iterator[str]:
    if report.baseline_class is not None:
        yield (
            f"{report.task}: always predicting {report.baseline_class!r}, the most frequent class "
            f"of train, has an accuracy of {report.baseline:.3f} on validation."
        )
    elif report.baseline is not None:
        yield f"{report.task}: a constant prediction has correlation 0."
    for name, split in report.splits.items():
        if split.rows_in_train:
            rows = f"{split.rows_in_train:,} of {split.rows:,} {name} rows"
            yield f"{report.task}: {rows} are also in train."
