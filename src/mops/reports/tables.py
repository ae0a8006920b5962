"""The tables of a report: the plans with scores, costs and warnings, then one for each topic."""

from __future__ import annotations

from dataclasses import replace

from mops.reports.figures.curves import convergence_table
from mops.reports.source import Source
from mops.surveys.results import tables as judged
from mops.surveys.results.results import CandidateResult, Results
from mops.surveys.results.tables import INTERVAL, difference_cell, estimate_cell
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
    "parameters", "trained_parameters", "step_seconds", "train_seconds", "latency_seconds",
    "peak_memory_bytes",
)  # fmt: skip


def make_tables(source: Source) -> tuple[Table, ...]:
    """All tables with rows; the first is the table of plans."""
    results, decision = source.results, source.decision
    outside = judged.missing_table(results)
    broken = [line.partition(": ") for line in source.unreadable]
    unreadable = tuple((Cell(name), Cell("not readable"), Cell(why)) for name, _, why in broken)
    tables = [
        plan_table(results),
        judged.difference_table(results),
        judged.gain_table(results),
        judged.mcnemar_table(results),
        judged.cost_table(results),
        judged.training_table(results),
        convergence_table(source),
        *([judged.front_table(decision)] if decision else []),
        replace(outside, rows=(*outside.rows, *unreadable)),
    ]
    return tuple(with_minus_signs(without_empty_columns(table)) for table in tables if table.rows)


def plan_table(results: Results) -> Table:
    """A row for each candidate, in blocks of candidates that are not significantly different."""
    rows = []
    for one in results.candidates:
        warnings = [warning for trial in one.trials for warning in trial.warnings]
        rows.append((
            Cell(str(one.tie), one.tie),
            judged.name_cell(one, results),
            estimate_cell(one.scores.get("overall")),
            difference_cell(one.against.get("overall"), INTERVAL),
            *(task_cell(one, task, results) for task in results.tasks),
            *(judged.cost_cell(key, getattr(one.costs, key)) for key in PLAN_COSTS),
            number_cell(one.tm_relative, "{:.3f}"),
            Cell(str(len(warnings) or ""), len(warnings), "\n".join(dict.fromkeys(warnings))),
        ))  # fmt: skip
    costs = (judged.COSTS[key][0] for key in PLAN_COSTS)
    scores = ("tie", "candidate", "overall", "difference", *results.tasks)
    columns = (*scores, *costs, "TM", "warnings")
    return Table("plans", "Plans", columns, tuple(rows), plan_note(results))


def task_cell(one: CandidateResult, task: str, results: Results) -> Cell:
    """A task's score; in brackets its gain over the model per task."""
    cell, gain = estimate_cell(one.scores.get(task)), one.gains.get(task)
    if gain is None or cell is EMPTY:
        return cell
    interval = difference_cell(gain, INTERVAL)
    tested = ((f"gain_{name}", getattr(gain, name)) for name in judged.TESTED)
    return replace(
        cell,
        text=f"{cell.text} ({gain.mean:+.3f}{'*' if gain.is_significant else ''})",
        hint=to_minus(f"against {results.single}: {interval.text}, {interval.hint}"),
        more=(*cell.more, ("gain", gain.mean), *tested),
    )


def plan_note(results: Results) -> str:
    reference = next((one.reference for one in results.candidates), results.baseline)
    has_gains = any(one.gains for one in results.candidates)
    return (
        "Mean over seeds ± one standard error (rows and runs). Candidates of a tie are not "
        "significantly different and are in no particular order. Difference: overall score minus "
        f"that of {reference}, with its 95 % interval. "
        + (f"In brackets: gain over {results.single}. " if has_gains else "")
        + "* significant after Holm's correction. Memory: peak during training. Training: time of "
        "the training steps. TM: score x time x memory (weights), each relative to "
        f"{reference}. {judged.seeds_note(results)}"
    )
