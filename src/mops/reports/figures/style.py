"""House style of the charts: palette, candidate looks, panels, and SVG that follows the theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from mops.reports.source import Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PALE, GRID, GROUND = "#1b1f24", "#6e7681", "#dde1e6", "#fefefe"
# How charts follow light and dark: inline SVG has these four colours replaced by the page's own.
THEME = {INK: "currentColor", PALE: "var(--pale)", GRID: "var(--grid)", GROUND: "var(--ground)"}
# Contrast of at least 3 to both grounds, so that one set serves light and dark pages. Each colour
# also has a marker of its own, for readers who see few hues.
SERIES = (
    "#2f7fd6", "#d9660a", "#1a9166", "#b657b0", "#a07d00", "#d64545", "#1293a8", "#7a6fe0",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "p", ">", "<")
OTHER = "#808890"  # candidates beyond those
WIDTH = 460.0  # points; a phone shows a chart at three quarters of that
TOP, RIGHT, BOTTOM, LEFT = 22.0, 18.0, 38.0, 50.0  # margins of a panel for its texts
WIDE = 20  # largest value / smallest value from which an axis is logarithmic
LONGEST = 26  # characters of a candidate's name
LegendEntry = tuple[str, str, str, str | None]  # label, colour, marker, gid
SVG = "http://www.w3.org/2000/svg"


@contextmanager
def house_style() -> Iterator[None]:
    import matplotlib

    # The style file has INK, PALE, GRID and GROUND too.
    with matplotlib.rc_context(fname=Path(__file__).with_name("house.mplstyle")):
        yield


@dataclass(frozen=True)
class Picture:
    """A figure of the report: `svg` takes its colours from the page, `file` has its own."""

    name: str  # file stem
    title: str
    caption: str
    svg: str
    file: str
    group: str = ""  # pictures of one group are shown one at a time, with a switch
    choice: str = ""  # the label of this one on the switch
    figure: Figure | None = field(default=None, compare=False)  # of matplotlib, for PNG


def to_picture(
    figure: Figure, name: str, title: str, caption: str, group: str = "", choice: str = ""
) -> Picture:
    """The figure as SVG. Unlike `savefig`, this draws it only once."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    # Ids that marks and clip paths refer to are hashes with this salt: unique in the page.
    with matplotlib.rc_context({"svg.hashsalt": name}):
        FigureCanvasSVG(figure).print_svg(out, metadata=metadata)  # type: ignore[no-untyped-call]
    svg = to_inline(out.getvalue(), title)
    return Picture(name, title, caption, svg, out.getvalue(), group, choice, figure)


def to_png(figure: Figure) -> bytes:
    out = io.BytesIO()
    with house_style():
        figure.savefig(out, format="png", dpi=144, metadata={"Software": None})
    return out.getvalue()


def to_inline(file: str, title: str) -> str:
    """An SVG file as an element of the page.

    It loses its size, metadata and unused ids, and its colours become those of the page. Artists
    with the gid `candidate-N` get `data-candidate`, by which the page finds a candidate's marks.
    """
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(file)
    for child in (root.find(f"{{{SVG}}}metadata"), root.find(f"{{{SVG}}}defs")):
        if child is not None:  # the first defs hold only a style for all elements
            root.remove(child)
    used = set(re.findall(r"#([\w-]+)", file))
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name.startswith("candidate-"):
            element.set("data-candidate", name.removeprefix("candidate-"))
        elif name in used:
            element.set("id", name)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": title}
    text = ElementTree.tostring(root, "unicode")
    start = text.index(">") + 1
    text = f"{text[:start]}<title>{escape(title)}</title>{text[start:]}"
    return in_theme(re.sub(r"\s*\n\s*", " ", text))


def in_theme(svg: str) -> str:
    for colour, themed in THEME.items():
        svg = svg.replace(colour, themed)
    return svg


# ------------------------------------------------------------------ candidates


class Look(NamedTuple):
    """How a candidate appears in every chart."""

    name: str  # shortened
    gid: str  # candidate-N for the Nth of the results; the page finds its marks by it
    colour: str
    marker: str
    role: str  # "recommended", "baseline", both or nothing
    is_notable: bool  # named where there is no room for all


def candidate_looks(source: Source) -> dict[str, Look]:
    """Colours go by plan where several candidates share a plan, otherwise by candidate."""
    plans = {one.name: one.plan for one in source.results.candidates}
    is_by_plan = 1 < len(set(plans.values())) < len(plans)
    keys = plans if is_by_plan else {name: name for name in plans}
    front = [point.name for point in source.decision.front] if source.decision else []
    first: dict[str, str] = {}  # colour key -> the first candidate that has it
    for name in (*source.main_candidates, *front, *plans):
        first.setdefault(keys[name], name)
    notable = {*list(first.values())[: len(SERIES)], *source.main_candidates}
    styles = dict(zip(first, zip(SERIES, MARKERS, strict=True), strict=False))
    roles = {"recommended": source.chosen, "baseline": source.results.baseline}
    looks = {}
    for place, (name, short) in enumerate(zip(plans, short_names(list(plans)), strict=True)):
        style = styles.get(keys[name], (OTHER, MARKERS[0]))
        role = ", ".join(role for role, owner in roles.items() if owner == name)
        looks[name] = Look(short, f"candidate-{place}", *style, role, name in notable)
    return looks


def short_names(names: Sequence[str]) -> list[str]:
    """Names without the keys of their settings if one is long and they stay distinct."""
    bare = [re.sub(r", [\w.]+=", ", ", name) for name in names]
    is_long = max(map(len, names), default=0) > LONGEST
    chosen = bare if is_long and len(set(bare)) == len(bare) else names
    return [shorten(name) for name in chosen]


def shorten(name: str, most: int = LONGEST) -> str:
    """The beginning and the end: plans differ at the beginning, settings at the end."""
    half = most // 2
    return name if len(name) <= most else f"{name[: most - half]}…{name[1 - half :]}"


# ------------------------------------------------------------------ drawing


def draw_mark(
    axes: Axes, x: float, y: float, look: Look, size: float, *,
    is_filled: bool, xerr: float = 0.0, yerr: float = 0.0,
) -> None:  # fmt: skip
    """A candidate's error bar with its marker in the middle."""
    axes.plot(
        [x - xerr, x, x + xerr], [y - yerr, y, y + yerr], marker=look.marker, markevery=[1],
        color=look.colour, markersize=size, markeredgewidth=1.5,
        markerfacecolor=look.colour if is_filled else GROUND, gid=look.gid,
    )  # fmt: skip


def make_panels(
    titles: Sequence[str], *, xlabel: str = "", height: float = 165.0, left: float = LEFT,
    top: float = TOP, columns: int = 2, sharey: bool = False, legend: Sequence[LegendEntry] = (),
) -> tuple[Figure, list[Axes]]:  # fmt: skip
    """A figure with one chart for each title, below a legend.

    Margins are fixed, in points, because a layout engine would measure every text three times.
    """
    from matplotlib.figure import Figure

    figure, rows = Figure(), -(-len(titles) // columns)
    above = add_legend(figure, legend)
    full, high = above + rows * height, height - top - BOTTOM
    gap = RIGHT if sharey else left
    wide = (WIDTH - left - RIGHT - (columns - 1) * gap) / columns
    figure.set_size_inches(WIDTH / 72, full / 72)
    grid = {
        "left": left / WIDTH, "right": 1 - RIGHT / WIDTH, "wspace": gap / wide,
        "bottom": BOTTOM / full, "top": 1 - (above + top) / full, "hspace": (top + BOTTOM) / high,
    }  # fmt: skip
    places = figure.subplots(rows, columns, squeeze=False, sharey=sharey, gridspec_kw=grid)
    panels: list[Axes] = list(places.flat)
    for unused in panels[len(titles) :]:
        unused.remove()
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(title)
        axes.set_xlabel(xlabel, loc="right")
        axes.xaxis.set_label_coords(1, -18 / high)
        axes.yaxis.set_label_coords(-(left - 16) / wide, 0.5)
    return figure, panels[: len(titles)]


def add_legend(figure: Figure, entries: Sequence[LegendEntry]) -> float:
    """Lines above the charts; returns their height in points."""
    from matplotlib.lines import Line2D

    if not entries:
        return 0.0
    labels, colours, markers, gids = zip(*entries, strict=True)
    styles = zip(colours, markers, strict=True)
    handles = [Line2D([], [], color=own, marker=mark, markersize=4.5) for own, mark in styles]
    columns = max(1, int(WIDTH / (6.2 * max(map(len, labels)) + 42)))
    legend = figure.legend(handles, labels, loc="upper left", ncols=columns, borderaxespad=0.2)
    for line, text, gid in zip(legend.get_lines(), legend.get_texts(), gids, strict=True):
        line.set_gid(gid)
        text.set_gid(gid)
    return 17.5 * -(-len(labels) // columns)


def set_log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic x axis with plain numbers at these values."""
    axes.set_xscale("log")
    axes.set_xticks(values, [plain_number(value) for value in values], minor=False)
    axes.set_xticks([], minor=True)


def plain_number(value: float) -> str:
    """Short, with a typographic minus: 0.001, 3e−5, 1,000."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return re.sub(r"e−0?", "e−", text.replace("-", "−"))
