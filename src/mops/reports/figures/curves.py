"""Learning curves: losses and scores during training, and how soon candidates converge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import numpy as np

from mops.reports.figures import style
from mops.reports.figures.style import Chart, Look
from mops.reports.source import Source, TrialFiles
from mops.tables import EMPTY, Cell, Table, number_cell
from mops.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOTAL = "all tasks"
SMOOTHING = 20  # a value is the mean over one part in so many of the training
MOST, FEW = 50, 20  # values of a notable line, and of the others
MARKED = 6  # lines of at most so many values have markers
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
Line = tuple[Sequence[float], Sequence[float]]
Lines = Mapping[str, Mapping[str, Line]]  # panel -> candidate -> x and y


@dataclass(frozen=True)
class StoredEvaluation:
    """A stored evaluation on the selection rows."""

    step: int
    seconds: float
    scores: Mapping[str, float]  # overall, then tasks


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


def evaluations(trial: TrialFiles) -> Iterator[StoredEvaluation]:
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
            yield StoredEvaluation(entry["step"], entry["seconds"], scores)


def draw_curves(source: Source) -> Iterator[Chart | str]:
    """Charts of the first common seed; each where a candidate has two values or more."""
    trials = source.same_seed_trials(one.name for one in source.results.candidates)
    seed = ", ".join(sorted({str(trial.result.seed) for trial in trials.values()}))
    looks = style.candidate_looks(source)
    missing = [name for name, trial in trials.items() if not trial.curve]
    if missing:
        yield f"Learning curves leave out {', '.join(missing)}: no readable curve.jsonl."
    losses = collect_losses(source, trials, looks)
    if losses:
        caption = f"Training loss by step, seed {seed}; running mean over 1/20 of the steps."
        yield draw_lines(looks, losses, "loss", "Loss during training", caption, "steps")
    evaluated = {name: list(evaluations(trial)) for name, trial in trials.items()}
    caption = f"Evaluations on the selection rows, not on the rows that judge; seed {seed}."
    for choice, unit, x in (
        ("score by step", "steps", lambda e: float(e.step)),
        ("score by time", "seconds of training", lambda e: e.seconds),
    ):
        lines = collect_scores(source, evaluated, x)
        if lines:
            yield draw_lines(looks, lines, choice, "Score during training", caption, unit)


def collect_losses(
    source: Source, trials: Mapping[str, TrialFiles], looks: Mapping[str, Look]
) -> Lines:
    lines: dict[str, dict[str, Line]] = {key: {} for key in (TOTAL, *source.results.tasks)}
    for name, trial in trials.items():
        for key, (x, y) in loss_lines(trial).items():
            if key in lines and len(x) > 1:
                lines[key][name] = smooth(x, y, MOST if looks[name].is_notable else FEW)
    return {key: own for key, own in lines.items() if own}


def smooth(x: Sequence[float], y: Sequence[float], most: int) -> Line:
    """A running mean over one twentieth of the values, at `most` of them."""
    half = len(y) // (2 * SMOOTHING)
    sums = np.concatenate([[0.0], np.cumsum(y)])
    at = np.unique(np.linspace(0, len(y) - 1, min(most, len(y))).round().astype(int))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(y))
    return [x[n] for n in at], ((sums[high] - sums[low]) / (high - low)).tolist()


def collect_scores(
    source: Source,
    evaluated: Mapping[str, Sequence[StoredEvaluation]],
    x: Callable[[StoredEvaluation], float],
) -> Lines:
    lines: dict[str, dict[str, Line]] = {}
    for key in ("overall", *source.results.tasks):
        for name, own in evaluated.items():
            known = [one for one in own if key in one.scores]
            if len(known) > 1:
                values = [x(one) for one in known], [one.scores[key] for one in known]
                lines.setdefault(key, {})[name] = values
    return lines


def draw_lines(
    looks: Mapping[str, Look], lines: Lines, choice: str, title: str, caption: str, unit: str
) -> Chart:
    """A panel for each key."""
    figure, panels = style.make_panels(lines, xlabel=unit)
    for axes, own in zip(panels, lines.values(), strict=True):
        draw_panel(axes, own, looks)
    names = {name for own in lines.values() for name in own}
    notable = [look for name, look in looks.items() if name in names and look.is_notable]
    entries: list[tuple[str, str, Look | None]] = [(o.name, o.colour, o) for o in notable]
    if others := len(names) - len(notable):
        entries.append((f"{others} others", style.OTHER, None))
    style.add_legend(figure, entries)
    return Chart(figure, f"curves-{choice.replace(' ', '-')}", title, caption, "curves", choice)


def draw_panel(axes: Axes, lines: Mapping[str, Line], looks: Mapping[str, Look]) -> None:
    for name in sorted(lines, key=lambda name: looks[name].is_notable):  # notable ones on top
        look, (x, y) = looks[name], lines[name]
        axes.plot(
            x, y, color=look.colour, linewidth=1.7 if look.is_notable else 0.8,
            marker=look.marker if look.is_notable and len(x) <= MARKED else "", markersize=3.5,
            alpha=1.0 if look.is_notable else 0.55, gid=look.gid,
        )  # fmt: skip
    axes.locator_params(nbins=5)


# ------------------------------------------------------------------ convergence


@dataclass(frozen=True)
class Pace:
    """How fast one training converged."""

    evaluations: int
    steps: int  # at the last evaluation
    final: float
    steps_to: int | None  # the first evaluation with nine tenths of the final score
    seconds_to: float | None
    spread: float | None


def convergence_table(source: Source) -> Table:
    """A row per candidate that was evaluated twice or more."""
    rows = []
    for one in source.results.candidates:
        measured = [measure_pace(list(evaluations(trial))) for trial in source.trials_of(one.name)]
        paces = [pace for pace in measured if pace is not None]
        if paces:
            rows.append((Cell(one.name), *pace_cells(paces)))
    return Table("convergence", "Convergence", COLUMNS, tuple(rows), NOTE)


def measure_pace(history: Sequence[StoredEvaluation]) -> Pace | None:
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
