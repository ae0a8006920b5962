"""Learning curves of trials: losses, evaluations, and how soon a candidate converges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev

from mops.reports.material import Material, TrialFiles
from mops.tables import EMPTY, Cell, Table, number_cell
from mops.units import format_seconds

TOTAL = "all tasks"
NEARLY = 0.9  # fraction of the final score
FEWEST_LAST = 3  # evaluations whose spread means something
NOTE = (
    "Overall score on the selection rows at the stored evaluations; means over seeds. Spread: the "
    "standard deviation of the last quarter of a training's evaluations (at least three)."
)
COLUMNS = (
    "candidate", "evaluations", "steps", "final score",
    "steps to 90 %", "share of steps", "time to 90 %", "spread of the last",
)  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """A stored evaluation on the selection rows."""

    step: int
    seconds: float
    scores: Mapping[str, float]  # overall, then tasks


@dataclass(frozen=True)
class Pace:
    """How fast one training converged."""

    evaluations: int
    steps: int  # at the last evaluation
    final: float
    steps_to: int | None  # the first evaluation with nine tenths of the final score
    seconds_to: float | None
    spread: float | None


def loss_lines(trial: TrialFiles) -> dict[str, tuple[list[float], list[float]]]:
    """Task (and all tasks together) -> steps and finite losses."""
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for entry in trial.curve:
        for key, value in {TOTAL: entry.get("loss"), **entry.get("losses", {})}.items():
            if isinstance(value, float | int) and isfinite(value):
                x, y = lines.setdefault(key, ([], []))
                x.append(float(entry["step"]))
                y.append(float(value))
    return lines


def evaluations(trial: TrialFiles) -> Iterator[Evaluation]:
    main = trial.record.scores.main
    for entry in trial.curve:
        if "selection" in entry:
            scores = {
                task: own[main[task]]
                for task, own in entry["selection"].items()
                if own.get(main[task]) is not None
            }
            if entry.get("overall") is not None:
                scores["overall"] = entry["overall"]
            yield Evaluation(entry["step"], entry["seconds"], scores)


def convergence_table(material: Material) -> Table:
    """A row per candidate that was evaluated twice or more."""
    rows = []
    for one in material.summary.standings:
        measured = [measure_pace(list(evaluations(trial))) for trial in material.of(one.name)]
        paces = [pace for pace in measured if pace is not None]
        if paces:
            rows.append((Cell(one.name), *pace_cells(paces)))
    return Table("convergence", "Convergence", COLUMNS, tuple(rows), NOTE)


def measure_pace(history: Sequence[Evaluation]) -> Pace | None:
    """None for a training with fewer than two evaluations of all tasks."""
    known = [one for one in history if "overall" in one.scores]
    if len(known) < 2:
        return None
    scores = [one.scores["overall"] for one in known]
    final = scores[-1]
    near = next((one for one in known if one.scores["overall"] >= NEARLY * final), known[-1])
    has_meaning = final > 0  # nine tenths of a negative score are more than the score
    last = scores[-max(FEWEST_LAST, len(scores) // 4) :]
    return Pace(
        evaluations=len(known),
        steps=known[-1].step,
        final=final,
        steps_to=near.step if has_meaning else None,
        seconds_to=near.seconds if has_meaning else None,
        spread=stdev(last) if len(last) >= FEWEST_LAST else None,
    )


def pace_cells(paces: Sequence[Pace]) -> tuple[Cell, ...]:
    shares = [pace.steps_to / pace.steps for pace in paces if pace.steps_to is not None]
    seconds = mean_known([pace.seconds_to for pace in paces])
    return (
        number_cell(fmean(pace.evaluations for pace in paces), "{:,.0f}"),
        number_cell(fmean(pace.steps for pace in paces), "{:,.0f}"),
        number_cell(fmean(pace.final for pace in paces), "{:.3f}"),
        number_cell(mean_known([pace.steps_to for pace in paces]), "{:,.0f}"),
        number_cell(mean_known(shares), "{:.0%}"),
        EMPTY if seconds is None else Cell(format_seconds(seconds), seconds),
        number_cell(mean_known([pace.spread for pace in paces]), "{:.4f}"),
    )


def mean_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
