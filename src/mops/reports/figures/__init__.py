"""The charts of a report; matplotlib draws them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mops.reports.figures.answered import draw_answers
from mops.reports.figures.convergence import convergence_table
from mops.reports.figures.curves import draw_curves
from mops.reports.figures.figure import Drawn, house_style
from mops.reports.figures.heatmap import draw_conflicts
from mops.reports.figures.pareto import draw_pareto, draw_trained
from mops.reports.figures.response import draw_responses
from mops.reports.figures.scores import draw_scores
from mops.reports.material import Material
from mops.reports.parts import Picture

FIGURES: dict[str, Callable[[Material], Iterator[Drawn]]] = {
    "pareto": draw_pareto,
    "trained": draw_trained,
    "scores": draw_scores,
    "curves": draw_curves,
    "response": draw_responses,
    "answers": draw_answers,
    "conflicts": draw_conflicts,
}


def draw(material: Material) -> tuple[Drawn, ...]:
    """All that the material has something to say for; each can be rendered as SVG or PNG."""
    with house_style():
        return tuple(drawn for figure in FIGURES.values() for drawn in figure(material))


def draw_figures(material: Material) -> tuple[Picture, ...]:
    with without_pauses(), house_style():
        return tuple(drawn.picture() for drawn in draw(material))


@contextmanager
def without_pauses() -> Iterator[None]:
    """Charts are many objects that live to the end; the search for garbage took a tenth of all."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


__all__ = ["FIGURES", "Drawn", "convergence_table", "draw", "draw_figures"]
