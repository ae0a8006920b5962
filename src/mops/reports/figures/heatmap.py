"""The heat map of conflicts: a column per place, a block of rows per pair of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mops.errors import UsageError
from mops.evaluate.agreement import WHOLE, Cell
from mops.evaluate.conflicts import Conflicts, read_conflicts
from mops.files import atomic_write
from mops.reports.figures.colours import GROUND, INK, PALE
from mops.reports.figures.figure import Drawn, house_style
from mops.reports.material import Material

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
TITLE = "Where the tasks' gradients disagree"
GAP = 0.95  # rows above the block of a pair, for its name
# Clear in the middle and never deeper than ink is legible on: for light and dark pages alike.
SIDES = ((0.0, "#d64545a0"), (0.5, "#d6454500"), (0.5, "#2f7fd600"), (1.0, "#2f7fd6a0"))
NOISE = ((0.0, "#80889000"), (1.0, "#808890a0"))
FLATTEST = 0.1  # the colours never span less: noise must not look like a finding
MOST_NUMBERS = 800  # cells; with more of them the numbers would not be read
SHORT = {"embeddings": "emb"}
NOTE: dict[str, Any] = {"loc": "left", "fontsize": 9, "color": PALE}


@dataclass(frozen=True)
class Box:
    """One coloured cell: where it lies, how many rows it covers, what it shows."""

    column: int
    row: float
    height: int
    value: float
    is_marked: bool


@dataclass(frozen=True)
class Paint:
    """How values become colours and numbers."""

    scale: Normalize
    colours: Colormap
    number: str  # format
    has_numbers: bool


def draw_heatmap(found: Conflicts, folder: Path) -> list[Path]:
    """heatmap.svg and heatmap.png in the folder."""
    paths = [folder / f"heatmap.{kind}" for kind in FORMATS]
    with house_style():
        figure = build_figure(found)
        figure.patch.set_facecolor("white")
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=13, weight="bold")
        for path, kind in zip(paths, FORMATS, strict=True):
            facts = {"Date": None} if kind == "svg" else {}
            with atomic_write(path) as draft:
                figure.savefig(draft, format=kind, dpi=110, metadata=facts)
    return paths


def draw_conflicts(material: Material) -> Iterator[Drawn]:
    """Where a measurement lies in the folder."""
    path = material.folder / "conflicts.json"
    if not path.is_file():
        return
    try:
        found = read_conflicts(path)
    except UsageError:
        return
    figure = build_figure(found)
    yield Drawn(figure, "conflicts", TITLE, " ".join(found.advice))


def build_figure(found: Conflicts) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    places = list(dict.fromkeys(cell.place for cell in found.places))
    rows = rows_of(found)
    heights = [len(found.pairs) * (len(rows) + GAP), len(found.info["tasks"])]
    size = (max(7.5, 2.6 + 0.68 * len(places)), 2.4 + 0.28 * sum(heights))
    figure = Figure(
        figsize=size,
        layout=ConstrainedLayoutEngine(hspace=0.06, h_pad=0.1, w_pad=0.08),
        facecolor="none",
    )
    above, below = figure.subplots(2, 1, height_ratios=heights)
    draw_pairs(above, found, places, rows)
    draw_own(below, found, places)
    info = found.info
    above.set_title(
        f"plan {info['plan']}, encoder {info['encoder']}, {info['steps']} steps, measured at "
        f"{len(info['measured_steps'])} of them\nframed: mean cosine below 0, "
        f"p < {info['level']:g} after Holm's correction",
        **NOTE,
    )
    return figure


def rows_of(found: Conflicts) -> list[str]:
    """The parts of layers, and all of them together where there are any."""
    parts = list(dict.fromkeys(cell.part for cell in found.owners if cell.layer is not None))
    return [*parts, WHOLE]


# ------------------------------------------------------------------ the pairs


def draw_pairs(axes: Axes, found: Conflicts, places: list[str], rows: list[str]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    boxes = list(boxes_of(found, places, rows))
    most = max(FLATTEST, *(abs(box.value) for box in boxes))
    has_numbers = len(boxes) <= MOST_NUMBERS
    colours = LinearSegmentedColormap.from_list("sides", SIDES)
    paint = Paint(Normalize(-most, most), colours, "{:z.3f}", has_numbers)
    for box in boxes:
        draw_box(axes, box, paint)
    block = len(rows) + GAP
    for n, pair in enumerate(found.pairs):
        name = " and ".join(pair)
        axes.text(0.04, n * block - 0.2, name, fontsize=9, weight="bold", color=INK)
    ticks = {
        n * block + i + 0.5: row for n in range(len(found.pairs)) for i, row in enumerate(rows)
    }
    frame(axes, places, ticks, -GAP, len(found.pairs) * block - GAP)
    bar = axes.figure.colorbar(
        ScalarMappable(paint.scale, paint.colours), ax=axes, pad=0.02, aspect=40, shrink=0.7
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=0)
    bar.set_label("mean cosine of the gradients", fontsize=8)


def boxes_of(found: Conflicts, places: list[str], rows: list[str]) -> Iterator[Box]:
    """Parts of layers in rows of their own; a place without layers covers its block."""
    block = len(rows) + GAP
    for cell in (*found.owners, *found.places):
        top = found.pairs.index(cell.tasks) * block
        column = places.index(cell.place)
        box = partial(Box, column=column, value=cell.mean, is_marked=cell.is_conflict)
        if cell.layer is not None:
            yield box(row=top + rows.index(cell.part), height=1)
        elif cell.part == WHOLE:
            yield box(row=top, height=len(rows))


# ------------------------------------------------------------------ a task with itself


def draw_own(axes: Axes, found: Conflicts, places: list[str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    tasks = found.info["tasks"]
    values = own_of(found.places)
    colours = LinearSegmentedColormap.from_list("noise", NOISE)
    paint = Paint(Normalize(0, 1), colours, "{:z.2f}", len(values) <= MOST_NUMBERS)
    for (place, task), value in values.items():
        draw_box(axes, Box(places.index(place), tasks.index(task), 1, value, False), paint)
    frame(axes, places, {i + 0.5: task for i, task in enumerate(tasks)}, 0, len(tasks))
    axes.set_title(
        "own: the cosine between two batches of the same task, the agreement that noise leaves",
        **NOTE,
    )


def own_of(cells: tuple[Cell, ...]) -> Mapping[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for cell in cells:
        for task, value in zip(cell.tasks, cell.own, strict=True):
            found.setdefault((cell.place, task), value)
    return found


# ------------------------------------------------------------------ boxes and frames


def draw_box(axes: Axes, box: Box, paint: Paint) -> None:
    from matplotlib.patches import Rectangle

    shade = paint.colours(paint.scale(box.value))
    edge: dict[str, Any] = {"edgecolor": GROUND, "linewidth": 1.0, "zorder": 1}
    inset = 0.0
    if box.is_marked:
        edge, inset = {"edgecolor": INK, "linewidth": 1.6, "zorder": 2}, 0.05
    place = (box.column + inset, box.row + inset)
    axes.add_patch(Rectangle(place, 1 - 2 * inset, box.height - 2 * inset, facecolor=shade, **edge))
    if paint.has_numbers:
        axes.text(
            box.column + 0.5, box.row + box.height / 2, written(paint.number, box.value),
            ha="center", va="center", fontsize=8, zorder=3,
            color=INK, weight="bold" if box.is_marked else "normal",
        )  # fmt: skip


def written(number: str, value: float) -> str:
    """With a true minus."""
    return number.format(value).replace("-", "−")


def frame(
    axes: Axes, places: list[str], rows: Mapping[float, str], top: float, bottom: float
) -> None:
    """Labels without lines: the first row on top, the names of the places below."""
    axes.set_xlim(0, len(places))
    axes.set_ylim(bottom, top)
    names = [SHORT.get(place, place) for place in places]
    axes.set_xticks([n + 0.5 for n in range(len(places))], names, fontsize=8)
    axes.set_yticks(list(rows), list(rows.values()), fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
