"""House style of the charts: palette, candidate looks, panels, and SVG that follows the theme."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from mops.reports.source import Source

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
WIDE = 20  # largest value / smallest value from which an axis is logarithmic
LONGEST = 26  # characters of a candidate's name
ROLES = ("recommended", "baseline")  # that charts show
FILLED = "Filled marks: the best candidate is among these with 95 % confidence."
SVG = "http://www.w3.org/2000/svg"
# The style file has INK, PALE, GRID and GROUND too.
house_style = partial(matplotlib.rc_context, fname=Path(__file__).with_name("house.mplstyle"))


@dataclass(frozen=True)
class Picture:
    """A figure of the report: `svg` takes its colours from the page, `file` has its own."""

    group: str  # pictures of one group are shown one at a time, with a switch
    choice: str  # the label of this one on the switch; empty for the only one
    title: str
    caption: str
    svg: str
    file: str
    figure: Figure | None = field(default=None, compare=False)  # of matplotlib, for PNG

    @property
    def name(self) -> str:
        """The file's stem."""
        return re.sub(r"\W+", "-", f"{self.group} {self.choice}".strip())


def to_picture(figure: Figure, title: str, caption: str, group: str, choice: str = "") -> Picture:
    """The figure as SVG. Unlike `savefig`, this draws it only once."""
    out = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    # Ids that marks and clip paths refer to are hashes with this salt: unique in the page.
    with matplotlib.rc_context({"svg.hashsalt": f"{group} {choice}"}):
        FigureCanvasSVG(figure).print_svg(out, metadata=metadata)  # type: ignore[no-untyped-call]
    svg = to_inline(out.getvalue(), title)
    return Picture(group, choice, title, caption, svg, out.getvalue(), figure)


def to_png(figure: Figure) -> bytes:
    out = io.BytesIO()
    with house_style():
        figure.savefig(out, format="png", dpi=144, metadata={"Software": None})
    return out.getvalue()


def to_inline(file: str, title: str) -> str:
    """An SVG file as an element of the page.

    It loses its size and unused ids, and its colours become those of the page. Artists
    with the gid `candidate-N` get `data-candidate`, by which the page finds a candidate's marks.
    """
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(file)
    root[0] = ElementTree.Element(f"{{{SVG}}}title")  # instead of a style for all elements
    root[0].text = title
    used = set(re.findall(r"#([\w-]+)", file))
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name.startswith("candidate-"):
            element.set("data-candidate", name.removeprefix("candidate-"))
        elif name in used:
            element.set("id", name)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": title}
    return in_theme(re.sub(r"\s*\n\s*", " ", ElementTree.tostring(root, "unicode")))


def in_theme(svg: str) -> str:
    for colour, themed in THEME.items():
        svg = svg.replace(colour, themed)
    return svg


class Look(NamedTuple):
    """How a candidate appears in every chart."""

    name: str  # shortened
    gid: str  # candidate-N for the Nth of the results; the page finds its marks by it
    colour: str
    marker: str
    role: str  # "recommended", "baseline", both or nothing
    is_notable: bool  # named where there is no room for all
    is_best: bool  # it may be the best: filled marks


def candidate_looks(source: Source) -> dict[str, Look]:
    """Colours go by plan where several candidates share a plan, otherwise by candidate."""
    candidates = source.results.candidates
    plans = [one.plan for one in candidates]
    is_by_plan = 1 < len(set(plans)) < len(plans)
    keys = {one.name: one.plan if is_by_plan else one.name for one in candidates}
    front = [point.name for point in source.decision.front] if source.decision else []
    first: dict[str, str] = {}  # colour key -> the first candidate that has it
    for name in (*source.main_candidates, *front, *keys):
        first.setdefault(keys[name], name)
    notable = {*list(first.values())[: len(SERIES)], *source.main_candidates}
    styles = dict(zip(first, zip(SERIES, MARKERS, strict=True), strict=False))
    looks = {}
    for place, (one, short) in enumerate(zip(candidates, short_names(list(keys)), strict=True)):
        style = styles.get(keys[one.name], (OTHER, MARKERS[0]))
        role = ", ".join(role for role in ROLES if source.roles[role] == one.name)
        looks[one.name] = Look(
            short, f"candidate-{place}", *style, role, one.name in notable, one.is_best
        )
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


def draw_mark(
    axes: Axes, x: float, y: float, look: Look, size: float, *, xerr: float = 0.0, yerr: float = 0.0
) -> None:  # fmt: skip
    """A candidate's error bar with its marker in the middle."""
    axes.plot(
        [x - xerr, x, x + xerr], [y - yerr, y, y + yerr], marker=look.marker, markevery=[1],
        color=look.colour, markersize=size, markeredgewidth=1.5,
        markerfacecolor=look.colour if look.is_best else GROUND, gid=look.gid,
    )  # fmt: skip


def make_panels(
    titles: Sequence[str], *, xlabel: str = "", height: float = 165.0, columns: int = 2,
    sharey: bool = False, legend: Sequence[Line2D] = (),
) -> tuple[Figure, list[Axes]]:  # fmt: skip
    """A figure with one chart for each title, below a legend; heights are in points."""
    figure, rows = Figure(), -(-len(titles) // columns)
    full = add_legend(figure, legend) + rows * height
    figure.set_size_inches(WIDTH / 72, full / 72)
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, sharey=sharey).flat)
    for unused in panels[len(titles) :]:
        unused.remove()
    for axes, title in zip(panels, titles, strict=False):
        axes.set(title=title, xlabel=xlabel)
    return figure, panels[: len(titles)]


def add_legend(figure: Figure, lines: Sequence[Line2D]) -> float:
    """A legend above the charts; returns its height in points."""
    if not lines:
        return 0.0
    longest = max(len(str(line.get_label())) for line in lines)
    columns = max(1, int(WIDTH / (6.2 * longest + 42)))
    legend = figure.legend(handles=lines, loc="outside upper left", ncols=columns)
    for line, *parts in zip(lines, legend.get_lines(), legend.get_texts(), strict=True):
        for part in parts:
            part.set_gid(line.get_gid())
    return 17.5 * -(-len(lines) // columns)


def set_scale(axes: Axes, values: Sequence[float]) -> bool:
    """A logarithmic x axis where the values span much; returns whether it is one."""
    lowest, highest = min(values, default=0.0), max(values, default=0.0)
    if is_log := 0 < lowest < highest / WIDE:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: plain_number(value))
        axes.xaxis.set_minor_formatter(NullFormatter())
    return is_log


def plain_number(value: float) -> str:
    """Short, with a typographic minus: 0.001, 3e−5, 1,000."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return re.sub(r"e−0?", "e−", text.replace("-", "−"))
