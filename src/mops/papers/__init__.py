"""A survey next to a paper: its tables with our numbers, and a verdict on each finding."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mops.evaluate.metrics import OVERALL
from mops.papers.findings import Claim, judge
from mops.papers.paper import NAMES, TASKS, OurResults, PaperRow, PaperTable, read_paper
from mops.record import Record
from mops.surveys.results.results import Results
from mops.tables import EMPTY, Cell, Table, format_seconds

__all__ = ["NAMES", "Claim", "PaperView", "claim_table", "compare_with", "read_paper"]
OURS = ", ours"  # ends the name of a column with our numbers
WRONG = "†"
FORMATS: dict[str, Callable[[float], str]] = {
    "epoch": lambda value: f"{value:.1f}".removesuffix(".0"),
    "seconds": "{:,.0f} s".format,
    "hours": format_seconds,
    "size": "{:,.0f}K".format,
}
ROWS = (
    "Our numbers are means over seeds on the whole dev split, as in the papers, which chose the "
    "best epoch of a single run on the rows that they report; the column `judged` is on rows that "
    "did not select the checkpoint, with the standard error."
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
        return tuple(t for t in self.tables if any(name.endswith(OURS) for name in t.columns))


def compare_with(name: str, results: Results, records: Mapping[str, Record]) -> PaperView:
    """Any survey in the tables of a paper; `records` has one record of each candidate."""
    paper = read_paper(name)
    ours = OurResults(results, records, paper.models)
    return PaperView(
        **{key: getattr(paper, key) for key in ("name", "title", "source", "surveys")},
        tables=tuple(fill(table, ours) for table in paper.tables),
        claims=judge(paper, ours),
        differences=(*paper.differences, *our_training(ours), ROWS),
    )


def claim_table(view: PaperView) -> Table:
    verdicts = [claim.verdict for claim in view.claims]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    return Table(
        f"{view.name}-claims",
        f"{view.title}: findings and verdicts",
        ("finding", "verdict", "why"),
        tuple((Cell(c.text), Cell(c.verdict), Cell(c.why)) for c in view.claims),
        f"Of {len(verdicts)} findings: {', '.join(counts)}. In brackets: 95 % intervals.",
    )


def fill(table: PaperTable, ours: OurResults) -> Table:
    """The paper's columns and ours where we have a number; overall scores also as judged."""
    columns, rows = ["model"], [[Cell(row.label)] for row in table.rows]
    for measure, name in table.columns.items():
        judged = [f"{name}{OURS} judged"] if measure in OVERALL else []
        columns += [f"{name}, paper", f"{name}{OURS}", *judged]
        for cells, row in zip(rows, table.rows, strict=True):
            cells += [paper_cell(row, measure), *our_cells(table, row, measure, ours)]
    matches = [(row.label, candidate) for row in table.rows for candidate in ours.find(row.model)]
    names = "; ".join(f"{label} is {c.name}" for label, c in matches if c.name != c.plan)
    notes = [table.note, table.assessment, *([f"Ours: {names}."] if names else [])]
    note = " ".join([*notes, *exclude(table, ours)])
    filled = Table(table.name, table.title, tuple(columns), tuple(map(tuple, rows)), note)
    return filled.without_empty_columns()


def exclude(table: PaperTable, ours: OurResults) -> Iterator[str]:
    """Which differences from the first model our errors exclude, in the scores of the table."""
    for measure in [name for name in table.columns if name in OVERALL] or table.columns:
        rows = (row for row in table.rows if row.split == "validation")
        found = [c.name for row in rows for c in ours.find(row.models.get(measure, row.model))]
        joints = (joint[measure] for joint in ours.joints if measure in joint)
        joint = next((one for one in joints if {*found[:1]} & {*one.names}), None)
        names = [name for name in dict.fromkeys(found) if joint and name in joint.names]
        if joint and joint.has_run_noise and len(names) > 1:
            against = joint.among(names).against(names[0]).values()
            low, high = min(one.low for one in against), max(one.high for one in against)
            yield (
                f"Our data exclude differences in {measure} from {names[0]} below {low:+.3f} and "
                f"above {high:+.3f} (95 %, all rows together)."
            )


def paper_cell(row: PaperRow, measure: str) -> Cell:
    """As printed; task scores have a fourth digit where the paper gives one."""
    number, correct = row.numbers.get(measure), row.should.get(measure)
    digits = "{:.3f}" if number is None or round(number, 3) == number else "{:.4f}"
    text = "" if number is None else FORMATS.get(measure, digits.format)(number)
    if correct is None:
        return Cell(text, number)
    return Cell(f"{text or '-'}{WRONG}", number, f"should be {correct:g}")


def our_cells(table: PaperTable, row: PaperRow, measure: str, ours: OurResults) -> Iterator[Cell]:
    """Our number as the paper takes it, and the survey's own if it is over the papers' tasks."""
    has_number = measure in row.numbers or measure in row.should
    found = ours.find(row.models.get(measure, row.model)) if has_number else []
    value = ours.value(found[0], measure, row.split) if found else None
    if value and measure == "tm":  # relative to the first row, if times are of the same moment
        first = [
            c for c in ours.find(table.rows[0].model) if c.costs.source == found[0].costs.source
        ]
        value = value / (ours.value(first[0], measure, row.split) or math.inf) if first else None
    form = FORMATS.get(measure, "{:.3f}".format)
    yield EMPTY if value is None else Cell(form(value), value, f"{found[0].name}, {row.split}")
    if measure in OVERALL:
        is_same = found and row.split == "validation" and set(found[0].tasks) == set(TASKS)
        score = found[0].scores[measure] if is_same else None
        yield Cell(f"{score.mean:.3f} ± {score.stderr:.3f}", score.mean) if score else EMPTY


def our_training(ours: OurResults) -> Iterator[str]:
    """Our sizes, in the order in which the files of the papers state theirs."""
    facts: dict[str, list[str]] = {"encoder": [], "steps": [], "training rows": [], "dev rows": []}
    for record in ours.records.values():
        shape, training = record.meta_info.encoder_shape, record.train_info
        dev = {task: splits.get("validation", {}) for task, splits in record.scores.tasks.items()}
        facts["encoder"].append(f"{shape.get('depth')} layers of {shape.get('width')}")
        facts["steps"].append(f"{training.steps:,}")
        facts["training rows"] += [f"{task} {seen.rows:,}" for task, seen in training.tasks.items()]
        facts["dev rows"] += [f"{task} {of['rows']:,.0f}" for task, of in dev.items() if of]
    sizes = "; ".join(f"{name} {', '.join(dict.fromkeys(own))}" for name, own in facts.items())
    scored = [task for task in ours.results.tasks if task in TASKS] or [*ours.results.tasks]
    if ours.records:
        yield f"Here: {sizes}. Overall scores of findings: {', '.join(scored)}."
