"""How soon a candidate is nearly as good as in the end, and how still it stands there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from mops.reports.figures.curves import Evaluation, evaluations
from mops.reports.material import Material
from mops.tables import Cell, Table, number_cell
from mops.units import format_seconds

NEARLY = 0.9  # of the final score
FEWEST_LAST = 3  # evaluations whose spread means something
LAST = 4  # the last quarter of the evaluations
NOTE = (
    "Overall on the rows that choose, at the stored evaluations; means over seeds. Spread: the "
    "standard deviation of the last quarter of a training's evaluations, three at least."
)


@dataclass(frozen=True)
class Pace:
    """What one training shows."""

    evaluations: int
    steps: int  # at the last evaluation
    final: float
    steps_to: int | None  # the first evaluation with nine tenths of the final score
    seconds_to: float | None
    spread: float | None


def convergence_table(material: Material) -> Table | None:
    """A row per candidate; none where no training was evaluated twice."""
    rows = []
    for one in material.summary.standings:
        found = [pace_of(list(evaluations(trial))) for trial in material.of(one.name)]
        paces = [pace for pace in found if pace is not None]
        if paces:
            rows.append((Cell(one.name), *cells_of(paces)))
    columns = (
        "candidate", "evaluations", "steps", "final score",
        "steps to 90 %", "share of steps", "time to 90 %", "spread of the last",
    )  # fmt: skip
    title = "How soon, and how steadily"
    return Table("convergence", title, columns, tuple(rows), NOTE) if rows else None


def pace_of(all_of_them: Sequence[Evaluation]) -> Pace | None:
    """None for a training with fewer than two evaluations of all tasks."""
    known = [one for one in all_of_them if "overall" in one.scores]
    if len(known) < 2:
        return None
    scores = [one.scores["overall"] for one in known]
    near = next((one for one in known if one.scores["overall"] >= NEARLY * scores[-1]), known[-1])
    is_told = scores[-1] > 0  # nine tenths of a negative score are more than the score
    last = scores[-max(FEWEST_LAST, len(scores) // LAST) :]
    return Pace(
        evaluations=len(known),
        steps=known[-1].step,
        final=scores[-1],
        steps_to=near.step if is_told else None,
        seconds_to=near.seconds if is_told else None,
        spread=stdev(last) if len(last) >= FEWEST_LAST else None,
    )


def cells_of(paces: Sequence[Pace]) -> tuple[Cell, ...]:
    steps = mean_of([pace.steps_to for pace in paces])
    share = mean_of([pace.steps_to / pace.steps for pace in paces if pace.steps_to is not None])
    seconds = mean_of([pace.seconds_to for pace in paces])
    spread = mean_of([pace.spread for pace in paces])
    final = fmean(pace.final for pace in paces)
    return (
        number_cell(fmean(pace.evaluations for pace in paces), "{:,.0f}"),
        number_cell(fmean(pace.steps for pace in paces), "{:,.0f}"),
        number_cell(final, "{:.3f}"),
        number_cell(steps, "{:,.0f}"),
        number_cell(share, "{:.0%}"),
        Cell("") if seconds is None else Cell(format_seconds(seconds), seconds),
        number_cell(spread, "{:.4f}"),
    )


def mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
