"""Learning curves: losses and scores during training, and how soon candidates converge."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from mops.reports.figures import style
from mops.reports.figures.style import Look, Picture
from mops.reports.source import Source, TrialFiles
from mops.tables import EMPTY, Cell, Table, format_seconds

TOTAL = "all tasks"
SMOOTHING = 20  # a value is the mean over one part in so many of the training
MOST = 30  # values of a line
MARKED = 6  # lines of at most so many values have markers
NEARLY = 0.9  # fraction of the final score
NOTE = "Overall score on validation rows at the stored evaluations; means over seeds."
Line = tuple[list[float], list[float]]  # x, y


def loss_lines(trial: TrialFiles) -> dict[str, Line]:
    """Task (and all tasks together) -> steps and losses."""
    return to_lines(
        (entry["step"], {TOTAL: entry.get("loss"), **entry.get("losses", {})})
        for entry in trial.curve
    )


def score_lines(trial: TrialFiles, by: str) -> dict[str, Line]:
    """Task (and overall) -> steps or seconds, and scores of the stored evaluations."""
    points, main = [], trial.record.scores.main
    for entry in (entry for entry in trial.curve if "selection" in entry):
        scores = {task: own.get(main.get(task, "")) for task, own in entry["selection"].items()}
        points.append((entry[by], {"overall": entry.get("overall"), **scores}))
    return to_lines(points)


def to_lines(points: Iterable[tuple[float, Mapping[str, Any]]]) -> dict[str, Line]:
    """Key -> the places and values where it has a finite value."""
    lines: dict[str, Line] = {}
    for place, values in points:
        for key, value in values.items():
            if isinstance(value, float | int) and isfinite(value):
                x, y = lines.setdefault(key, ([], []))
                x.append(place)
                y.append(value)
    return lines


def draw_curves(source: Source) -> Iterator[Picture | str]:
    """Charts of the first common seed; each where a candidate has two values or more."""
    trials = source.same_seed_trials(one.name for one in source.results.candidates)
    seed = ", ".join(sorted({str(trial.result.seed) for trial in trials.values()}))
    looks, tasks = style.candidate_looks(source), source.results.tasks
    if missing := [name for name, trial in trials.items() if not trial.curve]:
        yield f"Learning curves leave out {', '.join(missing)}: no readable curve.jsonl."
    lines = {
        name: {key: smooth(*own, MOST) for key, own in loss_lines(trial).items()}
        for name, trial in trials.items()
    }
    caption = f"Training loss by step, seed {seed}; running mean over 1/20 of the steps."
    keys = (TOTAL, *tasks)
    yield from draw_lines(looks, lines, keys, "loss", "Loss during training", caption, "steps")
    caption = f"Evaluations on the validation rows that choose the best state; seed {seed}."
    keys = ("overall", *tasks)
    for by, choice, unit in (
        ("step", "score by step", "steps"), ("seconds", "score by time", "seconds of training")
    ):  # fmt: skip
        lines = {name: score_lines(trial, by) for name, trial in trials.items()}
        yield from draw_lines(looks, lines, keys, choice, "Score during training", caption, unit)


def smooth(x: Sequence[float], y: Sequence[float], most: int) -> Line:
    """A running mean over one twentieth of the values, at `most` of them."""
    window = np.ones(2 * (len(y) // (2 * SMOOTHING)) + 1)
    means = np.convolve(y, window, "same") / np.convolve(np.ones(len(y)), window, "same")
    at = np.unique(np.linspace(0, len(y) - 1, min(most, len(y))).round().astype(int))
    return [x[n] for n in at], means[at].tolist()


def draw_lines(
    looks: Mapping[str, Look], lines: Mapping[str, Mapping[str, Line]], keys: Sequence[str],
    choice: str, title: str, caption: str, unit: str,
) -> Iterator[Picture]:  # fmt: skip
    """A panel for each key for which a candidate has a line of two values or more."""
    known = {n: {k: own for k, own in lines[n].items() if len(own[0]) > 1} for n in lines}
    if not (keys := [key for key in keys if any(key in own for own in known.values())]):
        return
    drawn = [look for name, look in looks.items() if known.get(name)]
    notable = [look for look in drawn if look.is_notable]
    legend = [
        Line2D([], [], label=look.name, color=look.colour, marker=look.marker, gid=look.gid)
        for look in notable
    ]
    if others := len(drawn) - len(notable):
        legend.append(Line2D([], [], label=f"{others} others", color=style.OTHER))
    figure, panels = style.make_panels(keys, xlabel=unit, legend=legend)
    for axes, key in zip(panels, keys, strict=True):
        draw_panel(axes, {name: own[key] for name, own in known.items() if key in own}, looks)
    yield style.to_picture(figure, title, caption, "curves", choice)


def draw_panel(axes: Axes, lines: Mapping[str, Line], looks: Mapping[str, Look]) -> None:
    for name in sorted(lines, key=lambda name: looks[name].is_notable):  # notable ones on top
        look, (x, y) = looks[name], lines[name]
        axes.plot(
            x, y, color=look.colour, linewidth=1.7 if look.is_notable else 0.8,
            marker=look.marker if look.is_notable and len(x) <= MARKED else "", markersize=3.5,
            alpha=1.0 if look.is_notable else 0.55, gid=look.gid,
        )  # fmt: skip
    axes.locator_params(nbins=5)


COLUMNS: dict[str, Callable[[float], str]] = {  # number of a training -> how its mean is shown
    "evaluations": "{:,.0f}".format,
    "steps": "{:,.0f}".format,
    "final score": "{:.3f}".format,
    "steps to 90 %": "{:,.0f}".format,
    "time to 90 %": format_seconds,
}


def convergence_table(source: Source) -> Table:
    """A row per candidate that was evaluated twice or more."""
    rows = []
    for one in source.results.candidates:
        paces = [measure_pace(trial) for trial in source.trials_of(one.name)]
        if any(paces):
            values = {key: [pace[key] for pace in paces if key in pace] for key in COLUMNS}
            means = {key: fmean(own) if own else None for key, own in values.items()}
            cells = (EMPTY if m is None else Cell(COLUMNS[k](m), m) for k, m in means.items())
            rows.append((Cell(one.name), *cells))
    return Table("convergence", "Convergence", ("candidate", *COLUMNS), tuple(rows), NOTE)


def measure_pace(trial: TrialFiles) -> dict[str, float]:
    """How fast a training converged; empty if all tasks were evaluated fewer than two times."""
    steps, scores = score_lines(trial, "step").get("overall", ([], []))
    if len(scores) < 2:
        return {}
    final = scores[-1]
    pace: dict[str, float] = {"evaluations": len(scores), "steps": steps[-1], "final score": final}
    if final > 0:  # nine tenths of a negative score are more than the score
        near = next(n for n, score in enumerate(scores) if score >= NEARLY * final)
        seconds, _ = score_lines(trial, "seconds")["overall"]
        pace |= {"steps to 90 %": steps[near], "time to 90 %": seconds[near]}
    return pace
