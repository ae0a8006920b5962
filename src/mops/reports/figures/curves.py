"""Learning curves: losses and scores during training, and how soon candidates converge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mops.reports.figures import style
from mops.reports.figures.style import Look, Picture
from mops.reports.source import Source, TrialFiles
from mops.tables import EMPTY, Cell, Table
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
Line = tuple[Sequence[float], Sequence[float]]
Lines = dict[str, dict[str, Line]]  # panel -> candidate -> x and y


class StoredEvaluation(NamedTuple):
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
    for entry in (entry for entry in trial.curve if "selection" in entry):
        scores = {task: own.get(main[task]) for task, own in entry["selection"].items()}
        scores["overall"] = entry.get("overall")
        known = {key: value for key, value in scores.items() if value is not None}
        yield StoredEvaluation(entry["step"], entry["seconds"], known)


def draw_curves(source: Source) -> Iterator[Picture | str]:
    """Charts of the first common seed; each where a candidate has two values or more."""
    trials = source.same_seed_trials(one.name for one in source.results.candidates)
    seed = ", ".join(sorted({str(trial.result.seed) for trial in trials.values()}))
    looks = style.candidate_looks(source)
    missing = [name for name, trial in trials.items() if not trial.curve]
    if missing:
        yield f"Learning curves leave out {', '.join(missing)}: no readable curve.jsonl."
    losses = {name: loss_lines(trial) for name, trial in trials.items()}
    most = {name: MOST if look.is_notable else FEW for name, look in looks.items()}
    lines: Lines = {
        key: {name: smooth(*own[key], most[name]) for name, own in losses.items() if key in own}
        for key in (TOTAL, *source.results.tasks)
    }
    caption = f"Training loss by step, seed {seed}; running mean over 1/20 of the steps."
    yield from draw_lines(looks, lines, "loss", "Loss during training", caption, "steps")
    stored = {name: list(evaluations(trial)) for name, trial in trials.items()}
    caption = f"Evaluations on the selection rows, not on the rows that judge; seed {seed}."
    fields = {"step": ("step", "steps"), "time": ("seconds", "seconds of training")}
    for by, (field, unit) in fields.items():
        lines = {
            key: {name: score_line(own, key, field) for name, own in stored.items()}
            for key in ("overall", *source.results.tasks)
        }
        choice = f"score by {by}"
        yield from draw_lines(looks, lines, choice, "Score during training", caption, unit)


def score_line(history: Sequence[StoredEvaluation], key: str, field: str) -> Line:
    known = [one for one in history if key in one.scores]
    return [getattr(one, field) for one in known], [one.scores[key] for one in known]


def smooth(x: Sequence[float], y: Sequence[float], most: int) -> Line:
    """A running mean over one twentieth of the values, at `most` of them."""
    half = len(y) // (2 * SMOOTHING)
    sums = np.concatenate([[0.0], np.cumsum(y)])
    at = np.unique(np.linspace(0, len(y) - 1, min(most, len(y))).round().astype(int))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(y))
    return [x[n] for n in at], ((sums[high] - sums[low]) / (high - low)).tolist()


def draw_lines(
    looks: Mapping[str, Look], lines: Lines, choice: str, title: str, caption: str, unit: str
) -> Iterator[Picture]:
    """A panel for each key that has lines of two values or more."""
    for key in list(lines):
        lines[key] = {name: line for name, line in lines[key].items() if len(line[0]) > 1}
    if not (lines := {key: own for key, own in lines.items() if own}):
        return
    names = {name for own in lines.values() for name in own}
    notable = [look for name, look in looks.items() if name in names and look.is_notable]
    legend: list[style.LegendEntry] = [(o.name, o.colour, o.marker, o.gid) for o in notable]
    if others := len(names) - len(notable):
        legend.append((f"{others} others", style.OTHER, "", None))
    figure, panels = style.make_panels(list(lines), xlabel=unit, legend=legend)
    for axes, own in zip(panels, lines.values(), strict=True):
        draw_panel(axes, own, looks)
    name = f"curves-{choice.replace(' ', '-')}"
    yield style.to_picture(figure, name, title, caption, "curves", choice)


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


COLUMNS: dict[str, Callable[[float], str]] = {  # number of a training -> how its mean is shown
    "evaluations": "{:,.0f}".format,
    "steps": "{:,.0f}".format,
    "final score": "{:.3f}".format,
    "steps to 90 %": "{:,.0f}".format,
    "share of steps": "{:.0%}".format,
    "time to 90 %": format_seconds,
    "spread of the last": "{:.4f}".format,
}


def convergence_table(source: Source) -> Table:
    """A row per candidate that was evaluated twice or more."""
    rows = []
    for one in source.results.candidates:
        paces = [measure_pace(list(evaluations(trial))) for trial in source.trials_of(one.name)]
        if any(paces):
            values = {key: [pace[key] for pace in paces if key in pace] for key in COLUMNS}
            means = {key: fmean(own) if own else None for key, own in values.items()}
            cells = (EMPTY if m is None else Cell(COLUMNS[k](m), m) for k, m in means.items())
            rows.append((Cell(one.name), *cells))
    return Table("convergence", "Convergence", ("candidate", *COLUMNS), tuple(rows), NOTE)


def measure_pace(history: Sequence[StoredEvaluation]) -> dict[str, float]:
    """How fast one training converged; empty if all tasks were evaluated fewer than two times."""
    known = [one for one in history if "overall" in one.scores]
    if len(known) < 2:
        return {}
    scores = [one.scores["overall"] for one in known]
    steps, final = known[-1].step, scores[-1]
    pace: dict[str, float] = {"evaluations": len(known), "steps": steps, "final score": final}
    if final > 0:  # nine tenths of a negative score are more than the score
        near = next(one for one in known if one.scores["overall"] >= NEARLY * final)
        pace |= {"steps to 90 %": near.step, "time to 90 %": near.seconds}
        pace["share of steps"] = near.step / steps
    last = scores[-max(FEWEST_LAST, len(scores) // 4) :]
    return pace | ({"spread of the last": stdev(last)} if len(last) >= FEWEST_LAST else {})
