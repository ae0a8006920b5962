"""Scores against a number that the survey varies: a rate, a weight, a width, shared layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mops.reports.figures.colours import PALE, Look, looks
from mops.reports.figures.figure import Drawn, number, set_log_scale, set_scale, set_ticks, spread
from mops.reports.figures.labels import Entry
from mops.reports.figures.marks import draw_line, draw_mark
from mops.reports.figures.tiles import draw_tiles
from mops.reports.figures.varied import Line, Response, responses
from mops.reports.material import Material

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 20  # times the smallest value: then the axis is logarithmic
FEW_LOG, FEW = 4, 8  # values that all have their ticks


def draw_responses(material: Material) -> Iterator[Drawn]:
    for response in responses(material):
        yield draw_response(material, response)


def draw_response(material: Material, response: Response) -> Drawn:
    seen = looks(material)
    keys = ["overall", *material.summary.tasks]
    figure = draw_tiles(
        keys,
        lambda axes, n: draw_panel(axes, response, keys[n], seen),
        legend=[Entry(one.label, colour_of(one, seen)) for one in response.lines if one.label],
        unit=response.label,
    )
    caption = (
        f"Candidates that differ in {response.label} alone are joined; means over seeds, bars one "
        "standard error. Full marks cannot be told from the best in overall."
    )
    title = f"Scores against {response.label}"
    return Drawn(figure, f"response-{response.key}", title, caption, "response", response.label)


def colour_of(line: Line, seen: Mapping[str, Look]) -> str:
    """Where colours go by plan, that of the line's plan; else lines are pale."""
    colours = {seen[one.name].colour for _, one in line.points}
    return colours.pop() if len(colours) == 1 else PALE


def draw_panel(axes: Axes, response: Response, key: str, seen: Mapping[str, Look]) -> None:
    points = [point for line in response.lines for point in line.points if key in point[1].scores]
    if not points:
        return
    scores = [one.scores[key] for _, one in points]
    ends = [score.mean + side * score.stderr for score in scores for side in (-1, 1)]
    set_scale(axes, "y", *spread(ends), count=4)
    set_values(axes, sorted({value for value, _ in points}), response.names)
    for line in response.lines:
        known = [(value, one) for value, one in line.points if key in one.scores]
        x, y = [value for value, _ in known], [one.scores[key].mean for _, one in known]
        draw_line(axes, x, y, color=colour_of(line, seen), linewidth=1.5, alpha=0.8)
        for value, one in known:
            at, error = (value, one.scores[key].mean), one.scores[key].stderr
            bar = (value, at[1] - error), (value, at[1] + error)
            draw_mark(axes, at, bar, seen[one.name], is_full=one.tie == 1, size=5.5)


def set_values(axes: Axes, values: Sequence[float], names: Mapping[float, str]) -> None:
    """Ticks at the values themselves where there are few."""
    if values[0] > 0 and values[-1] > WIDE * values[0]:
        room = (values[-1] / values[0]) ** 0.08
        ends = [values[0], values[len(values) // 2], values[-1]]
        shown = values if len(values) <= FEW_LOG else ends
        set_log_scale(axes, "x", values[0] / room, values[-1] * room, shown)
    elif len(values) <= FEW and all(float(value).is_integer() for value in values):
        words = [names.get(value, number(value)) for value in values]
        set_ticks(axes, "x", *spread(values), values, words)
    else:
        set_scale(axes, "x", *spread(values), count=4)
