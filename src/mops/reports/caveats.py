"""Caveats: facts about data, rows, statistics, machines and warnings that limit a result."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe
from mops.data.checks import TaskReport, examine
from mops.data.dataset import SPLITS, read_task
from mops.errors import MopsError, RunError
from mops.model.sources import BUNDLED, BUNDLED_SHA256
from mops.reports.source import Source, TrialFiles
from mops.surveys.results.caveats import list_names
from mops.surveys.results.results import Results
from mops.surveys.results.tables import describe_rows, seeds_note
from mops.tables import Cell, Table, number_cell
from mops.yaml_io import read_yaml

MOST_BYTES = 3_000_000  # of a task's data that is read again: about half a second
DATA_COLUMNS = {  # column -> field of the split's report
    "rows": "rows",
    "skipped": "bad_rows",
    "duplicates": "duplicates",
    "also in train": "rows_in_train",
    "sentence in train": "rows_sharing_a_sentence_with_train",
    "also in validation": "rows_in_validation",
}
DATA_NOTE = (
    "Rows as parsed. Duplicates: rows whose texts occurred before. Sentence in train: rows that "
    "share a sentence with a training row. Texts are compared without punctuation and case."
)
MACHINE = ("processor", "platform", "device", "threads", "python")
STATISTICS = (
    "Standard errors include the sampling of rows (the same rows for all candidates) and the "
    "variation between runs (over seeds, pooled over candidates).",
    "Differences from one candidate are one family (Dunnett 1955): all 95 % intervals of a score "
    "hold together, and a difference is significant if its interval excludes 0.",
    "The candidates marked as best are the set that contains the best candidate with 95 % "
    "confidence (Hsu 1984); for each of the others, another one is better.",
    "The probabilities and expected losses of the decision shrink all means towards each other, "
    "because the highest of several noisy means is partly luck. With one seed nothing is called "
    "significant, and the set has all candidates (see docs/surveys.md).",
)


@dataclass(frozen=True)
class Section:
    """One topic: sentences, and a table where there are numbers."""

    title: str
    lines: tuple[str, ...]
    table: Table | None = None


def make_caveats(source: Source, left_out: Sequence[str] = ()) -> tuple[Section, ...]:
    """All sections; `left_out` are sentences about content that the report had to drop."""
    results = source.results
    topics: dict[str, tuple[Iterable[str], Table | None]] = {
        "Data": describe_data(source),
        "Rows, seeds and statistics": (statistics_lines(results), None),
        "Machine and versions": describe_machines(source),
        "Warnings": (warning_lines(results), None),
        "Missing and unreadable": (missing_lines(results, left_out), None),
        "Pretraining data of the encoder": (encoder_lines(source), None),
    }
    return tuple(
        Section(title, tuple(line if line.endswith(".") else f"{line}." for line in lines), table)
        for title, (lines, table) in topics.items()
    )


def statistics_lines(results: Results) -> Sequence[str]:
    if not results.candidates:
        return ["No trial is finished, so nothing is compared yet."]
    return [describe_rows(results), seeds_note(results), *STATISTICS]


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def describe_machines(source: Source) -> tuple[list[str], Table]:
    """Facts about machines and packages, with the number of trials that have them."""
    records = [trial.record for trial in source.trials]
    counts: dict[str, Counter[str]] = {}
    for meta in (record.meta_info for record in records):
        for name, value in {**{n: getattr(meta, n) for n in MACHINE}, **meta.packages}.items():
            counts.setdefault(name, Counter())[str(value)] += 1
    rows = tuple(
        (Cell(name), Cell(value), number_cell(count, "{:,}"))
        for name, values in counts.items()
        for value, count in values.most_common()
    )
    table = Table("machine", "Machine and versions", ("fact", "value", "trials"), rows)
    if not records:
        return ["No record can be read."], table
    lines = [f"{count_of(len(records), 'trial')} on one kind of machine with the same versions."]
    if varying := [name for name, values in counts.items() if len(values) > 1]:
        lines = [
            f"Trials differ in {', '.join(varying)}, so their training times are not comparable "
            "and the last digits of scores may differ."
        ]
    runs = [record.run_info for record in records]
    if all(run.started and run.finished for run in runs):
        first, last = min(run.started for run in runs), max(run.finished for run in runs)
        lines.append(f"Trained from {first} to {last}.")
    if any(record.train_info.batched > 1 for record in records):
        lines.append("Some trials were trained as one batch; each has an equal share of its time.")
    return lines, table


def warning_lines(results: Results) -> list[str]:
    """Flags of the whole survey, then each warning of a training once with its candidates."""
    candidates: dict[str, list[str]] = {}
    for one in results.candidates:
        for warning in (warning for trial in one.trials for warning in trial.warnings):
            candidates.setdefault(warning, []).append(one.name)
    lines = [caveat.text for caveat in results.caveats]
    for warning, names in candidates.items():
        trainings = count_of(len(names), "training")
        lines.append(f"{list_names(list(dict.fromkeys(names)))} ({trainings}): {warning}")
    return lines or ["There are no warnings."]


def missing_lines(results: Results, left_out: Sequence[str]) -> list[str]:
    states = Counter(trial.state for trial in results.missing).items()
    see = "see the trials without a result"
    lines = [*left_out, *(f"{count_of(count, 'trial')} {state}: {see}" for state, count in states)]
    return lines or ["Nothing: every record was read, and its predictions give its scores."]


# ------------------------------------------------------------------ data


def describe_data(source: Source) -> tuple[list[str], Table]:
    """Rows per split, duplicates and leaks; constant baselines; rows that were skipped."""
    rows: list[tuple[Cell, ...]] = []
    lines: list[str] = []
    first = {task: trial for trial in reversed(source.trials) for task in trial.recipe.tasks}
    for task, trial in ((task, first[task]) for task in source.results.tasks if task in first):
        try:
            report = examine_task(trial, task)
            splits = {name: vars(split) for name, split in report.splits.items()}
            lines += baseline_and_leaks(report)
        except MopsError as reason:
            splits = recorded_rows(trial, task)
            lines.append(f"{task}: duplicates and leaks were not looked for: {reason}")
        for name, counts in splits.items():
            cells = (number_cell(counts.get(key), "{:,}") for key in DATA_COLUMNS.values())
            rows.append((Cell(task), Cell(name), *cells))
    metas = [trial.record.meta_info for trial in source.trials]
    lines += dict.fromkeys(note for meta in metas for note in meta.data_notes)
    files = {tuple(sorted(meta.data_sha256.items())) for meta in metas}
    if len(files) > 1:
        lines.append(f"Not all trials read the same files: there are {len(files)} different sets.")
    return lines, Table("data", "Data", ("task", "split", *DATA_COLUMNS), tuple(rows), DATA_NOTE)


def examine_task(trial: TrialFiles, name: str) -> TaskReport:
    """What `mops check` finds, if the files are those of the training and not too large."""
    entry = trial.recipe.tasks[name]
    for reason in filter(None, map(trial.why_changed, entry.files().values())):
        raise RunError(reason)
    size = sum(Path(file).stat().st_size for file in entry.files().values())
    if size > MOST_BYTES:
        raise RunError(
            f"{size / 1e6:.1f} MB are too much to be read again for a report; "
            f"`mops check --config {trial.folder / 'recipe.yaml'}` looks for them"
        )
    return examine(*read_task(entry, entry.task(name), SPLITS))


def recorded_rows(trial: TrialFiles, task: str) -> dict[str, dict[str, Any]]:
    """Row counts alone, from the record."""
    scores = trial.record.scores.tasks.get(task, {})
    counts = {split: scores.get(split, {}).get("rows") for split in ("validation", "test")}
    if train := trial.record.train_info.tasks.get(task):
        counts = {"train": train.rows, **counts}
    return {split: {"rows": int(count)} for split, count in counts.items() if count}


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


# ------------------------------------------------------------------ pretraining data


def encoder_lines(source: Source) -> Iterator[str]:
    """Each encoder once."""
    metas = [(trial.record.meta_info, trial.recipe) for trial in source.trials]
    encoders = {(meta.encoder, meta.encoder_sha256): recipe for meta, recipe in metas}
    for (name, sha256), recipe in encoders.items():
        yield from describe_pretraining(name, sha256, recipe)
    if not encoders:
        yield "No record names its encoder."


def describe_pretraining(name: str, sha256: str, recipe: Recipe) -> Iterator[str]:
    """Sentences about an encoder's training data and the tasks that may overlap with it."""
    short, encoder = Path(name).name, find_encoder(name, sha256)
    if encoder is None:
        yield f"{short}: its pretraining data is not known to mops."
        return
    yield f"{short} was trained on {encoder['training']}."
    for task, entry in recipe.tasks.items():
        paths = [Path(file) for file in entry.files().values()]
        names = " ".join(f"{path.parent.name} {path.name}" for path in paths).lower()
        words = set(re.findall("[a-z0-9]+", names.replace("sts-b", "stsb")))
        for data_set in encoder.get("data_sets", ()):
            if words & set(read_known()["data_sets"][data_set]):
                yield (
                    f"The files of {task} look like {data_set}, which {short} was trained on: its "
                    "scores are not a clean transfer result."
                )


def find_encoder(name: str, sha256: str) -> Mapping[str, Any] | None:
    """By the digest of its weights, otherwise by its name."""
    plain = BUNDLED if sha256 == BUNDLED_SHA256 else Path(name).name.lower().replace("_", "-")
    encoders: list[Mapping[str, Any]] = read_known()["encoders"]
    return next((o for o in encoders if any(fnmatchcase(plain, p) for p in o["names"])), None)


@cache
def read_known() -> Mapping[str, Any]:
    return read_yaml(Path(__file__).with_name("pretraining_data.yaml"))
