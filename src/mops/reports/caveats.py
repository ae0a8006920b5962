"""Caveats: facts about data, selection, statistics, machines and warnings that limit a result."""

from __future__ import annotations

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
from mops.errors import MopsError
from mops.model.sources import BUNDLED_SHA256
from mops.reports.errors import why_changed
from mops.reports.source import Source, TrialFiles
from mops.surveys.results.caveats import list_names
from mops.surveys.results.recommend import count_of
from mops.surveys.results.results import Results
from mops.surveys.results.tables import describe_rows
from mops.tables import EMPTY, Cell, Table, number_cell
from mops.yaml_io import parse_yaml

MOST_BYTES = 3_000_000  # of data that is read again, smallest tasks first: about half a second
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
    "Standard errors include the sampling of rows (resampled, the same rows for all candidates) "
    "and the variation between runs (over seeds, pooled over candidates). Intervals are 95 % "
    "Student intervals for a single difference.",
    "A difference is called significant if p < 0.05 after Holm's correction over all candidates. "
    "Candidates share a block if no such test over all pairs separates them from the best of the "
    "block. With one seed no difference is called significant (see docs/surveys.md).",
)
Cells = tuple[Cell, ...]


@dataclass(frozen=True)
class Section:
    """One topic: sentences, and a table where there are numbers."""

    title: str
    lines: tuple[str, ...]
    table: Table | None = None


def make_caveats(source: Source, left_out: Sequence[str] = ()) -> tuple[Section, ...]:
    """All sections; `left_out` are sentences about content that the report had to drop."""
    data, data_lines = data_table(source)
    machines = count_machines(source)
    rows = tuple(
        (Cell(name), Cell(value), number_cell(count, "{:,}"))
        for name, values in machines.items()
        for value, count in values.most_common()
    )
    table = Table("machine", "Machine and versions", ("fact", "value", "trials"), rows)
    seeds = source.results.seeds
    counted = f"{count_of(len(seeds), 'seed')}: {', '.join(map(str, seeds))}."
    topics: dict[str, tuple[Iterable[str], Table | None]] = {
        "Data": (data_lines, data),
        "Selection and reporting rows": (selection_lines(source.results), None),
        "Seeds and statistics": ((counted, *STATISTICS), None),
        "Machine and versions": (machine_lines(source, machines), table),
        "Warnings": (warning_lines(source.results), None),
        "Missing and unreadable": (missing_lines(source, left_out), None),
        "Pretraining data of the encoder": (encoder_lines(source), None),
    }
    return tuple(
        Section(title, tuple(line if line.endswith(".") else f"{line}." for line in lines), own)
        for title, (lines, own) in topics.items()
    )


def selection_lines(results: Results) -> Iterator[str]:
    if not results.candidates:
        yield "No trial is finished, so nothing was selected yet."
        return
    yield describe_rows(results)
    if len(results.candidates) > 1:
        yield (
            "The candidates are compared on the reporting rows. The highest of "
            f"{len(results.candidates)} means is partly luck, so candidates that are not "
            "significantly different are ranked by cost and not by score."
        )


def count_machines(source: Source) -> dict[str, Counter[str]]:
    """Fact about the machine or package -> its values with the number of trials that have it."""
    counts: dict[str, Counter[str]] = {}
    for meta in (trial.record.meta_info for trial in source.trials):
        for name, value in {**{n: getattr(meta, n) for n in MACHINE}, **meta.packages}.items():
            counts.setdefault(name, Counter())[str(value)] += 1
    return counts


def machine_lines(source: Source, machines: Mapping[str, Counter[str]]) -> Iterator[str]:
    records = [trial.record for trial in source.trials]
    if not records:
        yield "No record can be read."
        return
    if varying := [name for name, values in machines.items() if len(values) > 1]:
        yield (
            f"Trials differ in {', '.join(varying)}, so their training times are not comparable "
            "and the last digits of scores may differ."
        )
    else:
        yield f"{count_of(len(records), 'trial')} on one kind of machine with the same versions."
    started = [record.run_info.started for record in records]
    finished = [record.run_info.finished for record in records]
    if all(started) and all(finished):
        yield f"Trained from {min(started)} to {max(finished)}."
    if any(record.train_info.batched > 1 for record in records):
        yield "Some trials were trained as one batch; each is given an equal share of its time."


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


def missing_lines(source: Source, left_out: Sequence[str]) -> list[str]:
    results = source.results
    lines = list(source.unreadable)
    for state, verb in (("left out", "is left out"), ("failed", "failed")):
        lines += [f"{one.name} {verb}: {one.reason}" for one in results.in_state(state)]
    lines += left_out
    if waiting := results.in_state("waiting"):
        lines.append(f"{count_of(len(waiting), 'trial')} not finished: results may change")
    complete = "Nothing: every record was read, and its predictions give the recorded scores."
    return lines or [complete]


# ------------------------------------------------------------------ data


def data_table(source: Source) -> tuple[Table, list[str]]:
    """Rows per split, duplicates and leaks; constant baselines; rows that were skipped."""
    rows: list[Cells] = []
    lines: list[str] = []
    for task, (trial, report) in examine_tasks(source).items():
        if isinstance(report, str):
            rows += recorded_rows(trial, task)
            lines.append(f"{task}: {report}")
        else:
            for name, split in report.splits.items():
                counts = [number_cell(getattr(split, k), "{:,}") for k in DATA_COLUMNS.values()]
                rows.append((Cell(task), Cell(name), *counts))
            lines += baseline_and_leaks(report)
    metas = [trial.record.meta_info for trial in source.trials]
    lines += dict.fromkeys(note for meta in metas for note in meta.data_notes)
    files = {tuple(sorted(meta.data_sha256.items())) for meta in metas}
    if len(files) > 1:
        lines.append(f"Not all trials read the same files: there are {len(files)} different sets.")
    return Table("data", "Data", ("task", "split", *DATA_COLUMNS), tuple(rows), DATA_NOTE), lines


def examine_tasks(source: Source) -> dict[str, tuple[TrialFiles, TaskReport | str]]:
    """A trial of each task, and what `mops check` finds or why it was not examined again."""
    known: dict[str, TrialFiles] = {}
    sizes: dict[str, int] = {}
    for task in source.results.tasks:
        trial = next((trial for trial in source.trials if task in trial.recipe.tasks), None)
        if trial is None:
            continue
        known[task] = trial
        paths = [Path(file) for file in trial.recipe.tasks[task].files().values()]
        sizes[task] = sum(path.stat().st_size for path in paths if path.is_file())
    left = MOST_BYTES
    reports: dict[str, TaskReport | str] = {}
    for task in sorted(known, key=sizes.__getitem__):
        left -= sizes[task]
        if left >= 0:
            reports[task] = examine_task(known[task], task)
        else:
            recipe = (known[task].folder / "recipe.yaml").relative_to(source.folder)
            reports[task] = (
                f"{sizes[task] / 1e6:.1f} MB are too much to be read again for a report; "
                f"`mops check --config {recipe}` looks for duplicates and leaks."
            )
    return {task: (trial, reports[task]) for task, trial in known.items()}


def examine_task(trial: TrialFiles, name: str) -> TaskReport | str:
    entry, digests = trial.recipe.tasks[name], trial.record.meta_info.data_sha256
    for file in entry.files().values():
        if reason := why_changed(file, digests.get(file)):
            return f"{reason}, so duplicates and leaks were not looked for."
    try:
        return examine(*read_task(entry, entry.task(name), SPLITS))
    except MopsError as error:
        return f"the data cannot be read again: {error}"


def recorded_rows(trial: TrialFiles, task: str) -> Iterator[Cells]:
    """Row counts alone, from the record."""
    scores = trial.record.scores.tasks.get(task, {})
    train = trial.record.train_info.tasks.get(task)
    counts = {split: scores.get(split, {}).get("rows") for split in ("validation", "test")}
    for split, count in {"train": train.rows if train else None, **counts}.items():
        if count:
            unknown = (EMPTY,) * (len(DATA_COLUMNS) - 1)
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


# ------------------------------------------------------------------ pretraining data


def encoder_lines(source: Source) -> Iterator[str]:
    """Each encoder once."""
    encoders: dict[tuple[str, str], Recipe] = {}
    for trial in source.trials:
        meta = trial.record.meta_info
        if meta.encoder:
            encoders.setdefault((meta.encoder, meta.encoder_sha256), trial.recipe)
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
    plain = Path(name).name.lower().replace("_", "-")
    encoders: list[Mapping[str, Any]] = read_known()["encoders"]
    if sha256 == BUNDLED_SHA256:
        return next(one for one in encoders if one.get("is_bundled"))
    return next((o for o in encoders if any(fnmatchcase(plain, p) for p in o["names"])), None)


@cache
def read_known() -> Mapping[str, Any]:
    return dict(parse_yaml(Path(__file__).with_name("pretraining_data.yaml").read_text("utf-8")))
