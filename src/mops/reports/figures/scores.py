"""Scores with their errors: a panel for overall and for each task, a row for each candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mops.reports.figures.colours import INK, PALE, Look, looks
from mops.reports.figures.figure import (
    SIZE,
    SMALL,
    WIDTH,
    Drawn,
    blank,
    panel,
    set_scale,
    spread,
    width_of,
    write,
)
from mops.reports.figures.labels import BOLD
from mops.reports.figures.marks import draw_line, draw_mark, draw_words
from mops.reports.material import Material
from mops.surveys.results.standings import Standing, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, GAP = 17.0, 9.0  # height of a candidate; between two ties
HEAD, FOOT = 25.0, 38.0  # above and below the rows of a panel
BETWEEN = 18.0
SIDE_BY_SIDE = 2
CAPTION = (
    "Mean over seeds with one standard error of rows and runs. Blocks: candidates that cannot be "
    "told apart in overall; full marks: those that cannot be told from the best. The upright line "
    "is {baseline}; * differs from it beyond doubt."
)


def draw_scores(material: Material) -> Iterator[Drawn]:
    summary = material.summary
    if not summary.standings:
        return
    keys = {"overall": "mean of the tasks", **summary.tasks}
    places = heights_of(summary)
    inner = max(places.values()) + ROW
    rows = -(-len(keys) // SIDE_BY_SIDE)
    figure = blank(rows * (HEAD + inner + FOOT))
    seen = looks(material)
    names = max(width_of(look.name) for look in seen.values()) * BOLD + 10
    wide = (WIDTH - names - 10 - BETWEEN) / SIDE_BY_SIDE
    for n, (key, score) in enumerate(keys.items()):
        row, column = divmod(n, SIDE_BY_SIDE)
        top = row * (HEAD + inner + FOOT) + HEAD
        left = names + column * (wide + BETWEEN)
        axes = panel(figure, left, top, wide, inner)
        draw_panel(axes, summary, key, places, seen)
        write(figure, left, top - 8, key, color=INK, fontsize=SIZE, weight="bold")
        write(figure, left + wide, top + inner + 29, score, ha="right")
        if column == 0:
            write_names(figure, material, places, top, names)
    caption = CAPTION.format(baseline=summary.baseline)
    yield Drawn(figure, "scores", "Scores of all candidates", caption)


def heights_of(summary: Summary) -> Mapping[str, float]:
    """Candidate -> the top of its row; ties are blocks."""
    found: dict[str, float] = {}
    top, before = 0.0, None
    for one in summary.standings:
        block = one.reference, one.tie
        top += GAP if before not in (None, block) else 0.0
        found[one.name], before = top, block
        top += ROW
    return found


def write_names(
    figure: Figure, material: Material, places: Mapping[str, float], top: float, right: float
) -> None:
    chosen = material.decision.candidate if material.decision else None
    for name, look in looks(material).items():
        write(
            figure, right - 8, top + places[name] + ROW / 2 + 0.35 * SMALL, look.name, ha="right",
            color=INK, weight="bold" if name == chosen else "normal", gid=look.gid,
        )  # fmt: skip


def draw_panel(
    axes: Axes,
    summary: Summary,
    key: str,
    places: Mapping[str, float],
    seen: Mapping[str, Look],
) -> None:
    scored = [one for one in summary.standings if key in one.scores]
    ends = [one.scores[key].mean + s * one.scores[key].stderr for one in scored for s in (-1, 1)]
    set_scale(axes, "x", *spread(ends or [0.0, 1.0], 0.1), count=3)
    axes.set_ylim(max(places.values()) + ROW, 0)
    for one in scored:
        draw_row(axes, one, key, places[one.name] + ROW / 2, seen[one.name])
    draw_reference(axes, scored, summary.baseline, key)


def draw_row(axes: Axes, one: Standing, key: str, height: float, look: Look) -> None:
    found = one.scores[key]
    low, high = found.mean - found.stderr, found.mean + found.stderr
    at, bar = (found.mean, height), ((low, height), (high, height))
    draw_mark(axes, at, bar, look, is_full=one.tie == 1, size=6)
    against = one.against.get(key)
    if against is not None and against.is_real:
        star = {"color": INK, "fontsize": SIZE, "weight": "bold", "va": "center"}
        draw_words(axes, high, height, " *", gid=look.gid, **star)


def draw_reference(axes: Axes, scored: Sequence[Standing], baseline: str, key: str) -> None:
    for one in scored:
        if one.name == baseline:
            score = one.scores[key].mean
            draw_line(axes, [score, score], axes.get_ylim(), color=PALE, linewidth=0.9, zorder=0.9)
