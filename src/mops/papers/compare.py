"""A survey next to a paper: its tables with our numbers, verdicts on its findings, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from statistics import mean

from mops.evaluate.cost import tm_relative
from mops.evaluate.metrics import OVERALL
from mops.papers.findings import Claim, judge
from mops.papers.paper import TASKS, OurResults, Paper, PaperRow, PaperTable, read_paper
from mops.record import Record
from mops.surveys.results.results import CandidateResult, Results
from mops.tables import EMPTY, Cell, Table
from mops.units import format_seconds

OURS = ", ours"  # ends the name of a column with our numbers
WRONG = "†"
SPLITS = {"validation": "the dev rows", "train": "a sample of the training rows",
          "test": "the test rows"}  # fmt: skip
ROWS = (
    "Our numbers are means over seeds on the whole dev split, as in the papers; the column "
    "`judged` is on rows that were not used to select a checkpoint, with the standard error. The "
    "papers have one run each and chose the best epoch on the rows that they report."
)


@dataclass(frozen=True)
class PaperView:
    """A survey in the tables of a paper."""

    name: str
    title: str
    source: str
    surveys: tuple[str, ...]
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    differences: tuple[str, ...]

    @property
    def matched(self) -> tuple[Table, ...]:
        """The tables in which this survey has a number."""
        return tuple(
            table
            for table in self.tables
            if any(row[n].text for row in table.rows
                   for n, column in enumerate(table.columns) if column.endswith(OURS))
        )  # fmt: skip


def compare_with(name: str, results: Results, records: Mapping[str, Record]) -> PaperView:
    """Any survey in the tables of a paper; cells without a number of ours stay empty.

    `records` has one record of each candidate, for settings that do not vary in the survey.
    """
    paper, ours = read_paper(name), OurResults(results, records)
    return PaperView(
        **{key: getattr(paper, key) for key in ("name", "title", "source", "surveys")},
        tables=tuple(TableFiller(table, ours).fill() for table in paper.tables),
        claims=tuple(judge(finding, ours) for finding in paper.findings),
        differences=(*paper.differences, *measured_differences(paper, ours), ROWS),
    )


def claim_table(view: PaperView) -> Table:
    verdicts = [claim.verdict for claim in view.claims]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    return Table(
        f"{view.name}-claims",
        f"{view.title}: findings and verdicts",
        ("finding", "verdict", "why"),
        tuple((Cell(c.text), Cell(c.verdict), Cell(c.why)) for c in view.claims),
        f"Of {len(verdicts)} findings: {', '.join(counts)}.",
    )


# ------------------------------------------------------------------ tables


@dataclass(frozen=True)
class TableFiller:
    """Puts our numbers next to those of a paper's table."""

    table: PaperTable
    ours: OurResults

    def fill(self) -> Table:
        """Two columns for each of the paper's; overall scores have a third, as judged."""
        columns = ["model"]
        for measure, name in self.table.columns.items():
            judged = [f"{name}{OURS} judged"] if measure in OVERALL else []
            columns += [f"{name}, paper", f"{name}{OURS}", *judged]
        rows = tuple(tuple(self.cells(row)) for row in self.table.rows)
        note = " ".join(self.notes())
        return Table(self.table.name, self.table.title, tuple(columns), rows, note)

    def cells(self, row: PaperRow) -> Iterator[Cell]:
        yield Cell(row.label, hint=row.remark)
        for measure in self.table.columns:
            yield paper_cell(row, measure)
            has_number = measure in row.numbers or measure in row.should
            candidate = self.ours.find(row.models.get(measure, row.model)) if has_number else None
            yield self.our_cell(row, measure, candidate) if candidate else EMPTY
            if measure in OVERALL:
                yield self.judged_cell(row, measure, candidate) if candidate else EMPTY

    def our_cell(self, row: PaperRow, measure: str, candidate: CandidateResult) -> Cell:
        value, count = self.value(candidate, measure, row.split), len(candidate.trials)
        hint = f"{candidate.name}, {count} seed{'s' if count > 1 else ''}"
        hint += f", on {SPLITS[row.split]}" if measure in candidate.scores else ""
        form = FORMATS.get(measure, "{:.3f}".format)
        return EMPTY if value is None else Cell(form(value), value, hint)

    def judged_cell(self, row: PaperRow, measure: str, candidate: CandidateResult) -> Cell:
        """The survey's own score, if it is over the papers' three tasks."""
        score = candidate.scores.get(measure)
        if row.split != "validation" or set(candidate.tasks) != set(TASKS) or not score:
            return EMPTY
        is_half = self.ours.results.on == "report"
        rows = "the judging half of the dev rows" if is_half else "the test rows"
        hint = f"{candidate.name}, on {rows}, with its standard error"
        return Cell(f"{score.mean:.3f} ± {score.stderr:.3f}", score.mean, hint)

    def value(self, candidate: CandidateResult, measure: str, split: str) -> float | None:
        """A number of our candidate in the unit and convention of the paper."""
        if measure == "epoch":  # counted from 0: the first evaluation ends epoch 0
            return mean(trial.train_info.best_epoch for trial in candidate.trials) - 1
        if measure in ("seconds", "hours"):
            return candidate.costs.train_seconds
        if measure == "size":
            return self.ours.checkpoint_bytes(candidate) / 1000 / 1024  # as printed
        if measure in OVERALL:
            return self.ours.overall(candidate, split, measure)
        if measure in ("tm", "tm_printed"):
            return self.tm(candidate, measure, split)
        values = self.ours.values(candidate, measure, split)
        return mean(values) if values else None

    def tm(self, candidate: CandidateResult, measure: str, split: str) -> float | None:
        """Figure 3 of the founding paper, with its model size; its tables leave out `score0`."""
        base = self.ours.find(self.table.rows[0].model)
        if base is None or base.costs.source != candidate.costs.source:
            return None  # times of different moments are not comparable
        score, score0 = (self.ours.overall(c, split, "overall") for c in (candidate, base))
        if not score or not score0:
            return None
        relative = tm_relative(
            (score, candidate.costs.train_seconds, self.ours.checkpoint_bytes(candidate)),
            (score0, base.costs.train_seconds, self.ours.checkpoint_bytes(base)),
        )
        return relative if relative is None or measure == "tm" else relative * score0

    def notes(self) -> Iterator[str]:
        yield self.table.note
        yield from wrong_numbers(self.table)
        rows, find = self.table.rows, self.ours.find
        models = [model for row in rows for model in (row.model, *row.models.values())]
        shown = {candidate.name for model in models if (candidate := find(model))}
        matches = [(row.label, candidate) for row in rows if (candidate := find(row.model))]
        if names := [f"{label} is {c.name}" for label, c in matches if c.name != c.plan]:
            yield f"Ours: {'; '.join(names)}."
        if others := len(self.ours.results.candidates) - len(shown):
            yield f"Candidates of ours that are not in this table: {others}."


FORMATS: dict[str, Callable[[float], str]] = {
    "epoch": lambda value: f"{value:.1f}".removesuffix(".0"),
    "seconds": "{:,.0f} s".format,
    "hours": format_seconds,
    "size": "{:,.0f}K".format,
    **dict.fromkeys((*OVERALL, "tm", "tm_printed"), "{:.3f}".format),
}


def format_printed(measure: str, number: float) -> str:
    """As in the paper: task scores have a fourth digit where it gives one."""
    digits = "{:.3f}" if round(number, 3) == number else "{:.4f}"
    return FORMATS.get(measure, digits.format)(number)


def paper_cell(row: PaperRow, measure: str) -> Cell:
    number, correct = row.numbers.get(measure), row.should.get(measure)
    text = "-" if number is None else format_printed(measure, number)
    if correct is None:
        return EMPTY if number is None else Cell(text, number, row.remark)
    return Cell(f"{text}{WRONG}", number, f"should be {format_printed(measure, correct)}")


def wrong_numbers(table: PaperTable) -> Iterator[str]:
    for row in table.rows:
        for measure, correct in row.should.items():
            printed = row.numbers.get(measure)
            text = f"printed {format_printed(measure, printed)}" if printed else "not printed"
            why = f" ({row.remark})" if row.remark else ""
            yield f"{WRONG} {row.label}: {text}, should be {format_printed(measure, correct)}{why}."


# ------------------------------------------------------------------ differences


def measured_differences(paper: Paper, ours: OurResults) -> Iterator[str]:
    """How our trainings differ from the paper's, by the records."""
    records = list(ours.records.values())
    if not records:
        return
    shape = records[0].meta_info.encoder_shape
    size = shape.get("depth"), shape.get("width")
    if all(size) and size != (12, 768):
        encoder = PurePath(records[0].run_info.encoder).name
        yield (
            "Encoder: bert-base-uncased in the paper (12 layers of 768), "
            f"{encoder} here ({size[0]} of {size[1]})."
        )
    steps = sorted({trial.train_info.steps for c in ours.results.candidates for trial in c.trials})
    if paper.steps and steps != [paper.steps]:
        here = " to ".join(f"{n:,}" for n in dict.fromkeys((steps[0], steps[-1])))
        yield f"Training steps: {paper.steps:,} in the paper, {here} here."
    trained = {t: of.rows for r in records for t, of in r.train_info.tasks.items()}
    splits = {t: of.get("validation", {}) for r in records for t, of in r.scores.tasks.items()}
    dev = {task: int(split["rows"]) for task, split in splits.items() if split.get("rows")}
    for what, rows, ours_rows in (("Training", paper.rows, trained), ("Dev", paper.dev_rows, dev)):
        if differing := [task for task, n in rows.items() if ours_rows.get(task, n) != n]:
            counts = (f"{t} {rows[t]:,} in the paper, {ours_rows[t]:,} here" for t in differing)
            yield f"{what} rows: {'; '.join(counts)}."
    if missing := [task for task in TASKS if task not in ours.results.tasks]:
        yield f"Tasks are matched by name; this survey has no {', no '.join(missing)}."
    if extra := [task for task in ours.results.tasks if task not in TASKS]:
        yield f"The survey's overall scores include {', '.join(extra)}; those in the tables do not."
