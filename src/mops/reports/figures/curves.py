"""How candidates learn: losses by step, scores by step and by time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from mops.reports.figures.colours import OTHER, Look, looks
from mops.reports.figures.figure import Drawn, set_scale, spread
from mops.reports.figures.labels import Entry
from mops.reports.figures.marks import draw_line
from mops.reports.figures.tiles import draw_tiles
from mops.reports.material import Material, TrialFiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHED = 20  # a value is the mean of so many parts of the training
MOST, FEW = 50, 20  # values of a line that has a name, and of others
MARKED = 6  # values that have marks
TOTAL = "all tasks"
Line = tuple[Sequence[float], Sequence[float]]
Lines = Mapping[str, Mapping[str, Line]]  # panel -> candidate -> x and y


@dataclass(frozen=True)
class Evaluation:
    """A stored evaluation, on the rows that choose."""

    step: int
    seconds: float
    scores: Mapping[str, float]  # overall, then tasks


def draw_curves(material: Material) -> Iterator[Drawn]:
    """The first seed that all have; each picture where two values or more are known."""
    trials = first_trials(material)
    seed = ", ".join(sorted({str(trial.facts.seed) for trial in trials.values()}))
    losses = losses_of(material, trials)
    if losses:
        words = f"Training loss by step, seed {seed}; running mean over a twentieth of the steps."
        yield draw_lines(material, losses, "loss", "Loss during training", words, "steps")
    evaluated = {name: list(evaluations(trial)) for name, trial in trials.items()}
    rows = "Evaluations on the rows that choose (not on those that judge)"
    for choice, unit, x in (
        ("score by step", "steps", lambda one: float(one.step)),
        ("score by time", "seconds of training", lambda one: one.seconds),
    ):
        lines = scores_of(material, evaluated, x)
        if lines:
            words = f"{rows}, seed {seed}."
            yield draw_lines(material, lines, choice, "Score during training", words, unit)


def first_trials(material: Material) -> dict[str, TrialFiles]:
    """A trial of each candidate, of the first seed that all have where there is one."""
    by_name: dict[str, dict[int, TrialFiles]] = {}
    for trial in material.trials:
        by_name.setdefault(trial.candidate, {})[trial.facts.seed] = trial
    common = set.intersection(*(set(of) for of in by_name.values())) if by_name else set()
    return {name: of[min(common or of)] for name, of in by_name.items()}


# ------------------------------------------------------------------ what the files say


def losses_of(material: Material, trials: Mapping[str, TrialFiles]) -> Lines:
    seen = looks(material)
    found: dict[str, dict[str, Line]] = {key: {} for key in (TOTAL, *material.summary.tasks)}
    for name, trial in trials.items():
        for key, (x, y) in loss_lines(trial).items():
            if key in found and len(x) > 1:
                found[key][name] = smoothed(x, y, MOST if seen[name].is_notable else FEW)
    return {key: of for key, of in found.items() if of}


def loss_lines(trial: TrialFiles) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    for line in trial.curve:
        for key, value in {TOTAL: line.get("loss"), **line.get("losses", {})}.items():
            if isinstance(value, float | int) and isfinite(value):
                x, y = found.setdefault(key, ([], []))
                x.append(float(line["step"]))
                y.append(float(value))
    return found


def smoothed(x: Sequence[float], y: Sequence[float], most: int) -> Line:
    """A running mean over a twentieth of the values, at so many of them."""
    import numpy as np

    half = len(y) // (2 * SMOOTHED)
    sums = np.concatenate([[0.0], np.cumsum(y)])
    at = np.unique(np.linspace(0, len(y) - 1, min(most, len(y))).round().astype(int))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(y))
    return [x[n] for n in at], ((sums[high] - sums[low]) / (high - low)).tolist()


def evaluations(trial: TrialFiles) -> Iterator[Evaluation]:
    """Only lines of evaluations are parsed: there may be thousands of others."""
    try:
        text = (trial.folder / "curve.jsonl").read_text("utf-8")
        for line in text.splitlines():
            if '"selection"' in line:
                yield to_evaluation(json.loads(line), trial.record.scores.main)
    except (OSError, ValueError, KeyError):
        return


def to_evaluation(line: Mapping[str, Any], main: Mapping[str, str]) -> Evaluation:
    scores = {"overall": line["overall"]} if line.get("overall") is not None else {}
    for task, of in line["selection"].items():
        if of.get(main[task]) is not None:
            scores[task] = of[main[task]]
    return Evaluation(line["step"], line["seconds"], scores)


def scores_of(
    material: Material,
    evaluated: Mapping[str, Sequence[Evaluation]],
    x: Callable[[Evaluation], float],
) -> Lines:
    found: dict[str, dict[str, Line]] = {}
    for key in ("overall", *material.summary.tasks):
        for name, of in evaluated.items():
            known = [one for one in of if key in one.scores]
            if len(known) > 1:
                line = [x(one) for one in known], [one.scores[key] for one in known]
                found.setdefault(key, {})[name] = line
    return found


# ------------------------------------------------------------------ the picture


def draw_lines(
    material: Material, lines: Lines, choice: str, title: str, caption: str, unit: str
) -> Drawn:
    """A panel for each key."""
    seen = looks(material)
    names = dict.fromkeys(name for of in lines.values() for name in of)
    figure = draw_tiles(
        list(lines),
        lambda axes, n: draw_panel(axes, list(lines.values())[n], seen),
        legend=entries_of([name for name in seen if name in names], seen),
        unit=unit,
    )
    name = f"curves-{choice.replace(' ', '-')}"
    return Drawn(figure, name, title, caption, "curves", choice)


def entries_of(names: Sequence[str], seen: Mapping[str, Look]) -> list[Entry]:
    """Those with colours by name, the others by their number."""
    shown = [name for name in names if seen[name].is_notable]
    found = [Entry(seen[name].name, seen[name].colour, seen[name]) for name in shown]
    left = len(names) - len(shown)
    return [*found, Entry(f"{left} others", OTHER)] if left else found


def draw_panel(axes: Axes, lines: Mapping[str, Line], seen: Mapping[str, Look]) -> None:
    set_scale(axes, "y", *spread([y for _, ys in lines.values() for y in ys]), count=4)
    ends = [x for xs, _ in lines.values() for x in (xs[0], xs[-1])]
    set_scale(axes, "x", *spread(ends, 0.03), count=4)
    for name in sorted(lines, key=lambda one: seen[one].is_notable):  # the named ones on top
        look = seen[name]
        is_marked = look.is_notable and len(lines[name][0]) <= MARKED
        draw_line(
        axes,     *lines[name], color=look.colour, linewidth=1.7 if look.is_notable else 0.8,
            marker=look.mark if is_marked else "", markersize=3.5, gid=look.gid,
            alpha=1.0 if look.is_notable else 0.55,
        )  # fmt: skip
