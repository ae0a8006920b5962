"""The heat map of gradient conflicts: a block of rows per pair of tasks, a column per place."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from mops.errors import UsageError
from mops.evaluate.conflicts import WHOLE, Conflicts, read_conflicts
from mops.evaluate.metrics import Values
from mops.files import atomic_write
from mops.reports.figures import style
from mops.reports.figures.style import Picture
from mops.reports.source import Source

TITLE = "Where the tasks' gradients conflict"
# Clear in the middle and never deeper than ink is legible on, for light and dark pages alike.
COSINES = LinearSegmentedColormap.from_list(
    "cosines", [(0.0, "#d64545a0"), (0.5, "#d6454500"), (0.5, "#2f7fd600"), (1.0, "#2f7fd6a0")]
)
NOISE = LinearSegmentedColormap.from_list("noise", ["#80889000", "#808890a0"])
FLATTEST = 0.1  # the colour scale never spans less, so that noise does not look like a finding
MOST_NUMBERS = 800  # cells; with more of them the numbers would be unreadable


def draw_heatmap(conflicts: Conflicts, folder: Path) -> list[Path]:
    paths = [folder / "heatmap.svg", folder / "heatmap.png"]
    with style.house_style():
        figure = build_figure(conflicts)
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=13, weight="bold")
        for path in paths:
            with atomic_write(path) as draft:
                metadata = {"Date": None} if path.suffix == ".svg" else {}
                figure.savefig(draft, format=path.suffix[1:], dpi=110, metadata=metadata)
    return paths


def draw_conflicts(source: Source) -> Iterator[Picture | str]:
    """The chart of conflicts.json, if the folder has one."""
    path = source.folder / "conflicts.json"
    if path.is_file():
        try:
            conflicts = read_conflicts(path)
        except UsageError as error:
            yield f"The heat map of gradient conflicts is left out: {error}."
        else:
            figure, caption = build_figure(conflicts), " ".join(conflicts.advice)
            yield style.to_picture(figure, TITLE, caption, "conflicts")


def build_figure(conflicts: Conflicts) -> Figure:
    """A block per pair of tasks, then the agreement of each task with itself."""
    places = list(dict.fromkeys(cell.place for cell in conflicts.places))
    parts = [*dict.fromkeys(c.part for c in conflicts.owners if c.layer is not None), WHOLE]
    tasks, info = conflicts.info["tasks"], conflicts.info
    heights = [*[len(parts)] * len(conflicts.pairs), len(tasks)]
    size = (max(7.5, 2.6 + 0.68 * len(places)), 1.6 + 0.3 * sum(heights) + 0.35 * len(heights))
    figure = Figure(figsize=size)
    *blocks, noise = figure.subplots(len(heights), 1, height_ratios=heights, sharex=True, squeeze=False).flat  # noqa: E501  # fmt: skip
    image = draw_pairs(blocks, conflicts, places, parts)
    own = np.full((len(tasks), len(places)), np.nan)
    for cell in reversed(conflicts.places):  # the first pair of a task counts
        for task, value in zip(cell.tasks, cell.own, strict=True):
            own[tasks.index(task), places.index(cell.place)] = value
    draw_matrix(noise, own, tasks, NOISE, (0, 1), "{:z.2f}")
    noise.set_title("Cosine between two batches of the same task: the noise level", fontsize=9)
    short = ["emb" if place == "embeddings" else place for place in places]
    noise.set_xticks(range(len(places)), short, fontsize=8)
    bar = figure.colorbar(image, ax=blocks, pad=0.02, aspect=40, shrink=0.7)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    bar.set_label("mean cosine of the gradients", fontsize=8)
    figure.supxlabel(
        f"plan {info['plan']}, encoder {info['encoder']}, measured at "
        f"{len(info['measured_steps'])} of {info['steps']} steps; framed: mean cosine below 0, "
        f"p < {info['level']:g} after Holm's correction",
        fontsize=8, color=style.PALE,
    )  # fmt: skip
    return figure


def draw_pairs(
    blocks: Sequence[Axes], conflicts: Conflicts, places: Sequence[str], parts: Sequence[str]
) -> AxesImage:
    """Mean cosines, parts by places; places outside the layers have only their whole."""
    shown = [cell for cell in (*conflicts.owners, *conflicts.places) if cell.part in parts]
    most = max(FLATTEST, *(abs(cell.mean) for cell in shown))
    number = "{:z.3f}" if len(blocks) * len(parts) * len(places) <= MOST_NUMBERS else ""
    for axes, pair in zip(blocks, conflicts.pairs, strict=True):
        means = np.full((len(parts), len(places)), np.nan)
        for cell in (cell for cell in shown if cell.tasks == pair):
            row, column = parts.index(cell.part), places.index(cell.place)
            means[row, column] = cell.mean
            if cell.is_conflict:
                frame = Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, fill=False, linewidth=1.6)
                axes.add_patch(frame).set_edgecolor(style.INK)
        image = draw_matrix(axes, means, parts, COSINES, (-most, most), number)
        found = ", ".join(f"{cell.correlation:z.2f}" for cell in conflicts.outputs_of(pair))
        correlated = f" (correlation of the outputs {found})" if found else ""
        axes.set_title(" and ".join(pair) + correlated, fontsize=9)
    return image


def draw_matrix(
    axes: Axes, matrix: Values, rows: Sequence[str], colours: Colormap,
    limits: tuple[float, float], number: str,
) -> AxesImage:  # fmt: skip
    """Coloured cells with their values; no numbers where the format is empty."""
    image = axes.imshow(matrix, colours)
    image.set_clim(*limits)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    for row, column in np.argwhere(np.isfinite(matrix)) if number else ():
        text = number.format(matrix[row, column]).replace("-", "−")
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=style.INK)
    return image
