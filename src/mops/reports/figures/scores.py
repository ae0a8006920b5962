"""Scores with standard errors: a panel for the overall score and each task, a row per candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mops.reports.figures import style
from mops.reports.figures.style import Chart, Look
from mops.reports.material import Material
from mops.surveys.results.standings import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, MARGIN = 17.0, 68.0  # points: height of a candidate's row; title and axis of a panel
GAP = 0.55  # rows between two blocks
CAPTION = (
    "Mean over seeds with one standard error (rows and runs). Candidates in one block are not "
    "significantly different in overall score; filled marks: the block of the best. The vertical "
    "line is {baseline}; * significantly different from it."
)


def draw_scores(material: Material) -> Iterator[Chart]:
    summary = material.summary
    if not summary.standings:
        return
    looks, heights = style.candidate_looks(material), row_heights(summary)
    lowest = max(heights.values()) + 0.5
    keys = {"overall": "mean of the tasks", **summary.tasks}
    figure, panels = style.make_panels(keys, height=MARGIN + ROW * (lowest + 0.5), sharey=True)
    for axes, (key, metric) in zip(panels, keys.items(), strict=True):
        axes.set_xlabel(metric, loc="right")
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        draw_panel(axes, summary, key, heights, looks)
    panels[0].set_ylim(lowest, -0.5)
    panels[0].set_yticks(list(heights.values()), [looks[name].name for name in heights])
    chosen = material.decision.candidate if material.decision else None
    for axes in panels[::2]:
        for label, name in zip(axes.get_yticklabels(), heights, strict=True):
            weight = "bold" if name == chosen else "normal"
            label.set(color=style.INK, gid=looks[name].gid, fontweight=weight)
    caption = CAPTION.format(baseline=summary.baseline)
    yield Chart(figure, "scores", "Scores of all candidates", caption)


def row_heights(summary: Summary) -> Mapping[str, float]:
    """Candidate -> its row; blocks of candidates that do not differ are set apart."""
    heights: dict[str, float] = {}
    height, previous = 0.0, None
    for one in summary.standings:
        block = one.reference, one.tie
        height += GAP if previous not in (None, block) else 0.0
        heights[one.name], previous = height, block
        height += 1
    return heights


def draw_panel(
    axes: Axes, summary: Summary, key: str, heights: Mapping[str, float], looks: Mapping[str, Look]
) -> None:
    for one in summary.standings:
        score = one.scores.get(key)
        if score is None:
            continue
        look, height = looks[one.name], heights[one.name]
        is_best = one.tie == 1
        style.draw_mark(
            axes, score.mean, height, look, xerr=score.stderr, is_filled=is_best, size=6
        )
        difference = one.against.get(key)
        if difference is not None and difference.is_real:
            axes.text(
                score.mean + score.stderr, height, " *", weight="bold", va="center", gid=look.gid
            )
        if one.name == summary.baseline:
            axes.axvline(score.mean, color=style.PALE, linewidth=0.9, zorder=0.9)
    axes.locator_params(axis="x", nbins=4)
