"""Predictions against labels: confusion of classes, agreement of values, calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mops.errors import RunError
from mops.reports.errors import Answers, Values, read_answers
from mops.reports.figures import style
from mops.reports.figures.style import Look, Picture
from mops.reports.source import Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMPARED = 2  # candidates side by side
FEW, MOST = 6, 12  # so many classes have shares and counts; shares alone
LETTERS = 9  # of a class
CELLS = 24  # of a range, each way
BINS = 10  # of confidence
Bin = tuple[float, int, float, float]  # centre, rows, mean confidence, accuracy


class AnswerChart(NamedTuple):
    """One way to show predictions."""

    group: str
    title: str
    caption: str
    xlabel: str
    ylabel: str
    draw: Callable[[Axes, Answers, Look], None]


def draw_answers(source: Source) -> Iterator[Picture | str]:
    """For each task the first two of the recommended candidate, the baseline and a model per task.

    Confusion of classes or agreement of values first, then calibration where confidences exist.
    """
    trials = source.same_seed_trials(one.name for one in source.results.candidates)
    shown = [trials[name] for name in source.main_candidates if name in trials][:COMPARED]
    known: list[list[Answers]] = []
    for task in source.results.tasks:
        answers = []
        for trial in (trial for trial in shown if task in trial.recipe.tasks):
            try:
                answers.append(read_answers(trial, task, source.results.on))
            except RunError as error:
                yield f"Charts of the answers to {task} leave out {trial.candidate}: {error}."
        known += [answers] if answers else []
    for answers in known:
        is_value = answers[0].rows.task.is_similarity
        yield draw_kind(source, AGREEMENT if is_value else CONFUSION, answers)
    for answers in known:
        sure = [one for one in answers if confidences(one) is not None]
        if sure:
            yield draw_kind(source, CALIBRATION, sure)


def draw_kind(source: Source, kind: AnswerChart, answers: Sequence[Answers]) -> Picture:
    looks = style.candidate_looks(source)
    task, trial = answers[0].rows.task, answers[0].trial
    own = [looks[one.trial.candidate] for one in answers]
    is_named = kind is CONFUSION and len(task.labels) <= MOST
    letters = min(LETTERS, max(map(len, task.labels))) if is_named else 3
    names = [f"{look.name}\n" for look in own]  # the score stands one line below
    figure, panels = style.make_panels(
        names, xlabel=kind.xlabel, height=250, left=30 + 7 * letters, top=36
    )
    for axes, one, look in zip(panels, answers, own, strict=True):
        axes.set_ylabel(kind.ylabel)
        kind.draw(axes, one, look)
        if (score := one.trial.result.scores.get(task.name)) is not None:
            axes.set_title(f"{task.score_name} {score:.3f}", loc="right", weight="normal")
    caption = f"{kind.caption} Seed {trial.result.seed}, {len(answers[0].rows.targets):,} rows."
    if kind is CONFUSION and not is_named:
        caption += f" Names and shares are left out: {len(task.labels)} classes."
    name = f"{kind.group}-{task.name}"
    return style.to_picture(figure, name, kind.title, caption, kind.group, task.name)


def count_pairs(answers: Answers, edges: NDArray[np.floating]) -> Values:
    """Rows per cell: true value by predicted value."""
    rows = answers.rows
    counts: Values = np.histogram2d(rows.targets, rows.values, bins=[edges, edges])[0]
    return counts


def draw_confusion(axes: Axes, answers: Answers, look: Look) -> None:
    labels = answers.rows.task.labels
    counts = count_pairs(answers, np.arange(len(labels) + 1) - 0.5)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    draw_cells(axes, look, np.where(counts > 0, shares, np.nan), (0.04, 0.6), vmax=1)
    axes.grid(visible=False)
    names = [style.shorten(label, LETTERS) for label in labels] if len(labels) <= MOST else []
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    for row, column in np.argwhere(counts > 0) if names else ():
        count = f"\n{counts[row, column]:,.0f}" if len(labels) <= FEW else ""
        axes.text(
            column, row, f"{shares[row, column]:.0%}{count}", ha="center", va="center",
            fontsize=9, weight="bold" if row == column else "normal", color=style.INK,
        )  # fmt: skip


def draw_agreement(axes: Axes, answers: Answers, look: Look) -> None:
    low, high = answers.rows.task.range or (0.0, 1.0)
    counts = count_pairs(answers, np.linspace(low, high, CELLS + 1)).T
    visible = np.where(counts > 0, np.log1p(counts), np.nan)
    draw_cells(axes, look, visible, (0.18, 0.9), origin="lower", extent=(low, high, low, high))
    axes.plot([low, high], [low, high], color=style.PALE, linewidth=0.9)


def draw_cells(
    axes: Axes, look: Look, values: Values, opacity: tuple[float, float], **options: Any
) -> None:
    """In the candidate's colour, from nearly clear to deep: legible on light and dark grounds."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    shades = [to_rgba(look.colour, alpha) for alpha in opacity]
    tint = LinearSegmentedColormap.from_list("tint", shades)
    axes.imshow(values, cmap=tint, vmin=0, interpolation="nearest", aspect="auto", **options)


def confidences(answers: Answers) -> NDArray[np.float64] | None:
    """In the predicted class; None for values, and for files without confidences."""
    sure = None if answers.rows.task.is_similarity else answers.rows.numbers("confidence")
    return sure if sure is not None and np.isfinite(sure).all() else None


def confidence_bins(answers: Answers) -> list[Bin]:
    """Bins of equal width with their predictions; empty ones are left out."""
    sure = confidences(answers)
    if sure is None:
        return []
    is_right = answers.rows.values == answers.rows.targets
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    groups = [(n, places == n) for n in range(BINS)]
    return [
        ((n + 0.5) / BINS, int(own.sum()), float(sure[own].mean()), float(is_right[own].mean()))
        for n, own in groups
        if own.any()
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Expected calibration error: mean |accuracy - confidence|, weighted by the rows of each bin.

    Naeini et al. 2015, Obtaining Well Calibrated Probabilities Using Bayesian Binning.
    """
    gaps = [rows * abs(accuracy - confidence) for _, rows, confidence, accuracy in bins]
    return sum(gaps) / sum(rows for _, rows, *_ in bins)


def draw_reliability(axes: Axes, answers: Answers, look: Look) -> None:
    """A bar per bin; the short line across is its mean confidence."""
    bins = confidence_bins(answers)
    for centre, rows, confidence, accuracy in bins:
        axes.bar(centre, accuracy, width=0.84 / BINS, color=look.colour, alpha=0.45)
        ends = centre - 0.5 / BINS, centre + 0.5 / BINS
        axes.hlines(confidence, *ends, color=style.PALE, linewidth=1.2)
        text = str(rows) if rows < 1000 else f"{rows / 1000:.1f}k"
        axes.text(centre, 0.02, text, ha="center", va="bottom", fontsize=8)
    axes.plot([0, 1], [0, 1], color=style.PALE, linewidth=0.9, linestyle="--")
    axes.text(0.03, 0.97, f"error {calibration_error(bins):.3f}", va="top")
    axes.set(xlim=(0, 1), ylim=(0, 1))


CONFUSION = AnswerChart(
    "answers", "Confusion of classes",
    "Each row holds the examples of one true class, as shares of the predicted classes.",
    "predicted", "true", draw_confusion,
)  # fmt: skip
AGREEMENT = AnswerChart(
    "answers", "Predicted against true values",
    "The darker a cell, the more rows; predictions on the line are exact.",
    "true value", "predicted value", draw_agreement,
)  # fmt: skip
CALIBRATION = AnswerChart(
    "calibration", "Calibration",
    "Accuracy by confidence; a calibrated model ends on the dashed line. Each bar has its number "
    "of rows at the foot; the error is the expected calibration error.",
    "confidence", "accuracy", draw_reliability,
)  # fmt: skip
