"""The heat map of gradient conflicts: a block of rows per pair of tasks, a column per place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mops.errors import UsageError
from mops.evaluate.conflicts import WHOLE, Conflicts, read_conflicts
from mops.files import atomic_write
from mops.reports.figures import style
from mops.reports.figures.style import Chart
from mops.reports.source import Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

TITLE = "Where the tasks' gradients conflict"
# Clear in the middle and never deeper than ink is legible on, for light and dark pages alike.
COSINES = ((0.0, "#d64545a0"), (0.5, "#d6454500"), (0.5, "#2f7fd600"), (1.0, "#2f7fd6a0"))
NOISE = ((0.0, "#80889000"), (1.0, "#808890a0"))
FLATTEST = 0.1  # the colour scale never spans less, so that noise does not look like a finding
MOST_NUMBERS = 800  # cells; with more of them the numbers would be unreadable
Matrix = NDArray[np.float64]


def draw_heatmap(conflicts: Conflicts, folder: Path) -> list[Path]:
    """heatmap.svg and heatmap.png in the folder."""
    paths = [folder / "heatmap.svg", folder / "heatmap.png"]
    with style.house_style():
        figure = build_figure(conflicts)
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=13, weight="bold")
        for path in paths:
            with atomic_write(path) as draft:
                metadata = {"Date": None} if path.suffix == ".svg" else {}
                figure.savefig(draft, format=path.suffix[1:], dpi=110, metadata=metadata)
    return paths


def draw_conflicts(source: Source) -> Iterator[Chart | str]:
    """The chart of conflicts.json, if the folder has one."""
    path = source.folder / "conflicts.json"
    if path.is_file():
        try:
            conflicts = read_conflicts(path)
        except UsageError as error:
            yield f"The heat map of gradient conflicts is left out: {error}."
        else:
            yield Chart(build_figure(conflicts), "conflicts", TITLE, " ".join(conflicts.advice))


def build_figure(conflicts: Conflicts) -> Figure:
    """A block per pair of tasks, then the agreement of each task with itself."""
    from matplotlib.figure import Figure

    places = list(dict.fromkeys(cell.place for cell in conflicts.places))
    parts = list(dict.fromkeys(c.part for c in conflicts.owners if c.layer is not None))
    parts.append(WHOLE)
    tasks = conflicts.info["tasks"]
    heights = [*[len(parts)] * len(conflicts.pairs), len(tasks)]
    size = (max(7.5, 2.6 + 0.68 * len(places)), 1.6 + 0.3 * sum(heights) + 0.35 * len(heights))
    figure = Figure(figsize=size)
    *blocks, noise = figure.subplots(len(heights), 1, height_ratios=heights, sharex=True, squeeze=False).flat  # noqa: E501  # fmt: skip
    means = {pair: pair_matrix(conflicts, pair, places, parts) for pair in conflicts.pairs}
    most = max(FLATTEST, *(float(np.nanmax(np.abs(matrix))) for matrix in means.values()))
    has_numbers = sum(map(np.size, means.values())) <= MOST_NUMBERS
    for axes, (pair, matrix) in zip(blocks, means.items(), strict=True):
        number = "{:z.3f}" if has_numbers else ""
        image = draw_matrix(axes, matrix, parts, COSINES, (-most, most), number)
        axes.set_title(" and ".join(pair), fontsize=9)
        cells = [c for c in (*conflicts.owners, *conflicts.places) if c.is_conflict]
        own = [c for c in cells if tuple(c.tasks) == tuple(pair) and c.part in parts]
        frame(axes, [(parts.index(c.part), places.index(c.place)) for c in own])
    draw_matrix(noise, own_matrix(conflicts, tasks, places), tasks, NOISE, (0, 1), "{:z.2f}")
    noise.set_title("Cosine between two batches of the same task: the noise level", fontsize=9)
    short = ["emb" if place == "embeddings" else place for place in places]
    noise.set_xticks(range(len(places)), short, fontsize=8)
    bar = figure.colorbar(image, ax=blocks, pad=0.02, aspect=40, shrink=0.7)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    bar.set_label("mean cosine of the gradients", fontsize=8)
    info = conflicts.info
    figure.supxlabel(
        f"plan {info['plan']}, encoder {info['encoder']}, measured at "
        f"{len(info['measured_steps'])} of {info['steps']} steps; framed: mean cosine below 0, "
        f"p < {info['level']:g} after Holm's correction",
        fontsize=8, color=style.PALE,
    )  # fmt: skip
    return figure


def pair_matrix(
    conflicts: Conflicts, pair: Sequence[str], places: Sequence[str], parts: Sequence[str]
) -> Matrix:
    """Mean cosines, parts by places; places outside the layers have only their whole."""
    matrix = np.full((len(parts), len(places)), np.nan)
    for cell in (*conflicts.owners, *conflicts.places):
        if tuple(cell.tasks) == tuple(pair) and cell.part in parts:
            matrix[parts.index(cell.part), places.index(cell.place)] = cell.mean
    return matrix


def own_matrix(conflicts: Conflicts, tasks: Sequence[str], places: Sequence[str]) -> Matrix:
    matrix = np.full((len(tasks), len(places)), np.nan)
    for cell in reversed(conflicts.places):  # the first pair of a task counts
        for task, value in zip(cell.tasks, cell.own, strict=True):
            matrix[tasks.index(task), places.index(cell.place)] = value
    return matrix


def draw_matrix(
    axes: Axes,
    matrix: Matrix,
    rows: Sequence[str],
    colours: Any,
    limits: tuple[float, float],
    number: str,
) -> AxesImage:
    """Coloured cells with their values; no numbers where the format is empty."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("cosines", colours)
    low, high = limits
    image = axes.imshow(matrix, shades, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    for row, column in np.argwhere(np.isfinite(matrix)) if number else ():
        text = number.format(matrix[row, column]).replace("-", "−")
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=style.INK)
    return image


def frame(axes: Axes, cells: Iterable[tuple[int, int]]) -> None:
    from matplotlib.patches import Rectangle

    for row, column in cells:
        corner = column - 0.45, row - 0.45
        axes.add_patch(Rectangle(corner, 0.9, 0.9, fill=False, edgecolor=style.INK, linewidth=1.6))
