"""The tables of a report: the plans with scores, costs and warnings, then one for each topic."""

from __future__ import annotations

from dataclasses import replace

from mops.reports.figures.curves import convergence_table
from mops.reports.source import Source
from mops.surveys.results.results import CandidateResult, Results
from mops.surveys.results.tables import (
    COSTS,
    INTERVAL,
    TESTED,
    cost_cell,
    cost_table,
    difference_cell,
    difference_table,
    estimate_cell,
    front_table,
    gain_table,
    mcnemar_table,
    missing_table,
    name_cell,
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


def make_tables(source: Source) -> tuple[Table, ...]:
    """All tables with rows; the first is the table of plans."""
    results, decision = source.results, source.decision
    outside = missing_table(results)
    broken = [line.partition(": ") for line in source.unreadable]
    unreadable = tuple((Cell(name), Cell("not readable"), Cell(why)) for name, _, why in broken)
    tables = [
        plan_table(results),
        difference_table(results),
        gain_table(results),
        mcnemar_table(results),
        cost_table(results),
        training_table(results),
        convergence_table(source),
        *([front_table(decision)] if decision else []),
        replace(outside, rows=(*outside.rows, *unreadable)),
    ]
    return tuple(with_minus_signs(without_empty_columns(table)) for table in tables if table.rows)


def plan_table(results: Results) -> Table:
    """A row for each candidate, in blocks of candidates that are not significantly different."""
    known = [
        key for key in PLAN_COSTS if any(getattr(one.costs, key) for one in results.candidates)
    ]
    columns = (
        "tie",
        "candidate",
        "overall",
        "difference",
        *results.tasks,
        *(COSTS[key][0] for key in known),
        "TM",
        "warnings",
    )
    rows = tuple(
        (
            Cell(str(one.tie), one.tie),
            name_cell(one, results),
            estimate_cell(one.scores.get("overall")),
            difference_cell(one.against.get("overall"), INTERVAL),
            *(task_cell(one, task, results) for task in results.tasks),
            *(cost_cell(key, getattr(one.costs, key)) for key in known),
            number_cell(one.tm_relative, "{:.3f}"),
            warning_cell(one),
        )
        for one in results.candidates
    )
    return Table("plans", "Plans", columns, rows, plan_note(results))


def task_cell(one: CandidateResult, task: str, results: Results) -> Cell:
    """A task's score; in brackets its gain over the model per task."""
    cell, gain = estimate_cell(one.scores.get(task)), one.gains.get(task)
    if gain is None or cell is EMPTY:
        return cell
    interval = difference_cell(gain, INTERVAL)
    tested = ((f"gain_{name}", getattr(gain, name)) for name in TESTED)
    return replace(
        cell,
        text=f"{cell.text} ({gain.mean:+.3f}{'*' if gain.is_significant else ''})",
        hint=to_minus(f"against {results.single}: {interval.text}, {interval.hint}"),
        more=(*cell.more, ("gain", gain.mean), *tested),
    )


def warning_cell(one: CandidateResult) -> Cell:
    """The number of warnings; the hint lists them."""
    warnings = [warning for trial in one.trials for warning in trial.warnings]
    return Cell(str(len(warnings) or ""), len(warnings), "\n".join(dict.fromkeys(warnings)))


def plan_note(results: Results) -> str:
    reference = next((one.reference for one in results.candidates), results.baseline)
    has_gains = any(one.gains for one in results.candidates)
    parts = [
        "Mean over seeds ± one standard error (rows and runs).",
        "Candidates of a tie are not significantly different and are in no particular order.",
        f"Difference: overall score minus that of {reference}, with its 95 % interval.",
        f"In brackets: gain over {results.single}." if has_gains else "",
        "* significant after Holm's correction.",
        "Memory: peak during training. Training: time of the training steps. TM: score x time x "
        f"memory (weights), each relative to {reference}.",
        seeds_note(results),
    ]
    return " ".join(part for part in parts if part)
