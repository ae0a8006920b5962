"""How candidates learn: losses by step, scores by step and by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mops.reports.curves import TOTAL, Evaluation, evaluations, loss_lines
from mops.reports.figures import style
from mops.reports.figures.style import Chart, Look
from mops.reports.material import Material, TrialFiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHING = 20  # a value is the mean over one part in so many of the training
MOST, FEW = 50, 20  # values of a notable line, and of the others
MARKED = 6  # lines of at most so many values have markers
Line = tuple[Sequence[float], Sequence[float]]
Lines = Mapping[str, Mapping[str, Line]]  # panel -> candidate -> x and y


def draw_curves(material: Material) -> Iterator[Chart | str]:
    """Charts of the first common seed; each where a candidate has two values or more."""
    trials = first_trials(material)
    seed = ", ".join(sorted({str(trial.facts.seed) for trial in trials.values()}))
    looks = style.candidate_looks(material)
    missing = [name for name, trial in trials.items() if not trial.curve]
    if missing:
        yield f"Learning curves leave out {', '.join(missing)}: no readable curve.jsonl."
    losses = collect_losses(material, trials, looks)
    if losses:
        caption = f"Training loss by step, seed {seed}; running mean over 1/20 of the steps."
        yield draw_lines(looks, losses, "loss", "Loss during training", caption, "steps")
    evaluated = {name: list(evaluations(trial)) for name, trial in trials.items()}
    caption = f"Evaluations on the selection rows, not on the rows that judge; seed {seed}."
    for choice, unit, x in (
        ("score by step", "steps", lambda e: float(e.step)),
        ("score by time", "seconds of training", lambda e: e.seconds),
    ):
        lines = collect_scores(material, evaluated, x)
        if lines:
            yield draw_lines(looks, lines, choice, "Score during training", caption, unit)


def first_trials(material: Material) -> dict[str, TrialFiles]:
    """One trial per candidate: of the smallest seed that all have, otherwise of its own."""
    by_name: dict[str, dict[int, TrialFiles]] = {}
    for trial in material.trials:
        by_name.setdefault(trial.candidate, {})[trial.facts.seed] = trial
    common = set.intersection(*(set(own) for own in by_name.values())) if by_name else set()
    return {name: own[min(common or own)] for name, own in by_name.items()}


def collect_losses(
    material: Material, trials: Mapping[str, TrialFiles], looks: Mapping[str, Look]
) -> Lines:
    lines: dict[str, dict[str, Line]] = {key: {} for key in (TOTAL, *material.summary.tasks)}
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
    material: Material,
    evaluated: Mapping[str, Sequence[Evaluation]],
    x: Callable[[Evaluation], float],
) -> Lines:
    lines: dict[str, dict[str, Line]] = {}
    for key in ("overall", *material.summary.tasks):
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
