"""The tables and sentences of `Results`, for the screen, summary.md and the report alike."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from mops.evaluate.compare import Difference, Estimate
from mops.surveys.results.recommend import FRONT, Decision
from mops.surveys.results.results import CandidateResult, Results
from mops.tables import EMPTY, Cell, Table, number_cell
from mops.units import format_bytes, format_count, format_seconds

COSTS = {  # cost -> (column, short format, full format)
    "parameters": ("parameters", format_count, "{:,.0f}"),
    "trained_parameters": ("trained", format_count, "{:,.0f}"),
    "weight_bytes": ("weights", format_bytes, "{:,.0f} bytes"),
    "peak_memory_bytes": ("memory", format_bytes, "{:,.0f} bytes"),
    "step_seconds": ("a step", format_seconds, ""),
    "train_seconds": ("training", format_seconds, ""),
    "latency_seconds": ("latency", format_seconds, ""),
    "throughput": ("rows / s", lambda rows: f"{rows:,.0f}", ""),
}
TESTED = ("stderr", "low", "high", "p", "p_holm", "is_significant")  # behind a difference


# ------------------------------------------------------------------ cells


def estimate_cell(estimate: Estimate | None) -> Cell:
    """A score with one standard error."""
    if estimate is None:
        return EMPTY
    text = f"{estimate.mean:.3f} ± {estimate.stderr:.3f}"
    return Cell(text, estimate.mean, more=(("stderr", estimate.stderr),))


def difference_cell(found: Difference | None, form: str) -> Cell:
    """A difference; a star if it is significant."""
    if found is None:
        return EMPTY
    more = tuple((name, getattr(found, name)) for name in TESTED)
    p = f"p {found.p_holm:.2g} after Holm's correction"
    interval = f"95 % interval {found.low:+.3f} to {found.high:+.3f}"
    hint = p if form == INTERVAL else f"{interval}, {p}"
    star = "*" if found.is_significant else ""
    return Cell(form.format(found) + star, found.mean, hint, more)


INTERVAL = "{0.mean:+.3f} [{0.low:+.3f}, {0.high:+.3f}]"
PLAIN = "{0.mean:+.3f}"


def cost_cell(key: str, value: float | None) -> Cell:
    """Empty where it was not measured."""
    if not value:
        return EMPTY
    _, short, full = COSTS[key]
    return Cell(short(value), value, full.format(value))


def name_cell(one: CandidateResult, results: Results) -> Cell:
    """The name of a candidate, marked if it is the baseline or lacks seeds."""
    missing = f" ({len(one.trials)} of {len(results.seeds)} seeds)" if one.missing_seeds else ""
    text = f"{one.name}{' (baseline)' if one.name == results.baseline else ''}{missing}"
    return Cell(text, one.name)


# ------------------------------------------------------------------ tables


def score_table(results: Results) -> Table:
    """A block per tie; inside it the order of the design."""
    keys = ("overall", "overall_normalised", *results.tasks)
    rows = tuple(
        (
            Cell(tie, one.tie),
            name_cell(one, results),
            *(estimate_cell(one.scores.get(key)) for key in keys),
            number_cell(one.overall.spread, "{:.3f}"),
        )
        for tie, one in tie_blocks(results)
    )
    note = (
        "Mean over seeds ± one standard error, of rows and runs; spread: of overall between seeds. "
        "Candidates of a tie are not significantly different and are in no particular order. "
        f"{seeds_note(results)}"
    )
    columns = ("tie", "candidate", "overall", "normalised", *results.tasks, "spread")
    return Table("scores", "Scores", columns, rows, note)


def seeds_note(results: Results) -> str:
    if all(len(one.trials) == 1 for one in results.candidates):
        return "One seed: errors are over rows alone, and no difference of plans is significant."
    return f"Seeds: {', '.join(map(str, results.seeds))}."


def tie_blocks(results: Results) -> Iterator[tuple[str, CandidateResult]]:
    """Each candidate with the number of its tie, which only the first of a block shows."""
    before: tuple[str, int] | None = None
    for one in results.candidates:
        here = one.reference, one.tie
        yield ("" if here == before else str(one.tie)), one
        before = here


def difference_table(results: Results) -> Table:
    """Each candidate minus the baseline; overall with its interval."""
    keys = ("overall_normalised", *results.tasks)
    rows = tuple(
        (
            Cell(one.name),
            difference_cell(one.against.get("overall"), INTERVAL),
            number_cell(one.against["overall"].p_holm, "{:.2g}"),
            *(difference_cell(one.against.get(key), PLAIN) for key in keys),
        )
        for one in results.candidates
        if one.against
    )
    note = (
        f"Minus {results.baseline}, on the same rows and seeds, with the 95 % interval; p after "
        "Holm's correction; * significant."
    )
    columns = ("candidate", "overall", "p", "normalised", *results.tasks)
    return Table("differences", "Differences", columns, rows, note)


def mcnemar_table(results: Results) -> Table:
    tasks = [task for task in results.tasks if any(task in c.mcnemar for c in results.candidates)]
    rows = tuple(
        (Cell(one.name), *(mcnemar_cell(one, task, seeds) for task in tasks))
        for one in results.candidates
        if one.mcnemar
        for seeds in (common_seeds(one, results[one.reference]),)
    )
    note = f"Exact p against {results.baseline}, a number for each common seed, not corrected."
    return Table("mcnemar", "McNemar's test", ("candidate", *tasks), rows, note)


def common_seeds(one: CandidateResult, other: CandidateResult) -> list[int]:
    return sorted({trial.seed for trial in one.trials} & {trial.seed for trial in other.trials})


def mcnemar_cell(one: CandidateResult, task: str, seeds: list[int]) -> Cell:
    """The first seed's p is the value, those of the others follow it."""
    p = one.mcnemar.get(task, ())
    if not p:
        return EMPTY
    more = zip((f"seed_{seed}" for seed in seeds[1:]), p[1:], strict=False)
    return Cell(" ".join(f"{value:.2g}" for value in p), p[0], more=tuple(more))


def gain_table(results: Results) -> Table:
    """What each task gains over a model of its own."""
    rows = tuple(
        (Cell(one.name), *(difference_cell(one.gains.get(t), INTERVAL) for t in results.tasks))
        for one in results.candidates
        if one.gains
    )
    note = f"Against {results.single}; * significant after Holm's correction."
    columns = ("candidate", *results.tasks)
    return Table("gains", "Gains over a model per task", columns, rows, note)


def cost_table(results: Results) -> Table:
    """Costs that were measured for at least one candidate."""
    known = [key for key in COSTS if any(getattr(c.costs, key) for c in results.candidates)]
    rows = tuple(
        (
            Cell(one.name),
            *(cost_cell(key, getattr(one.costs, key)) for key in known),
            number_cell(one.tm_relative, "{:.3f}"),
        )
        for one in results.candidates
    )
    note = (
        "Memory: peak of a training. Training: steps only. TM: score x time x memory (weights), "
        f"each relative to {results.baseline}, whose own is 1."
    )
    columns = ("candidate", *(COSTS[key][0] for key in known), "TM")
    return Table("costs", "Costs", columns, rows, note)


def training_table(results: Results) -> Table:
    """Steps, passes and the best evaluation of each candidate; means over seeds."""
    rows = tuple(
        (
            Cell(one.name),
            number_cell(mean(trial.train_info.steps for trial in one.trials), "{:,.0f}"),
            number_cell(mean(trial.train_info.best_step for trial in one.trials), "{:,.0f}"),
            number_cell(mean(trial.train_info.best_epoch for trial in one.trials), "{:.1f}"),
            *(passes_cell(one, task) for task in results.tasks),
            Cell(" ".join(trial.id for trial in one.trials)),
        )
        for one in results.candidates
    )
    passes = (f"passes {task}" for task in results.tasks)
    columns = ("candidate", "steps", "best step", "best epoch", *passes, "trials")
    return Table("trainings", "Trainings", columns, rows)


def passes_cell(one: CandidateResult, task: str) -> Cell:
    if task not in one.tasks:
        return EMPTY
    return number_cell(mean(t.train_info.tasks[task].passes for t in one.trials), "{:.1f}")


def missing_table(results: Results) -> Table:
    rows = tuple((Cell(one.name), Cell(one.state), Cell(one.reason)) for one in results.missing)
    return Table("outside", "Trials without a result", ("trial", "state", "why"), rows)


def front_table(decision: Decision) -> Table:
    rows = []
    for point in decision.front:
        score = decision.scores[point.name]
        text = f"{point.score:.3f} ± {score.stderr:.3f}"
        rows.append(
            (
                Cell(point.name),
                Cell(text, point.score, more=(("stderr", score.stderr),)),
                number_cell(score.tie, "{}"),
                *(cost_cell(key, point.costs[key]) for key in FRONT),
            )
        )
    note = "No other candidate is at least as good in all four and better in one of them."
    columns = ("candidate", "score", "tie", *(COSTS[key][0] for key in FRONT))
    return Table("front", "Pareto front", columns, tuple(rows), note)


def describe_rows(results: Results) -> str:
    """Which rows chose the best evaluation, and which judge it: never the same."""
    judges = {"report": "the report half of validation", "test": "the test files"}[results.on]
    chose = ", ".join(f"{task} {rows.selection:,}" for task, rows in results.rows.items())
    judge = ", ".join(f"{task} {rows.judged:,}" for task, rows in results.rows.items())
    return (
        "The best evaluation of each training was chosen on the selection half of validation "
        f"(rows: {chose}; a large half is sampled once) and is judged on {judges} "
        f"(rows: {judge})."
    )
