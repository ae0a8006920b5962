"""A report made by hand, with something hostile in every place where a text can stand."""

from __future__ import annotations

from pathlib import Path

from mops.papers import Claim, PaperView
from mops.reports.cards import Card
from mops.reports.caveats import Section
from mops.reports.errors import Example, TaskErrors
from mops.reports.figures.style import Picture
from mops.reports.report import Report
from mops.reports.source import Source
from mops.surveys.results.recommend import recommend
from mops.surveys.results.results import CandidateResult, Results
from mops.tables import Cell, Table
from surveying import made_standing, made_summary

EVIL = (
    "</title></style></script><script>window.taken=1</script><!--"
    "<img src=x onerror=window.taken=1>\"'><b>&amp;</b>{{ 7 * 7 }}"
)
MARK = (
    '<svg viewBox="0 0 40 20" role="img"><g data-candidate="0">'
    '<circle r="9" cx="9" cy="9"/></g></svg>'
)


def hostile(place: str) -> str:
    return f"{place} {EVIL}"


def hostile_summary() -> Results:
    return made_summary(
        made_standing(hostile("one"), 0.7),
        made_standing(hostile("two"), 0.6),
        name=hostile("survey"),
        baseline=hostile("one"),
        single=None,
    )


def hostile_table(name: str) -> Table:
    rows = tuple(
        (Cell(hostile(who)), Cell(hostile("cell"), n, hostile("hint")), Cell(hostile("word")))
        for n, who in enumerate(("one", "two"))
    )
    columns = ("candidate", hostile("number"), hostile("column"))
    return Table(name, hostile("title"), columns, rows, hostile("note"))


def hostile_example(only: str = "") -> Example:
    answers = ((hostile("one"), hostile("answer"), True), (hostile("two"), hostile("other"), False))
    texts = (hostile("first"), hostile("second"))
    return Example(hostile("id"), texts, hostile("label"), 1.5, answers, only)


def hostile_report() -> Report:
    summary = hostile_summary()
    table = hostile_table("some")
    pictures = tuple(
        Picture("pareto", hostile(n), hostile("title"), hostile("caption"), MARK, MARK)
        for n in ("size", "time")
    )
    errors = TaskErrors(
        task=hostile("task"),
        candidates=(hostile("one"), hostile("two")),
        worst=(hostile_example(),),
        only=(hostile_example(only=hostile("two")),),
        tables=(table, table),
        note=hostile("note"),
    )
    paper = PaperView(
        name=hostile("paper"),
        title=hostile("paper"),
        source=hostile("source"),
        surveys=(),
        tables=(table,),
        claims=(Claim(hostile("claim"), "undecided", hostile("why")),),
        differences=(hostile("differs"),),
    )
    return Report(
        Source(Path(), None, summary, recommend(summary), ()),
        tables=(hostile_table("plans"), hostile_table("outside"), table),
        pictures=pictures,
        cards=tuple(hostile_card(n, one) for n, one in enumerate(summary.candidates)),
        errors=(errors,),
        caveats=(Section(hostile("section"), (hostile("line"),), table),),
        papers=(paper,),
    )


def hostile_card(number: int, one: CandidateResult) -> Card:
    facts = ((hostile("fact"), hostile("value")),)
    picture = Picture("plan", "0", hostile("title"), hostile("says"), MARK, MARK)
    code = [hostile(word) for word in ("recipe", "command")]
    warnings = (hostile("warning"),)
    return Card(number, one.name, hostile("plan"), one.is_best, (), picture, facts, warnings, *code)
