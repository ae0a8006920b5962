"""The tables of a report: the plans with all that tells them apart, then one for each view."""

from __future__ import annotations

from dataclasses import replace

from mops.reports.figures.convergence import convergence_table
from mops.reports.material import Material
from mops.surveys.results.cells import (
    COSTS,
    behind,
    cost_cell,
    estimate_cell,
    interval_cell,
    star,
)
from mops.surveys.results.standings import Standing, Summary
from mops.surveys.results.tables import (
    cost_table,
    difference_table,
    front_table,
    gain_table,
    mcnemar_table,
    name_cell,
    outside_table,
    seeds_note,
    training_table,
)
from mops.tables import (
    EMPTY,
    Cell,
    Table,
    number_cell,
    to_minus,
    with_minus_signs,
    without_empty_columns,
)

PLAN_COSTS = (
    "parameters",
    "trained_parameters",
    "step_seconds",
    "train_seconds",
    "latency_seconds",
    "peak_memory_bytes",
)


def make_tables(material: Material) -> tuple[Table, ...]:
    """Those that have something to say; the first is the table of plans."""
    summary, decision = material.summary, material.decision
    pace = convergence_table(material)
    made = [
        plan_table(summary),
        difference_table(summary),
        gain_table(summary),
        mcnemar_table(summary),
        cost_table(summary),
        training_table(summary),
        *([pace] if pace else []),
        *([front_table(decision)] if decision else []),
        with_broken(outside_table(summary), material.broken),
    ]
    return tuple(with_minus_signs(without_empty_columns(table)) for table in made if table.rows)


def with_broken(table: Table, broken: tuple[str, ...]) -> Table:
    """Also trials that were judged, and whose files have become unreadable since."""
    rows = tuple((Cell(name), Cell("not readable"), Cell(why)) for name, why in map(parted, broken))
    return replace(table, rows=(*table.rows, *rows))


def parted(line: str) -> tuple[str, str]:
    name, _, why = line.partition(": ")
    return name, why


# ------------------------------------------------------------------ the plans


def plan_table(summary: Summary) -> Table:
    """How good, how sure, at what cost: a row for each candidate, by tie."""
    known = [key for key in PLAN_COSTS if any(one.costs.get(key) for one in summary.standings)]
    columns = (
        "tie",
        "candidate",
        "overall",
        "difference",
        *summary.tasks,
        *(COSTS[key][0] for key in known),
        "TM",
        "warnings",
    )
    rows = tuple(plan_row(one, summary, known) for one in summary.standings)
    return Table("plans", "Plans", columns, rows, plan_note(summary))


def plan_row(one: Standing, summary: Summary, costs: list[str]) -> tuple[Cell, ...]:
    return (
        Cell(str(one.tie), one.tie),
        name_cell(one, summary),
        estimate_cell(one.scores.get("overall")),
        interval_cell(one.against.get("overall")),
        *(task_cell(one, task, summary) for task in summary.tasks),
        *(cost_cell(one.costs, key) for key in costs),
        number_cell(one.tm_relative, "{:.3f}"),
        warning_cell(one),
    )


def task_cell(one: Standing, task: str, summary: Summary) -> Cell:
    """A task's score; in brackets what it gains over a model of its own."""
    cell, gain = estimate_cell(one.scores.get(task)), one.gains.get(task)
    if gain is None or cell is EMPTY:
        return cell
    told = interval_cell(gain)
    return replace(
        cell,
        text=f"{cell.text} ({gain.mean:+.3f}{star(gain)})",
        hint=to_minus(f"against {summary.single}: {told.text}, {told.hint}"),
        more=(*cell.more, ("gain", gain.mean), *behind(gain, "gain_")),
    )


def warning_cell(one: Standing) -> Cell:
    """How many warnings its trainings gave, and which."""
    count = sum(len(trial.warnings) for trial in one.trials)
    found = dict.fromkeys(warning for trial in one.trials for warning in trial.warnings)
    return Cell(str(count or ""), count, "\n".join(found))


def plan_note(summary: Summary) -> str:
    reference = next((one.reference for one in summary.standings), summary.baseline)
    gains = any(one.gains for one in summary.standings)
    parts = [
        "Mean over seeds ± one standard error, of rows and runs.",
        "Candidates of a tie cannot be told apart and stand in no order.",
        f"Difference: overall minus {reference}, with the 95 % interval.",
        f"In brackets: gain over {summary.single}." if gains else "",
        "* real after Holm's correction.",
        "Memory: peak of a training; training: steps only; TM: score x time x memory (weights), "
        f"each beside {reference}.",
        seeds_note(summary).strip(),
    ]
    return " ".join(part for part in parts if part)
