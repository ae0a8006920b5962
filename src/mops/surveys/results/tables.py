"""The tables of `Results`, for the screen and the report, and the files of a judged survey.

summary.json is complete, summary.csv flat, summary.md for people.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from mops.evaluate.compare import Difference, Estimate
from mops.files import write_text
from mops.surveys.results.recommend import FRONT, Decision, RankedScore, recommend
from mops.surveys.results.results import CandidateResult, Results
from mops.tables import EMPTY, Cell, Table, escape_markdown, markdown_table, number_cell
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
INTERVAL = "{0.mean:+.3f} [{0.low:+.3f}, {0.high:+.3f}]"
PLAIN = "{0.mean:+.3f}"
LISTED = ("steps", "best_step", "best_epoch", "train_seconds")  # of each trial, in summary.csv


# ------------------------------------------------------------------ cells


def estimate_cell(estimate: Estimate | RankedScore | None) -> Cell:
    """A score with one standard error."""
    if estimate is None:
        return EMPTY
    text = f"{estimate.mean:.3f} ± {estimate.stderr:.3f}"
    return Cell(text, estimate.mean, more=(("stderr", estimate.stderr),))


def difference_cell(difference: Difference | None, form: str) -> Cell:
    """A difference; a star if it is significant."""
    if difference is None:
        return EMPTY
    more = tuple((name, getattr(difference, name)) for name in TESTED)
    hint = f"p {difference.p_holm:.2g} after Holm's correction"
    if form != INTERVAL:
        hint = f"95 % interval {difference.low:+.3f} to {difference.high:+.3f}, {hint}"
    star = "*" if difference.is_significant else ""
    return Cell(form.format(difference) + star, difference.mean, hint, more)


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
    """A block per tie, numbered in its first row; inside it the order of the design."""
    keys = ("overall", "overall_normalised", *results.tasks)
    rows, before = [], None
    for one in results.candidates:
        block = one.reference, one.tie
        rows.append(
            (
                Cell("" if block == before else str(one.tie), one.tie),
                name_cell(one, results),
                *(estimate_cell(one.scores.get(key)) for key in keys),
                number_cell(one.overall.spread, "{:.3f}"),
            )
        )
        before = block
    note = (
        "Mean over seeds ± one standard error, of rows and runs; spread: of overall between seeds. "
        "Candidates of a tie are not significantly different and are in no particular order. "
        f"{seeds_note(results)}"
    )
    columns = ("tie", "candidate", "overall", "normalised", *results.tasks, "spread")
    return Table("scores", "Scores", columns, tuple(rows), note)


def seeds_note(results: Results) -> str:
    if all(len(one.trials) == 1 for one in results.candidates):
        return "One seed: errors are over rows alone, and no difference of plans is significant."
    return f"Seeds: {', '.join(map(str, results.seeds))}."


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
    rows = []
    for one in (one for one in results.candidates if one.mcnemar):
        other = {trial.seed for trial in results[one.reference].trials}
        seeds = sorted(other & {trial.seed for trial in one.trials})
        cells = (mcnemar_cell(one.mcnemar.get(task, ()), seeds) for task in tasks)
        rows.append((Cell(one.name), *cells))
    note = f"Exact p against {results.baseline}, a number for each common seed, not corrected."
    return Table("mcnemar", "McNemar's test", ("candidate", *tasks), tuple(rows), note)


def mcnemar_cell(p: Sequence[float], seeds: Sequence[int]) -> Cell:
    """The p of the first seed is the value, those of the others follow it."""
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
    rows = []
    for one in results.candidates:
        infos = [trial.train_info for trial in one.trials]
        passes = {t: mean(info.tasks[t].passes for info in infos) for t in one.tasks}
        rows.append(
            (
                Cell(one.name),
                number_cell(mean(info.steps for info in infos), "{:,.0f}"),
                number_cell(mean(info.best_step for info in infos), "{:,.0f}"),
                number_cell(mean(info.best_epoch for info in infos), "{:.1f}"),
                *(number_cell(passes.get(task), "{:.1f}") for task in results.tasks),
                Cell(" ".join(trial.id for trial in one.trials)),
            )
        )
    columns = ("steps", "best step", "best epoch", *(f"passes {task}" for task in results.tasks))
    return Table("trainings", "Trainings", ("candidate", *columns, "trials"), tuple(rows))


def missing_table(results: Results) -> Table:
    rows = tuple((Cell(one.name), Cell(one.state), Cell(one.reason)) for one in results.missing)
    return Table("outside", "Trials without a result", ("trial", "state", "why"), rows)


def front_table(decision: Decision) -> Table:
    rows = tuple(
        (
            Cell(point.name),
            estimate_cell(decision.scores[point.name]),
            number_cell(decision.scores[point.name].tie, "{}"),
            *(cost_cell(key, point.costs[key]) for key in FRONT),
        )
        for point in decision.front
    )
    note = "No other candidate is at least as good in all four and better in one of them."
    columns = ("candidate", "score", "tie", *(COSTS[key][0] for key in FRONT))
    return Table("front", "Pareto front", columns, rows, note)


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


# ------------------------------------------------------------------ files


def write_results(results: Results) -> None:
    write_text(results.folder / "summary.json", results.to_json())
    write_text(results.folder / "summary.csv", to_csv(results))
    write_text(results.folder / "summary.md", to_markdown(results))


def to_csv(results: Results) -> str:
    """A row per candidate; columns are the paths of summary.json, as `against.overall.low`.

    `trials.steps` and the like are lists over seeds.
    """
    rows = []
    for one in results.candidates:
        infos, data = [trial.train_info for trial in one.trials], asdict(one)
        data["trials"] = {
            "id": [trial.id for trial in one.trials],
            "seed": [trial.seed for trial in one.trials],
            **{key: [getattr(info, key) for info in infos] for key in LISTED},
            "passes": {task: [info.tasks[task].passes for info in infos] for task in one.tasks},
            "warnings": sum(len(trial.warnings) for trial in one.trials),
        }
        data["costs"].pop("parameters_by_owner")
        rows.append(dict(join_paths(data)))
    columns = dict.fromkeys(key for row in rows for key in row)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def join_paths(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by dots; values of a list are joined by spaces."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from join_paths(value, f"{prefix}{key}.")
        else:
            is_list = isinstance(value, list | tuple)
            yield f"{prefix}{key}", " ".join(map(str, value)) if is_list else value


def to_markdown(results: Results) -> str:
    decision = recommend(results).lines if results.candidates else ["No trial is finished."]
    parts = [f"# {escape_markdown(results.name)}", "\n".join(map(escape_markdown, decision))]
    for make in (
        score_table, difference_table, mcnemar_table, gain_table, cost_table, training_table,
    ):  # fmt: skip
        if (table := make(results)).rows:
            parts += [f"## {table.title}", markdown_table(table), escape_markdown(table.note)]
    caveats = [caveat.text for caveat in results.caveats]
    lists = {"Caveats": caveats, "Warnings of the trainings": list_warnings(results)}
    for title, lines in ((title, lines) for title, lines in lists.items() if lines):
        parts += [f"## {title}", "\n".join(f"- {escape_markdown(line)}" for line in lines)]
    if (missing := missing_table(results)).rows:
        parts += [f"## {missing.title}", markdown_table(missing)]
    parts += ["## Rows", describe_rows(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def list_warnings(results: Results) -> list[str]:
    """Each warning once for a candidate, with the seeds that gave it."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for one in results.candidates:
        for trial in one.trials:
            for warning in trial.warnings:
                seeds.setdefault((one.name, warning), []).append(str(trial.seed))
    return [f"{name} (seed {', '.join(which)}): {text}" for (name, text), which in seeds.items()]
