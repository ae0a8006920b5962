"""The charts of a report, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mops.reports.figures.answers import draw_answers
from mops.reports.figures.conflicts import draw_conflicts
from mops.reports.figures.curves import draw_curves
from mops.reports.figures.response import draw_responses
from mops.reports.figures.scores import draw_pareto, draw_scores
from mops.reports.figures.style import Chart, Picture, house_style
from mops.reports.source import Source

FIGURES: tuple[Callable[[Source], Iterator[Chart | str]], ...] = (
    draw_pareto,
    draw_scores,
    draw_curves,
    draw_responses,
    draw_answers,
    draw_conflicts,
)


def draw_charts(source: Source) -> tuple[list[Chart], list[str]]:
    """All charts that the results have data for, and sentences about what they leave out."""
    with house_style():
        drawn = [chart for draw in FIGURES for chart in draw(source)]
    charts = [chart for chart in drawn if isinstance(chart, Chart)]
    return charts, [text for text in drawn if isinstance(text, str)]


__all__ = ["Chart", "Picture", "draw_charts"]
