"""A survey beside a paper: its tables, its findings with verdicts, and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from mops.errors import UsageError, nearest
from mops.report.material import Material
from mops.report.papers.beside import beside
from mops.report.papers.founding import FOUNDING
from mops.report.papers.hybrid import HYBRID
from mops.report.papers.milestone import MILESTONE
from mops.report.papers.ours import Ours
from mops.report.papers.pals import PALS
from mops.report.papers.paper import TASKS, Claim, Paper, PaperView
from mops.report.papers.progressive import PROGRESSIVE
from mops.report.papers.verdicts import judge
from mops.report.parts import Cell, Table

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
    shape = trials[0].record.costs.get("encoder", {})
    size = shape.get("depth"), shape.get("width")
    if all(size) and size != (there.depth, there.width):
        encoder = PurePath(str(trials[0].record.run_info.get("encoder", "another"))).name
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
    info = {task: of for t in ours.trials for task, of in t.record.train_info["tasks"].items()}
    rows = {task: of["rows"] for task, of in info.items() if "rows" in of}
    other = [
        f"{task} {there:,} there, {rows[task]:,} here"
        for task, there in paper.setting.rows.items()
        if task in rows and rows[task] != there
    ]
    if other:
        yield f"Training rows: {'; '.join(other)}."
    known = ours.summary.tasks
    missing = [task for task in TASKS if task not in known]
    if missing:
        yield f"Tasks are found by their names; this survey has no {', no '.join(missing)}."
    extra = [task for task in known if task not in TASKS]
    if extra:
        yield f"Overall scores of this survey count {', '.join(extra)} too; those in tables do not."
