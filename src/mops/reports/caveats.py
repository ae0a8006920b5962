"""Caveats: facts about data, selection, statistics, machines and warnings that limit a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mops.reports.data_table import data_table
from mops.reports.pretraining_data import describe_pretraining
from mops.reports.source import Source, TrialFiles
from mops.surveys.results.caveats import list_names
from mops.surveys.results.recommend import count_of
from mops.surveys.results.tables import describe_rows
from mops.tables import Cell, Table, number_cell

MACHINE = ("processor", "platform", "device", "threads", "python")


@dataclass(frozen=True)
class Section:
    """One topic: sentences, and a table where there are numbers."""

    title: str
    lines: tuple[str, ...]
    table: Table | None = None


def make_caveats(source: Source, left_out: Sequence[str] = ()) -> tuple[Section, ...]:
    """All sections; `left_out` are sentences about content that the report had to drop."""
    table, lines = data_table(source)
    return (
        Section("Data", (*lines, *data_lines(source)), table),
        Section("Selection and reporting rows", tuple(selection_lines(source))),
        Section("Seeds and statistics", tuple(statistics_lines(source))),
        Section("Machine and versions", tuple(machine_lines(source)), machine_table(source)),
        Section("Warnings", tuple(warning_lines(source))),
        Section("Missing and unreadable", tuple(missing_lines(source, left_out))),
        Section("Pretraining data of the encoder", tuple(encoder_lines(source))),
    )


def data_lines(source: Source) -> Iterator[str]:
    """Rows that were skipped, and whether all trials read the same files."""
    metas = [trial.record.meta_info for trial in source.trials]
    notes = [note for meta in metas for note in meta.data_notes]
    yield from map(full_stop, dict.fromkeys(notes))
    files = {tuple(sorted(meta.data_sha256.items())) for meta in metas}
    if len(files) > 1:
        yield f"Not all trials read the same files: there are {len(files)} different sets."


def selection_lines(source: Source) -> Iterator[str]:
    results = source.results
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


def statistics_lines(source: Source) -> Iterator[str]:
    seeds = source.results.seeds
    yield f"{count_of(len(seeds), 'seed')}: {', '.join(map(str, seeds))}."
    yield (
        "Standard errors include the sampling of rows (resampled, the same rows for all "
        "candidates) and the variation between runs (over seeds, pooled over candidates). "
        "Intervals are 95 % Student intervals for a single difference."
    )
    yield (
        "A difference is called significant if p < 0.05 after Holm's correction over all "
        "candidates. Candidates share a block if no such test over all pairs separates them from "
        "the best of the block. With one seed no difference is called significant (see "
        "docs/surveys.md)."
    )


def full_stop(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


# ------------------------------------------------------------------ machines


def machine_lines(source: Source) -> Iterator[str]:
    records = [trial.record for trial in source.trials]
    if not records:
        yield "No record can be read."
        return
    varying = [name for name, values in machine_facts(source).items() if len(values) > 1]
    if varying:
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


def machine_table(source: Source) -> Table:
    """Each fact with its values and the number of trials that have it."""
    rows = tuple(
        (Cell(name), Cell(value), number_cell(count, "{:,}"))
        for name, values in machine_facts(source).items()
        for value, count in values.most_common()
    )
    return Table("machine", "Machine and versions", ("fact", "value", "trials"), rows)


def machine_facts(source: Source) -> Mapping[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for trial in source.trials:
        meta = trial.record.meta_info
        facts = {name: getattr(meta, name) for name in MACHINE}
        for name, value in {**facts, **meta.packages}.items():
            counts.setdefault(name, Counter())[str(value)] += 1
    return counts


# ------------------------------------------------------------------ warnings and gaps


def warning_lines(source: Source) -> Iterator[str]:
    """Flags of the whole survey, then each warning of a training once with its candidates."""
    candidates: dict[str, list[str]] = {}
    for one in source.results.candidates:
        for warning in (warning for trial in one.trials for warning in trial.warnings):
            candidates.setdefault(warning, []).append(one.name)
    lines = [finding.text for finding in source.results.caveats]
    for warning, names in candidates.items():
        trainings = count_of(len(names), "training")
        lines.append(f"{list_names(list(dict.fromkeys(names)))} ({trainings}): {warning}")
    yield from map(full_stop, lines or ["There are no warnings."])


def missing_lines(source: Source, left_out: Sequence[str]) -> Iterator[str]:
    results = source.results
    lines = [
        *source.unreadable,
        *(f"{one.name} is left out: {one.reason}" for one in results.in_state("left out")),
        *(f"{one.name} failed: {one.reason}" for one in results.in_state("failed")),
        *left_out,
    ]
    if waiting := results.in_state("waiting"):
        lines.append(f"{count_of(len(waiting), 'trial')} not finished: results may change")
    complete = "Nothing: every record was read, and its predictions give the recorded scores."
    yield from map(full_stop, lines or [complete])


def encoder_lines(source: Source) -> Iterator[str]:
    """Each encoder once."""
    encoders: dict[tuple[str, str], TrialFiles] = {}
    for trial in source.trials:
        meta = trial.record.meta_info
        if meta.encoder:
            encoders.setdefault((meta.encoder, meta.encoder_sha256), trial)
    for (name, sha256), trial in encoders.items():
        yield from describe_pretraining(name, sha256, trial.recipe)
    if not encoders:
        yield "No record names its encoder."
