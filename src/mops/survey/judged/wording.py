"""The tables and sentences of a summary, for the screen and for summary.md alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from mops.judge.differences import Difference
from mops.survey.judged.amounts import byte_words, count_words, second_words
from mops.survey.judged.pareto import COSTS as FRONT
from mops.survey.judged.recommend import Decision
from mops.survey.judged.standings import Standing, Summary

Table = tuple[list[str], list[list[str]], str]  # columns, rows, a note
COSTS = {  # fact -> (column, how it reads)
    "parameters": ("parameters", count_words),
    "trained_parameters": ("trained", count_words),
    "weight_bytes": ("weights", byte_words),
    "peak_memory_bytes": ("memory", byte_words),
    "step_seconds": ("a step", second_words),
    "train_seconds": ("training", second_words),
    "latency_seconds": ("latency", second_words),
    "throughput": ("rows / s", lambda rows: f"{rows:,.0f}"),
}


def score_rows(summary: Summary) -> Table:
    """A block per tie; inside it no order but that of the design."""
    tasks = list(summary.tasks)
    rows = [
        [
            tie,
            marked(one, summary),
            *(score_cell(one, key) for key in ("overall", "overall_normalised", *tasks)),
            "" if one.overall.spread is None else f"{one.overall.spread:.3f}",
        ]
        for tie, one in blocks(summary)
    ]
    note = (
        "Mean over seeds ± one standard error, of rows and runs; spread: of overall between seeds. "
        "Candidates of a tie cannot be told apart and stand in no order."
    )
    columns = ["tie", "candidate", "overall", "normalised", *tasks, "spread"]
    return columns, rows, note + seeds_note(summary)


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


def marked(one: Standing, summary: Summary) -> str:
    missing = f" ({len(one.trials)} of {len(summary.seeds)} seeds)" if one.missing_seeds else ""
    return f"{one.name}{' (baseline)' if one.name == summary.baseline else ''}{missing}"


def score_cell(one: Standing, key: str) -> str:
    found = one.scores.get(key)
    return f"{found.mean:.3f} ± {found.stderr:.3f}" if found else ""


def difference_rows(summary: Summary) -> Table:
    """Each candidate minus the baseline; overall with its interval."""
    tasks = list(summary.tasks)
    rows = [
        [
            one.name,
            interval(one.against.get("overall")),
            p_cell(one.against.get("overall")),
            *(change(one.against.get(key)) for key in ("overall_normalised", *tasks)),
        ]
        for one in summary.standings
        if one.against
    ]
    note = (
        f"Minus {summary.baseline}, on the same rows and seeds, with the 95 % interval; p after "
        "Holm's correction; * real."
    )
    return ["candidate", "overall", "p", "normalised", *tasks], rows, note


def interval(found: Difference | None) -> str:
    if found is None:
        return ""
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]{star(found)}"


def change(found: Difference | None) -> str:
    return "" if found is None else f"{found.mean:+.3f}{star(found)}"


def p_cell(found: Difference | None) -> str:
    return "" if found is None else f"{found.p_holm:.2g}"


def star(found: Difference) -> str:
    return "*" if found.is_real else ""


def mcnemar_rows(summary: Summary) -> Table:
    tasks = [task for task in summary.tasks if any(task in o.mcnemar for o in summary.standings)]
    rows = [
        [one.name, *(" ".join(f"{p:.2g}" for p in one.mcnemar.get(task, ())) for task in tasks)]
        for one in summary.standings
        if one.mcnemar
    ]
    note = f"Exact p against {summary.baseline}, a number for each common seed, not corrected."
    return ["candidate", *tasks], rows, note


def training_rows(summary: Summary) -> Table:
    """What each candidate was given, and where its best evaluation lay; means over seeds."""
    tasks = list(summary.tasks)
    rows = [
        [
            one.name,
            f"{mean(trial.steps for trial in one.trials):,.0f}",
            f"{mean(trial.best_step for trial in one.trials):,.0f}",
            f"{mean(trial.best_epoch for trial in one.trials):.1f}",
            *(passes(one, task) for task in tasks),
            " ".join(trial.id for trial in one.trials),
        ]
        for one in summary.standings
    ]
    columns = ["candidate", "steps", "best step", "best epoch"]
    return [*columns, *(f"passes {task}" for task in tasks), "trials"], rows, ""


def passes(one: Standing, task: str) -> str:
    known = [trial.passes[task] for trial in one.trials if task in trial.passes]
    return f"{mean(known):.1f}" if known else ""


def gain_rows(summary: Summary) -> Table:
    """What each task gains over its model in the single-task candidate."""
    tasks = list(summary.tasks)
    rows = [
        [one.name, *(interval(one.gains.get(task)) for task in tasks)]
        for one in summary.standings
        if one.gains
    ]
    return ["candidate", *tasks], rows, f"Against {summary.single}; * real after Holm's correction."


def cost_rows(summary: Summary) -> Table:
    """Only what was measured for somebody."""
    known = [key for key in COSTS if any(one.costs.get(key) for one in summary.standings)]
    rows = [
        [
            one.name,
            *(cost_cell(one.costs, key) for key in known),
            "" if one.tm_relative is None else f"{one.tm_relative:.3f}",
        ]
        for one in summary.standings
    ]
    note = (
        "Memory: peak of a training. Training: steps only. TM: score x time x memory (weights), "
        f"each beside {summary.baseline}, whose own is 1."
    )
    return ["candidate", *(COSTS[key][0] for key in known), "TM"], rows, note


def cost_cell(costs: Mapping[str, Any], key: str) -> str:
    value = costs.get(key)
    return COSTS[key][1](value) if value else ""


def outside_rows(summary: Summary) -> list[list[str]]:
    states = {"failed": summary.failed, "left out": summary.doubtful, "waiting": summary.waiting}
    return [[one.name, state, one.reason] for state, of in states.items() for one in of]


def what_was_chosen(summary: Summary) -> str:
    """Which rows chose the best evaluation, and which judge it: never the same."""
    judges = {"report": "the report half of validation", "test": "the test files"}[summary.on]
    chose = ", ".join(f"{task} {rows.chose:,}" for task, rows in summary.rows.items())
    judge = ", ".join(f"{task} {rows.judge:,}" for task, rows in summary.rows.items())
    return (
        f"The best evaluation of each training was chosen on the selection half of validation "
        f"(rows: {chose}; of a large half evaluations take a fixed sample) and is judged on "
        f"{judges} (rows: {judge})."
    )


# ------------------------------------------------------------------ the decision


def decided(decision: Decision) -> Sequence[str]:
    """The decision in a few lines."""
    lines = [sentence(decision.reason)]
    if decision.tied:
        lines.append(f"Tied with it: {', '.join(decision.tied)}.")
    lines += [f"Excluded: {one.name}: {one.reason}." for one in decision.excluded]
    lines += [sentence(note) for note in decision.notes]
    return lines


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def front_rows(decision: Decision) -> Table:
    rows = [
        [
            point.name,
            f"{point.score:.3f} ± {decision.scores[point.name].stderr:.3f}",
            str(decision.scores[point.name].tie),
            *(cost_cell(point.costs, key) for key in FRONT),
        ]
        for point in decision.front
    ]
    note = "No other candidate is at least as good in all four and better in one of them."
    return ["candidate", "score", "tie", *(COSTS[key][0] for key in FRONT)], rows, note
