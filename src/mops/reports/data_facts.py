"""What is known of the data: rows as they were parsed, doubles, leaks, what needs no model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mops.data.checks import SplitReport, TaskReport, examine
from mops.data.dataset import SPLITS, read_task
from mops.errors import MopsError
from mops.reports.material import Material, TrialFiles
from mops.reports.texts import changed
from mops.tables import EMPTY, Cell, Table, number_cell

MOST_BYTES = 3_000_000  # of data that is read again, the smallest tasks first: about half a second
COLUMNS = (
    "task",
    "split",
    "rows",
    "left out",
    "twice",
    "also in train",
    "sentence in train",
    "also in validation",
)
NOTE = (
    "Rows as they were parsed; twice: rows whose texts occurred before; sentence in train: rows "
    "that share a sentence with a training row. Texts are compared without signs and capitals."
)


def data_facts(material: Material) -> tuple[Table, list[str]]:
    """A row for each split of each task, and what cannot be said in numbers."""
    trials = {task: first_with(material, task) for task in material.summary.tasks}
    known = {task: trial for task, trial in trials.items() if trial is not None}
    sizes = {task: size_of(trial, task) for task, trial in known.items()}
    room, rows, lines = MOST_BYTES, [], []
    reports: dict[str, TaskReport | str] = {}
    for task in sorted(known, key=sizes.__getitem__):
        room -= sizes[task]
        recipe = (known[task].folder / "recipe.yaml").relative_to(material.folder)
        reports[task] = examined(known[task], task) if room >= 0 else too_large(sizes[task], recipe)
    for task, trial in known.items():
        report = reports[task]
        if isinstance(report, str):
            rows += list(recorded_rows(trial, task))
            lines.append(f"{task}: {report}")
        else:
            rows += list(examined_rows(report))
            lines += [*without_model(report), *leaks(report)]
    return Table("data", "Data", COLUMNS, tuple(rows), NOTE), lines


def first_with(material: Material, task: str) -> TrialFiles | None:
    return next((trial for trial in material.trials if task in trial.recipe.tasks), None)


def size_of(trial: TrialFiles, task: str) -> int:
    """Bytes of its files; what is not there needs no reading."""
    paths = [Path(file) for file in trial.recipe.tasks[task].files().values()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def too_large(size: int, recipe: Path) -> str:
    return (
        f"{size / 1e6:.1f} MB of data are not read again for a report; "
        f"`mops check --config {recipe}` looks for doubles and leaks."
    )


def examined(trial: TrialFiles, name: str) -> TaskReport | str:
    """What `mops check` says of a task, or why it cannot be said any more."""
    entry = trial.recipe.tasks[name]
    digests = trial.record.meta_info.data_sha256
    for file in entry.files().values():
        if reason := changed(file, digests.get(file)):
            return f"{reason}; doubles and leaks are not looked for."
    try:
        task, splits = read_task(entry, entry.task(name), SPLITS)
    except MopsError as error:
        return f"the data cannot be read again: {error}"
    return examine(task, splits)


def examined_rows(report: TaskReport) -> Iterator[tuple[Cell, ...]]:
    for name, split in report.splits.items():
        yield Cell(report.task), Cell(name), *counts(split)


def counts(split: SplitReport) -> Iterator[Cell]:
    for value in (
        split.rows,
        split.bad_rows,
        split.duplicates,
        split.rows_in_train,
        split.rows_sharing_a_sentence_with_train,
        split.rows_in_validation,
    ):
        yield number_cell(value, "{:,}")


def without_model(report: TaskReport) -> Iterator[str]:
    """What a constant answer scores."""
    if report.baseline_class is not None:
        yield (
            f"{report.task}: always answering {report.baseline_class!r}, the most frequent class "
            f"of train, is right in {report.baseline:.3f} of validation."
        )
    elif report.baseline is not None:
        yield f"{report.task}: a constant answer has correlation 0."


def leaks(report: TaskReport) -> Iterator[str]:
    """Rows that judge and were learnt from."""
    for name, split in report.splits.items():
        if split.rows_in_train:
            rows = f"{split.rows_in_train:,} of {split.rows:,} {name} rows"
            yield f"{report.task}: {rows} are also in train."


def recorded_rows(trial: TrialFiles, task: str) -> Iterator[tuple[Cell, ...]]:
    """What the record says of rows that could be used."""
    scores = trial.record.scores.tasks.get(task, {})
    train = trial.record.train_info.tasks.get(task)
    rows = {
        "train": train.rows if train else None,
        **{split: scores.get(split, {}).get("rows") for split in ("validation", "test")},
    }
    unknown = (EMPTY,) * (len(COLUMNS) - 3)
    for split, count in rows.items():
        if count:
            yield Cell(task), Cell(split), number_cell(int(count), "{:,}"), *unknown
