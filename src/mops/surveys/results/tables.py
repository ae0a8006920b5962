"""The tables of `Results`, for the screen and the report."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

from mops.evaluate.joint import Difference, Estimate
from mops.evaluate.metrics import SOFT
from mops.surveys.results.recommend import FRONT, Decision, percent
from mops.surveys.results.results import CandidateResult, Results
from mops.tables import (
    EMPTY,
    Cell,
    Table,
    format_bytes,
    format_count,
    format_flops,
    format_joules,
    format_seconds,
    number_cell,
)

COSTS = {  # cost -> (column, format)
    "parameters": ("parameters", format_count),
    "trained_parameters": ("trained", format_count),
    "weight_bytes": ("weights", format_bytes),
    "flops_per_step": ("FLOPs / step", format_flops),
    "peak_memory_bytes": ("memory", format_bytes),
    "step_seconds": ("a step", format_seconds),
    "train_seconds": ("training", format_seconds),
    "train_joules": ("energy", format_joules),
    "latency_seconds": ("latency", format_seconds),
    "throughput": ("rows / s", "{:,.0f}".format),
}
TESTED = ("stderr", "low", "high", "p", "is_significant")  # behind a difference
INTERVAL = "{0.mean:+.3f} [{0.low:+.3f}, {0.high:+.3f}]"
PLAIN = "{0.mean:+.3f}"
REFERENCES = (
    "Untrained encoder (cosine) and linear probe (ridge regression on the encoder's vectors of at "
    "most 500 training rows): what needs no training, on at most 1,000 validation rows."
)
BEST = "Best?: the best candidate is among these with 95 % confidence."


def estimate_cell(estimate: Estimate | None) -> Cell:
    return score_cell(estimate.mean, estimate.stderr) if estimate else EMPTY


def score_cell(mean: float, stderr: float) -> Cell:
    return Cell(f"{mean:.3f} ± {stderr:.3f}", mean, more=(("stderr", stderr),))


def best_cell(candidate: CandidateResult) -> Cell:
    return Cell("yes" if candidate.is_best else "", int(candidate.is_best))


def difference_cell(difference: Difference | None, form: str) -> Cell:
    """A difference; a star if it is significant."""
    if difference is None:
        return EMPTY
    more = tuple((name, getattr(difference, name)) for name in TESTED)
    hint = f"{difference.in_words}, p {difference.p:.2g}, adjusted for all candidates"
    star = "*" if difference.is_significant else ""
    return Cell(form.format(difference) + star, difference.mean, hint, more)


def cost_cell(key: str, value: float | None) -> Cell:
    """Empty where it was not measured."""
    return Cell(COSTS[key][1](value), value) if value else EMPTY


def name_cell(one: CandidateResult, results: Results) -> Cell:
    """The name of a candidate, marked if it is the baseline or has fewer seeds than others."""
    count, all_seeds = len(one.trials), len(results.seeds)
    fewer = f" ({count} of {all_seeds} seeds)" if count < all_seeds else ""
    text = f"{one.name}{' (baseline)' if one.name == results.baseline else ''}{fewer}"
    return Cell(text, one.name)


def summary_parts(results: Results) -> Iterator[str | Table]:
    """Scores, differences, gains and costs so far, and the trials that are missing."""
    for title, table in {
        f"{results.name}: scores": score_table(results),
        "differences": difference_table(results),
        "gain of each task over a model of its own": gain_table(results),
        "costs": cost_table(results),
        "trials without a result": missing_table(results),
    }.items():
        if table.rows:
            yield replace(table, title=title)
    if results.candidates:
        yield f"{describe_budget(results)} {describe_rows(results)}"


def score_table(results: Results) -> Table:
    """The best score first, with the set that contains the best candidate."""
    keys = ("overall", "overall_normalised", *results.tasks)
    rows = tuple(
        (
            best_cell(one),
            name_cell(one, results),
            *(estimate_cell(one.scores.get(key)) for key in keys),
            number_cell(one.overall.spread, "{:.3f}"),
        )
        for one in results.candidates
    )
    rows += reference_rows(results, (EMPTY,), 1)
    note = (
        "Mean over seeds ± one standard error, of rows and runs; spread: of overall between seeds. "
        f"{BEST} {seeds_note(results)} {REFERENCES if results.references else ''}"
    )
    columns = ("best?", "candidate", "overall", "normalised", *results.tasks, "spread")
    return Table("scores", "Scores", columns, rows, note)


def reference_rows(
    results: Results, between: Sequence[Cell], after: int
) -> tuple[tuple[Cell, ...], ...]:
    """Rows for what needs no training, under the columns best?, candidate, overall, some between,
    the tasks, and some more.
    """
    rows = []
    for name, scores in results.references.items():
        own = [scores.get(task) for task in results.tasks]
        overall = None if None in own else fmean(value for value in own if value is not None)
        cells = (number_cell(value, "{:.3f}") for value in own)
        rows.append((EMPTY, Cell(name), number_cell(overall, "{:.3f}"), *between, *cells))
    return tuple((*row, *[EMPTY] * after) for row in rows)


def seeds_note(results: Results) -> str:
    if all(len(one.trials) == 1 for one in results.candidates):
        return "One seed: errors are over rows alone, and no difference of plans is significant."
    return f"Seeds: {', '.join(map(str, results.seeds))}."


def difference_table(results: Results) -> Table:
    """Each candidate minus the baseline; overall with its interval."""
    keys = ("overall_normalised", SOFT, *results.tasks)
    rows = tuple(
        (
            Cell(one.name),
            difference_cell(one.against.get("overall"), INTERVAL),
            percent_cell(one, "overall", one.reference, results),
            number_cell(one.against["overall"].p, "{:.2g}"),
            *(difference_cell(one.against.get(key), PLAIN) for key in keys),
        )
        for one in results.candidates
        if one.against
    )
    note = (
        f"Minus {results.baseline}, on the same rows; change: in per cent of its score. Intervals "
        "(95 %) and p are simultaneous over all candidates for each score (Dunnett); * "
        "significant. Soft: overall with the mean probability of the right class in place of "
        "accuracies."
    )
    columns = ("candidate", "overall", "change", "p", "normalised", "soft", *results.tasks)
    return Table("differences", "Differences", columns, rows, note)


def mcnemar_table(results: Results) -> Table:
    tasks = [task for task in results.tasks if any(task in c.mcnemar for c in results.candidates)]
    rows = []
    for one in (one for one in results.candidates if one.mcnemar):
        values = (one.mcnemar.get(task, ()) for task in tasks)
        rows.append((Cell(one.name), *(Cell(" ".join(f"{p:.2g}" for p in own)) for own in values)))
    note = (
        f"Exact p against {results.baseline}, one number for each common seed, not corrected; it "
        "compares two trained models, not two plans."
    )
    return Table("mcnemar", "McNemar's test", ("candidate", *tasks), tuple(rows), note)


def gain_table(results: Results) -> Table:
    """What each task gains over a model of its own."""
    rows = tuple(
        (Cell(one.name), *(difference_cell(one.gains.get(t), INTERVAL) for t in results.tasks))
        for one in results.candidates
        if one.gains
    )
    note = (
        f"Against {results.single}. Intervals (95 %) are simultaneous over all candidates for each "
        "task (Dunnett); * significant."
    )
    columns = ("candidate", *results.tasks)
    return Table("gains", "Gains over a model per task", columns, rows, note)


def task_table(results: Results) -> Table:
    """All that is known of each candidate on each task: a row for both."""
    pairs = [(c, task) for task in results.tasks for c in results.candidates if task in c.tasks]
    found = (trial.metrics.get(t, {}).get(results.on, {}) for c, t in pairs for trial in c.trials)
    metrics = [key for key in dict.fromkeys(chain(*found)) if key not in ("rows", "stderr")]
    rows = tuple(
        (
            Cell(one.name),
            Cell(task),
            *(percent_cell(one, task, name, results) for name in (one.reference, results.single)),
            number_cell(
                mean_of(
                    share
                    for trial in one.trials
                    if (share := trial.train_info.gradient_shares.get(task)) is not None
                ),
                "{:.2f}",
            ),
            cost_cell("flops_per_step", one.costs.flops_per_example.get(task)),
            cost_cell("latency_seconds", one.costs.latency_by_task.get(task)),
            *(number_cell(mean_of(one.values(task, results.on, key)), "{:.3f}") for key in metrics),
        )
        for one, task in pairs
    )
    others = [n for n in (results.baseline, results.single) if n and n in results]
    note = (
        "Means over seeds, on the rows that judge. Change: of the task's score, in per cent of "
        f"that of {' and of '.join(others)}. Precision, recall and F1: of the second of two "
        "classes, else the mean over classes. Gradient: the task's share of the gradient of shared "
        "weights. FLOPs and latency: of one row to this task alone."
    )
    changes = ("change", f"change from {results.single}")
    columns = ("candidate", "task", *changes, "gradient", "FLOPs / row", "latency", *metrics)
    return Table("tasks", "Tasks", columns, rows, note).without_empty_columns()


def mean_of(values: Iterable[float]) -> float | None:
    return fmean(known) if (known := list(values)) else None


def percent_cell(one: CandidateResult, key: str, other: str | None, results: Results) -> Cell:
    """How much higher a score is than that of another candidate, in per cent of that."""
    base = results[other].scores.get(key) if other and other in results else None
    if base is None or base.mean <= 0 or other == one.name:
        return EMPTY
    return number_cell(100 * (one.scores[key].mean / base.mean - 1), "{:+.1f} %")


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
    said = {
        "train_joules": "Energy: of the CPUs while training, other programs included. ",
        "latency_seconds": "Latency: of a row to all tasks in one request. ",
    }
    note = (
        f"Memory: peak of a training. Training: steps only. "
        f"{''.join(text for key, text in said.items() if key in known)}"
        f"TM: score x time x memory (weights), each relative to {results.baseline}, whose own is 1."
    )
    columns = ("candidate", *(COSTS[key][0] for key in known), "TM")
    return Table("costs", "Costs", columns, rows, note)


def missing_table(results: Results) -> Table:
    rows = tuple((Cell(one.name), Cell(one.state), Cell(one.reason)) for one in results.missing)
    return Table("outside", "Trials without a result", ("trial", "state", "why"), rows)


def odds_table(decision: Decision) -> Table:
    """How close each candidate is to the best; the chosen one first."""
    rows = tuple(
        (
            Cell(one.name),
            Cell(one.cost),
            Cell(percent(one.within), one.within),
            number_cell(one.regret, "{:.3f}"),
        )
        for one in decision.odds
    )
    near = f"within {decision.worth:g}"
    note = (
        f"{near.capitalize()}: the probability that its overall score is at most "
        f"{decision.worth:g} below that of the best. Expected loss: the mean distance to the best. "
        "Both from the joint distribution of all scores, of rows and runs."
    )
    columns = ("candidate", "cost", near, "expected loss")
    return Table("decision", "Decision", columns, rows, note)


def race_table(results: Results) -> Table:
    """The rounds of a race, or of seeds that were added; `why` says who was dropped."""
    rows = tuple(
        (
            number_cell(number, "{}"),
            Cell(", ".join(entry.candidates)),
            Cell(", ".join(map(str, entry.seeds))),
            number_cell(entry.until, "{:.0%}"),
            Cell(entry.why),
        )
        for number, entry in enumerate(results.rounds, start=1)
    )
    note = "Steps: how far the trainings went; a later round continues those below 100%."
    columns = ("round", "trained", "seeds", "steps", "why")
    return Table("rounds", "Rounds of training", columns, rows, note)


def front_table(decision: Decision) -> Table:
    rows = tuple(
        (
            Cell(point.name),
            score_cell(point.score, point.stderr),
            *(cost_cell(key, point.costs[key]) for key in FRONT),
        )
        for point in decision.front
    )
    note = (
        "No other candidate is at least as good in all four and better in one of them. Times that "
        "differ by less than their noise, or between candidates that do the same work, are equal."
    )
    columns = ("candidate", "score", *(COSTS[key][0] for key in FRONT))
    return Table("front", "Pareto front", columns, rows, note)


def describe_budget(results: Results) -> str:
    """What the trainings took, whatever the schedule; from least to most where they differ."""
    infos = [trial.train_info for one in results.candidates for trial in one.trials]

    def span(values: Iterable[float], form: str = "{:,}") -> str:
        ordered = sorted(values)
        return " to ".join(dict.fromkeys(form.format(ordered[n]) for n in (0, -1)))

    seen = {t: [info.tasks[t] for info in infos if t in info.tasks] for t in results.tasks}
    rows = ", ".join(
        f"{span(one.examples for one in own)} rows of {task} "
        f"({span((one.passes for one in own), '{:.2f}')} passes)"
        for task, own in seen.items()
    )
    steps = span(info.steps for info in infos)
    return f"Every finished training took {steps} steps, with {rows}."


def describe_rows(results: Results) -> str:
    counts = ", ".join(f"{task} {rows:,}" for task, rows in results.rows.items())
    if results.on == "test":
        return f"Every training is judged on the test files (rows: {counts})."
    return (
        f"Every training is judged on all validation rows (rows: {counts}). Each row is judged by "
        "the state that was chosen on the other half of the validation rows; rows that share a "
        "sentence are in the same half."
    )
