"""Caveats: facts about data, rows, statistics, machines and warnings that limit a result."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe
from mops.data.dataset import SPLITS
from mops.model.sources import BUNDLED, BUNDLED_SHA256
from mops.reports.source import Source
from mops.surveys.results.caveats import list_names
from mops.surveys.results.results import Results
from mops.surveys.results.tables import describe_budget, describe_rows, seeds_note
from mops.tables import Cell, Table, number_cell
from mops.yaml_io import read_own_yaml

DATA_NOTE = "Rows that were trained with and scored. `mops check` also looks for duplicates."
MACHINE = ("processor", "platform", "device", "threads", "python", "commit")
STATISTICS = (
    "Standard errors include the sampling of rows (the same rows for all candidates) and the "
    "variation between runs (over seeds, pooled over candidates).",
    "For each candidate outside the set of the best (Hsu 1984), another one is better.",
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
    metas = [(trial.record.meta_info, trial.recipe) for trial in source.trials]
    encoders = {(meta.encoder, meta.encoder_sha256): recipe for meta, recipe in metas}
    pretraining = (describe_pretraining(*key, recipe) for key, recipe in encoders.items())
    topics: dict[str, tuple[Iterable[str], Table | None]] = {
        "Data": describe_data(source),
        "Rows, seeds and statistics": (statistics_lines(results), None),
        "Machine and versions": describe_machines(source),
        "Warnings": (warning_lines(results), None),
        "Missing and unreadable": (missing_lines(results, left_out), None),
        "Pretraining data of the encoder": (chain(*pretraining), None),
    }
    return tuple(
        Section(title, tuple(line if line.endswith(".") else f"{line}." for line in lines), table)
        for title, (lines, table) in topics.items()
    )


def statistics_lines(results: Results) -> Sequence[str]:
    if not results.candidates:
        return ["No trial is finished, so nothing is compared yet."]
    return [describe_budget(results), describe_rows(results), seeds_note(results), *STATISTICS]


def describe_machines(source: Source) -> tuple[list[str], Table]:
    """Facts about machines and packages, with the number of trials that have them."""
    records = [trial.record for trial in source.trials]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for meta in (record.meta_info for record in records):
        for name, value in {**{n: getattr(meta, n) for n in MACHINE}, **meta.packages}.items():
            counts[name][str(value)] += 1
    rows = tuple(
        (Cell(name), Cell(value), number_cell(count, "{:,}"))
        for name, values in counts.items()
        for value, count in values.most_common()
        if value
    )
    table = Table("machine", "Machine and versions", ("fact", "value", "trials"), rows)
    if not records:
        return ["No record can be read."], table
    lines = ["All trials ran on one kind of machine with the same versions."]
    if varying := [name for name, values in counts.items() if len(values) > 1]:
        lines = [
            f"Trials differ in {', '.join(varying)}, so their training times are not comparable "
            "and the last digits of scores may differ."
        ]
    runs = [record.run_info for record in records]
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
        who = list_names(list(dict.fromkeys(names)))
        lines.append(f"{who} (trainings: {len(names)}): {warning}")
    return lines or ["There are no warnings."]


def missing_lines(results: Results, left_out: Sequence[str]) -> list[str]:
    states = Counter(trial.state for trial in results.missing).items()
    see = "see the trials without a result"
    lines = [*left_out, *(f"trials {state}: {count} ({see})" for state, count in states)]
    return lines or ["Nothing: every record was read, and its predictions give its scores."]


def describe_data(source: Source) -> tuple[list[str], Table]:
    """What the training noted: rows of each split, and those that were skipped."""
    counts: dict[tuple[str, str], float] = {}
    for record in (trial.record for trial in source.trials):
        for task, scores in record.scores.tasks.items():
            counts |= {(task, split): own["rows"] for split, own in scores.items()}
        counts |= {(task, "train"): own.rows for task, own in record.train_info.tasks.items()}
    rows = tuple(
        (Cell(task), *(number_cell(counts.get((task, split)), "{:,.0f}") for split in SPLITS))
        for task in source.results.tasks
    )
    metas = [trial.record.meta_info for trial in source.trials]
    lines = list(dict.fromkeys(note for meta in metas for note in meta.data_notes))
    files = {tuple(sorted(meta.data_sha256.items())) for meta in metas}
    if len(files) > 1:
        lines.append(f"Not all trials read the same files: there are {len(files)} different sets.")
    table = Table("data", "Data", ("task", *SPLITS), rows, DATA_NOTE)
    return lines, table.without_empty_columns()


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
    return read_own_yaml(Path(__file__).with_name("pretraining_data.yaml"))
