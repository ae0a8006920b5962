"""A survey beside a paper: its tables, its findings with verdicts, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from mops.errors import UsageError, nearest
from mops.papers.beside import beside
from mops.papers.founding import FOUNDING
from mops.papers.hybrid import HYBRID
from mops.papers.milestone import MILESTONE
from mops.papers.ours import Ours
from mops.papers.pals import PALS
from mops.papers.paper import TASKS, Claim, Paper, PaperView
from mops.papers.progressive import PROGRESSIVE
from mops.papers.verdicts import judge
from mops.record import Record
from mops.reports.material import Material
from mops.tables import Cell, Table

PAPERS = {paper.name: paper for paper in (FOUNDING, MILESTONE, HYBRID, PROGRESSIVE, PALS)}
NAMES = tuple(PAPERS)
ROWS = (
    "Ours are means over seeds on the whole dev split, which is what the papers show; the column "
    "`judged` is on the rows that took no part in choosing a state, with the standard error. The "
    "papers have one run each, and their best epoch was chosen on the rows they show."
)


def compare_with(name: str, material: Material) -> PaperView:
    """The survey in the tables of a paper; any survey will do, cells without ours stay empty."""
    if name not in PAPERS:
        raise UsageError(f"no paper {name!r}; there are {', '.join(NAMES)}.{nearest(name, NAMES)}")
    paper, ours = PAPERS[name], Ours(material)
    return PaperView(
        name=paper.name,
        title=paper.title,
        source=paper.source,
        surveys=paper.surveys,
        tables=tuple(beside(table, ours) for table in paper.tables),
        claims=tuple(judge(stated, ours) for stated in paper.findings),
        differences=(*paper.differences, *measured_differences(paper, ours), ROWS),
    )


def claim_table(view: PaperView) -> Table:
    """The findings as a table."""
    return Table(
        f"{view.name}-claims",
        f"{view.title}: what it found, and what this survey says",
        ("finding", "verdict", "why"),
        tuple((Cell(c.text), Cell(c.verdict), Cell(c.why)) for c in view.claims),
        counted(view.claims),
    )


def counted(claims: tuple[Claim, ...]) -> str:
    verdicts = [claim.verdict for claim in claims]
    said = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    return f"Of {len(claims)} findings: {', '.join(said)}."


# ------------------------------------------------------------------ what differs


def measured_differences(paper: Paper, ours: Ours) -> Iterator[str]:
    """What the records say was trained here, where the paper's was another."""
    there = paper.setting
    trials = ours.trials
    if not trials:
        return
    shape = trials[0].record.meta_info.encoder_shape
    size = shape.get("depth"), shape.get("width")
    if all(size) and size != (there.depth, there.width):
        encoder = PurePath(trials[0].record.run_info.encoder).name
        yield (
            f"Encoder: {there.encoder} there ({there.depth} layers of {there.width}), {encoder} "
            f"here ({size[0]} of {size[1]})."
        )
    steps = sorted({trial.facts.steps for trial in trials})
    if there.steps and steps != [there.steps]:
        told = " to ".join(f"{n:,}" for n in dict.fromkeys((steps[0], steps[-1])))
        yield f"Steps of a training: {there.steps:,} there, {told} here."
    yield from data_differences(paper, ours)


def data_differences(paper: Paper, ours: Ours) -> Iterator[str]:
    trained = counts(ours, lambda record: {t: of.rows for t, of in record.train_info.tasks.items()})
    judged = counts(ours, dev_rows)
    yield from other_rows("Training rows", paper.setting.rows, trained)
    yield from other_rows("Dev rows", paper.setting.dev_rows, judged)
    known = ours.summary.tasks
    missing = [task for task in TASKS if task not in known]
    if missing:
        yield f"Tasks are found by their names; this survey has no {', no '.join(missing)}."
    extra = [task for task in known if task not in TASKS]
    if extra:
        yield f"Overall scores of this survey count {', '.join(extra)} too; those in tables do not."


def counts(ours: Ours, of: Callable[[Record], Mapping[str, Any]]) -> dict[str, int]:
    """Rows of each task, by the records of all trials."""
    found = [(task, rows) for trial in ours.trials for task, rows in of(trial.record).items()]
    return {task: int(rows) for task, rows in found if rows is not None}


def dev_rows(record: Record) -> dict[str, Any]:
    return {task: of.get("validation", {}).get("rows") for task, of in record.scores.tasks.items()}


def other_rows(what: str, there: Mapping[str, int], here: Mapping[str, int]) -> Iterator[str]:
    told = [
        f"{task} {rows:,} there, {here[task]:,} here"
        for task, rows in there.items()
        if task in here and here[task] != rows
    ]
    if told:
        yield f"{what}: {'; '.join(told)}."
