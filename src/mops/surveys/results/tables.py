"""The tables of a summary, for the screen, for summary.md and for reports alike."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from mops.surveys.results.cells import (
    COSTS,
    change_cell,
    cost_cell,
    estimate_cell,
    interval_cell,
    p_cell,
)
from mops.surveys.results.pareto import COSTS as FRONT
from mops.surveys.results.recommend import Decision
from mops.surveys.results.standings import Standing, Summary
from mops.tables import EMPTY, Cell, Table, number_cell


def score_table(summary: Summary) -> Table:
    """A block per tie; inside it no order but that of the design."""
    keys = ("overall", "overall_normalised", *summary.tasks)
    rows = tuple(
        (
            Cell(tie, one.tie),
            name_cell(one, summary),
            *(estimate_cell(one.scores.get(key)) for key in keys),
            number_cell(one.overall.spread, "{:.3f}"),
        )
        for tie, one in blocks(summary)
    )
    note = (
        "Mean over seeds ± one standard error, of rows and runs; spread: of overall between seeds. "
        "Candidates of a tie cannot be told apart and stand in no order."
    )
    columns = ("tie", "candidate", "overall", "normalised", *summary.tasks, "spread")
    return Table("scores", "Scores", columns, rows, note + seeds_note(summary))


def blocks(summary: Summary) -> Iterator[tuple[str, Standing]]:
    """Each candidate with the number of its tie, which only the first of a block shows."""
    before: tuple[str, int] | None = None
    for one in summary.standings:
        here = one.reference, one.tie
        yield ("" if here == before else str(one.tie)), one
        before = here


def seeds_note(summary: Summary) -> str:
    if all(len(one.trials) == 1 for one in summary.standings):
        return " One seed: errors are over rows alone, and no difference of plans is called real."
    return f" Seeds: {', '.join(map(str, summary.seeds))}."


def name_cell(one: Standing, summary: Summary) -> Cell:
    """The name of a candidate with what marks it."""
    missing = f" ({len(one.trials)} of {len(summary.seeds)} seeds)" if one.missing_seeds else ""
    text = f"{one.name}{' (baseline)' if one.name == summary.baseline else ''}{missing}"
    return Cell(text, one.name)


def difference_table(summary: Summary) -> Table:
    """Each candidate minus the baseline; overall with its interval."""
    keys = ("overall_normalised", *summary.tasks)
    rows = tuple(
        (
            Cell(one.name),
            interval_cell(one.against.get("overall")),
            p_cell(one.against.get("overall")),
            *(change_cell(one.against.get(key)) for key in keys),
        )
        for one in summary.standings
        if one.against
    )
    note = (
        f"Minus {summary.baseline}, on the same rows and seeds, with the 95 % interval; p after "
        "Holm's correction; * real."
    )
    columns = ("candidate", "overall", "p", "normalised", *summary.tasks)
    return Table("differences", "Differences", columns, rows, note)


def mcnemar_table(summary: Summary) -> Table:
    tasks = [task for task in summary.tasks if any(task in o.mcnemar for o in summary.standings)]
    seeds_of = {one.name: {trial.seed for trial in one.trials} for one in summary.standings}
    rows = tuple(
        (Cell(one.name), *(mcnemar_cell(one, task, common) for task in tasks))
        for one in summary.standings
        if one.mcnemar
        for common in (sorted(seeds_of[one.name] & seeds_of[one.reference]),)
    )
    note = f"Exact p against {summary.baseline}, a number for each common seed, not corrected."
    return Table("mcnemar", "McNemar's test", ("candidate", *tasks), rows, note)


def mcnemar_cell(one: Standing, task: str, seeds: list[int]) -> Cell:
    """The first seed's p is the value, those of the others stand behind it."""
    found = one.mcnemar.get(task, ())
    if not found:
        return EMPTY
    named = zip((f"seed_{seed}" for seed in seeds[1:]), found[1:], strict=False)
    return Cell(" ".join(f"{p:.2g}" for p in found), found[0], more=tuple(named))


def gain_table(summary: Summary) -> Table:
    """What each task gains over its model in the single-task candidate."""
    rows = tuple(
        (Cell(one.name), *(interval_cell(one.gains.get(task)) for task in summary.tasks))
        for one in summary.standings
        if one.gains
    )
    note = f"Against {summary.single}; * real after Holm's correction."
    columns = ("candidate", *summary.tasks)
    return Table("gains", "Gains over a model per task", columns, rows, note)


def cost_table(summary: Summary) -> Table:
    """Only what was measured for somebody."""
    known = [key for key in COSTS if any(one.costs.get(key) for one in summary.standings)]
    rows = tuple(
        (
            Cell(one.name),
            *(cost_cell(one.costs, key) for key in known),
            number_cell(one.tm_relative, "{:.3f}"),
        )
        for one in summary.standings
    )
    note = (
        "Memory: peak of a training. Training: steps only. TM: score x time x memory (weights), "
        f"each beside {summary.baseline}, whose own is 1."
    )
    columns = ("candidate", *(COSTS[key][0] for key in known), "TM")
    return Table("costs", "Costs", columns, rows, note)


def training_table(summary: Summary) -> Table:
    """What each candidate was given, and where its best evaluation lay; means over seeds."""
    rows = tuple(
        (
            Cell(one.name),
            number_cell(mean(trial.steps for trial in one.trials), "{:,.0f}"),
            number_cell(mean(trial.best_step for trial in one.trials), "{:,.0f}"),
            number_cell(mean(trial.best_epoch for trial in one.trials), "{:.1f}"),
            *(passes_cell(one, task) for task in summary.tasks),
            Cell(" ".join(trial.id for trial in one.trials)),
        )
        for one in summary.standings
    )
    passes = (f"passes {task}" for task in summary.tasks)
    columns = ("candidate", "steps", "best step", "best epoch", *passes, "trials")
    return Table("trainings", "Trainings", columns, rows)


def passes_cell(one: Standing, task: str) -> Cell:
    known = [trial.passes[task] for trial in one.trials if task in trial.passes]
    return number_cell(mean(known), "{:.1f}") if known else EMPTY


def outside_table(summary: Summary) -> Table:
    states = {"failed": summary.failed, "left out": summary.doubtful, "waiting": summary.waiting}
    rows = tuple(
        (Cell(one.name), Cell(state), Cell(one.reason))
        for state, of in states.items()
        for one in of
    )
    return Table("outside", "Trials without a result", ("trial", "state", "why"), rows)


def front_table(decision: Decision) -> Table:
    rows = tuple(
        (
            Cell(point.name),
            Cell(
                f"{point.score:.3f} ± {decision.scores[point.name].stderr:.3f}",
                point.score,
                more=(("stderr", decision.scores[point.name].stderr),),
            ),
            number_cell(decision.scores[point.name].tie, "{}"),
            *(cost_cell(point.costs, key) for key in FRONT),
        )
        for point in decision.front
    )
    note = "No other candidate is at least as good in all four and better in one of them."
    columns = ("candidate", "score", "tie", *(COSTS[key][0] for key in FRONT))
    return Table("front", "Pareto front", columns, rows, note)
