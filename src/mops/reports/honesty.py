"""What a reader should know before believing: data, choices, statistics, machines, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mops.reports.data_facts import data_facts
from mops.reports.material import Material, TrialFiles
from mops.reports.seen import seen_lines
from mops.surveys.results.guards import listed
from mops.surveys.results.reasons import counted
from mops.surveys.results.wording import what_was_chosen
from mops.tables import Cell, Table, number_cell

MACHINE = ("processor", "platform", "device", "threads", "python")


@dataclass(frozen=True)
class Section:
    """One thing to know: sentences, and a table where there are numbers."""

    title: str
    lines: tuple[str, ...]
    table: Table | None = None


def make_honest(material: Material) -> tuple[Section, ...]:
    """All that is known; a section with nothing to say says that."""
    table, facts = data_facts(material)
    return (
        Section("Data", (*facts, *data_lines(material)), table),
        Section("What was chosen on which rows", tuple(choices(material))),
        Section("Seeds and statistics", tuple(statistics(material))),
        Section("Machine and versions", tuple(machine_lines(material)), machine_table(material)),
        Section("Guards and warnings", tuple(warnings(material))),
        Section("Files that are broken or missing", tuple(missing(material))),
        Section("What the encoder may have seen", tuple(encoder_lines(material))),
    )


def data_lines(material: Material) -> Iterator[str]:
    """What was left out when the rows were read, and whether all trials read the same."""
    metas = [trial.record.meta_info for trial in material.trials]
    notes = [note for meta in metas for note in meta.data_notes]
    yield from map(ended, dict.fromkeys(notes))
    files = {tuple(sorted(meta.data_sha256.items())) for meta in metas}
    if len(files) > 1:
        yield f"Trials did not all read the same files: there are {len(files)} sets of them."


def choices(material: Material) -> Iterator[str]:
    summary = material.summary
    if not summary.standings:
        yield "No trial is finished: nothing was chosen yet."
        return
    yield what_was_chosen(summary)
    if len(summary.standings) > 1:
        yield (
            "The decision between the candidates is made on the rows that judge: the highest of "
            f"{len(summary.standings)} means is partly the luckiest, which is why a tie is "
            "decided by cost and not by score."
        )


def statistics(material: Material) -> Iterator[str]:
    summary = material.summary
    seeds = ", ".join(map(str, summary.seeds))
    yield f"{counted(len(summary.seeds), 'seed')}: {seeds}."
    yield (
        "The error of a difference counts which rows happened to judge (resampled, all candidates "
        "on the same ones) and how the runs happened to go (the spread over seeds, pooled over "
        "candidates); intervals are 95 % of Student's, for one difference alone."
    )
    yield (
        "A difference is called real when p stays below 0.05 after Holm's correction over all "
        "candidates, and a tie is a group that no such test over all pairs tells from its best; "
        "with one seed nothing is called real (docs/surveys.md, Which differences are real)."
    )


# ------------------------------------------------------------------ machines


def machine_lines(material: Material) -> Iterator[str]:
    records = [trial.record for trial in material.trials]
    if not records:
        yield "No record can be read."
        return
    different = [name for name, found in facts_of(material).items() if len(found) > 1]
    if different:
        yield (
            f"Trials differ in {', '.join(different)}: times of their trainings cannot be "
            "compared, and the last digits of scores may differ."
        )
    else:
        yield f"{counted(len(records), 'trial')} on one kind of machine with the same versions."
    started = [record.run_info.started for record in records]
    finished = [record.run_info.finished for record in records]
    if all(started) and all(finished):
        yield f"Trained from {min(started)} to {max(finished)}."
    if any(record.train_info.batched > 1 for record in records):
        yield "Some were trained abreast: their own times are those of all divided by their number."


def machine_table(material: Material) -> Table:
    """Each fact with its values and how many trials have it."""
    rows = tuple(
        (Cell(name), Cell(value), number_cell(count, "{:,}"))
        for name, found in facts_of(material).items()
        for value, count in found.most_common()
    )
    return Table("machine", "Machine and versions", ("fact", "value", "trials"), rows)


def facts_of(material: Material) -> Mapping[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for trial in material.trials:
        meta = trial.record.meta_info
        facts = {name: getattr(meta, name) for name in MACHINE}
        for name, value in {**facts, **meta.packages}.items():
            found.setdefault(name, Counter())[str(value)] += 1
    return found


# ------------------------------------------------------------------ what went wrong


def warnings(material: Material) -> Iterator[str]:
    found = [finding.text for finding in material.summary.findings]
    found += list(by_warning(material))
    yield from map(ended, found)
    if not found:
        yield "No guard has anything to say, and no training gave a warning."


def by_warning(material: Material) -> Iterator[str]:
    """Each warning of a training once, with those who gave it."""
    given: dict[str, list[str]] = {}
    for one in material.summary.standings:
        for warning in (warning for trial in one.trials for warning in trial.warnings):
            given.setdefault(warning, []).append(one.name)
    for warning, names in given.items():
        who = listed(list(dict.fromkeys(names)))
        yield f"{who} ({counted(len(names), 'training')}): {warning}"


def missing(material: Material) -> Iterator[str]:
    summary = material.summary
    yield from map(ended, material.broken)
    yield from (ended(f"{one.name} is left out: {one.reason}") for one in summary.doubtful)
    yield from (ended(f"{one.name} failed: {one.reason}") for one in summary.failed)
    if summary.waiting:
        yield f"{counted(len(summary.waiting), 'trial')} not finished: this may change."
    if not (material.broken or summary.doubtful or summary.failed or summary.waiting):
        yield "None: every record was read, and its predictions give the scores it recorded."


def ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def encoder_lines(material: Material) -> Iterator[str]:
    """Of each encoder once."""
    first: dict[tuple[str, str], TrialFiles] = {}
    for trial in material.trials:
        meta = trial.record.meta_info
        if meta.encoder:
            first.setdefault((meta.encoder, meta.encoder_sha256), trial)
    for (name, sha256), trial in first.items():
        yield from seen_lines(name, sha256, trial.recipe)
    if not first:
        yield "No record names its encoder."
