"""Predictions against labels: confusion of classes, agreement of values, calibration."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgba

from mops.evaluate.evaluate import PredictionRows
from mops.evaluate.metrics import Values
from mops.reports.figures import style
from mops.reports.figures.style import Look, Picture
from mops.reports.source import Source, TrialFiles, read_answers

COMPARED = 2  # candidates side by side
MOST = 12  # classes whose names and shares are written
LETTERS = 9  # of a class
CELLS = 24  # of a range, each way
BINS = 10  # of confidence
Draw = Callable[[Axes, PredictionRows, Look], None]


def draw_answers(source: Source) -> Iterator[Picture | str]:
    """For each task: agreement of values, or confusion and calibration of classes."""
    for task in source.results.tasks:
        trials = source.compared_trials(task, COMPARED)
        answers, left_out = read_answers(trials.values(), task, source.results.on)
        yield from (f"Charts of the answers to {task} leave out {line}." for line in left_out)
        if answers:
            draws = DRAWN[next(iter(answers.values())).task.answer.name]
            yield from (draw_panels(source, draw, answers, trials) for draw in draws)


def draw_panels(
    source: Source, draw: Draw, answers: Mapping[str, PredictionRows],
    trials: Mapping[str, TrialFiles],
) -> Picture:  # fmt: skip
    """A panel for each candidate, drawn in one of the ways that CHARTS describes."""
    looks, (group, title, caption) = style.candidate_looks(source), CHARTS[draw]
    first = next(iter(answers))
    task = answers[first].task
    names = [f"{looks[name].name}\n" for name in answers]  # the score stands one line below
    figure, panels = style.make_panels(names, height=250)
    for axes, (name, rows) in zip(panels, answers.items(), strict=True):
        draw(axes, rows, looks[name])
        if (score := trials[name].result.scores.get(task.name)) is not None:
            axes.set_title(f"{task.score_name} {score:.3f}", loc="right", weight="normal")
    caption += f" Seed {trials[first].result.seed}, {len(answers[first].targets):,} rows."
    return style.to_picture(figure, title, caption, group, task.name)


def count_pairs(rows: PredictionRows, edges: Values) -> Values:
    """Rows per cell: true value by predicted value."""
    counts: Values = np.histogram2d(rows.targets, rows.values, bins=[edges, edges])[0]
    return counts


def draw_confusion(axes: Axes, rows: PredictionRows, look: Look) -> None:
    labels = rows.task.labels
    counts = count_pairs(rows, np.linspace(-0.5, len(labels) - 0.5, len(labels) + 1))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(np.where(counts > 0, shares, np.nan), tint(look, 0.04, 0.6), vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true")
    axes.grid(visible=False)
    names = [style.shorten(label, LETTERS) for label in labels] if len(labels) <= MOST else []
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    for row, column in np.argwhere(counts > 0) if names else ():
        axes.text(
            column, row, f"{shares[row, column]:.0%}", ha="center", va="center",
            fontsize=9, weight="bold" if row == column else "normal", color=style.INK,
        )  # fmt: skip


def draw_agreement(axes: Axes, rows: PredictionRows, look: Look) -> None:
    everything = np.concatenate([rows.targets, rows.values])
    low, high = rows.task.answer.span(rows.task, everything)
    counts = count_pairs(rows, np.linspace(low, high, CELLS + 1)).T
    visible = np.where(counts > 0, np.log1p(counts), np.nan)
    extent = (low, high, low, high)
    axes.imshow(visible, tint(look, 0.18, 0.9), vmin=0, origin="lower", extent=extent)
    axes.plot([low, high], [low, high], color=style.PALE, linewidth=0.9)
    axes.set(xlabel="true value", ylabel="predicted value")


def tint(look: Look, *opacity: float) -> Colormap:
    """The candidate's colour from nearly clear to deep: legible on light and dark grounds."""
    shades = [to_rgba(look.colour, alpha) for alpha in opacity]
    return LinearSegmentedColormap.from_list("tint", shades)


def confidence_bins(rows: PredictionRows) -> Values:
    """Centre, rows, mean confidence and accuracy of each bin of equal width that has rows."""
    sure = rows.numbers("confidence")
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    counts, sums, right = (
        np.bincount(places, weights, BINS) for weights in (None, sure, rows.values == rows.targets)
    )
    used = np.flatnonzero(counts)
    n = counts[used]
    return np.stack([(used + 0.5) / BINS, n, sums[used] / n, right[used] / n], axis=1)


def calibration_error(bins: Values) -> float:
    """Expected calibration error: mean |accuracy - confidence|, weighted by the rows of each bin.

    Naeini et al. 2015, Obtaining Well Calibrated Probabilities Using Bayesian Binning.
    """
    _, rows, confidence, accuracy = bins.T
    return float(np.average(np.abs(accuracy - confidence), weights=rows))


def draw_reliability(axes: Axes, rows: PredictionRows, look: Look) -> None:
    """A bar per bin; the short line across is its mean confidence."""
    bins = confidence_bins(rows)
    centres, counts, confidence, accuracy = bins.T
    axes.bar(centres, accuracy, width=0.84 / BINS, color=look.colour, alpha=0.45)
    half = 0.5 / BINS
    axes.hlines(confidence, centres - half, centres + half, color=style.PALE, linewidth=1.2)
    for centre, count in zip(centres, counts, strict=True):
        text = f"{count:.0f}" if count < 1000 else f"{count / 1000:.1f}k"
        axes.text(centre, 0.02, text, ha="center", va="bottom", fontsize=8)
    axes.plot([0, 1], [0, 1], color=style.PALE, linewidth=0.9, linestyle="--")
    axes.text(0.03, 0.97, f"error {calibration_error(bins):.3f}", va="top")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


DRAWN: dict[str, tuple[Draw, ...]] = {  # by kind of answer
    "class": (draw_confusion, draw_reliability),
    "value": (draw_agreement,),
    "labels": (),  # the analysis of errors has a table of their F1
    "tags": (),
}
CHARTS: dict[Draw, tuple[str, str, str]] = {  # group, title, caption
    draw_confusion: (
        "answers", "Confusion of classes",
        "Each row holds the examples of one true class, as shares of the predicted classes.",
    ),
    draw_agreement: (
        "answers", "Predicted against true values",
        "The darker a cell, the more rows; predictions on the line are exact.",
    ),
    draw_reliability: (
        "calibration", "Calibration",
        "Accuracy by confidence; a calibrated model ends on the dashed line. Each bar has its "
        "number of rows at the foot; the error is the expected calibration error.",
    ),
}  # fmt: skip
