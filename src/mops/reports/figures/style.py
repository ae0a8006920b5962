"""House style of the charts: palette, candidate colours, and SVG that follows the page's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from mops.reports.source import Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PALE, GRID, GROUND = "#1b1f24", "#6e7681", "#dde1e6", "#fefefe"
# How charts follow light and dark: inline SVG has these four colours replaced by the page's own.
THEME = {
    INK: "currentColor",
    PALE: "var(--pale)",
    GRID: "var(--grid)",
    GROUND: "var(--ground)",
}
# Contrast of at least 3 to both grounds, so that one set serves light and dark pages. Each colour
# also has a marker of its own, for readers who see few hues.
SERIES = (
    "#2f7fd6", "#d9660a", "#1a9166", "#b657b0", "#a07d00", "#d64545", "#1293a8", "#7a6fe0",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "p", ">", "<")
OTHER = "#808890"  # candidates beyond those
WIDTH = 460.0  # points; a phone shows a chart at three quarters of that
LONGEST = 26  # characters of a candidate's name
STYLE = Path(__file__).with_name("house.mplstyle")  # has INK, PALE, GRID and GROUND too
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
NO_METADATA: dict[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}


@contextmanager
def house_style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(fname=STYLE):
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


@dataclass(frozen=True)
class Chart:
    """A matplotlib figure with its texts."""

    figure: Figure
    name: str
    title: str
    caption: str
    group: str = ""
    choice: str = ""

    def picture(self) -> Picture:
        import matplotlib

        out = io.StringIO()
        # Ids that marks and clip paths refer to are hashes with this salt: unique in the page.
        with matplotlib.rc_context({"svg.hashsalt": self.name}, fname=STYLE):
            self.figure.savefig(out, format="svg", dpi=144, metadata=NO_METADATA)
        svg = to_inline(out.getvalue(), self.title)
        texts = (self.name, self.title, self.caption)
        return Picture(*texts, svg, out.getvalue(), self.group, self.choice)

    def png(self) -> bytes:
        out = io.BytesIO()
        with house_style():
            self.figure.savefig(out, format="png", dpi=144, metadata={"Software": None})
        return out.getvalue()


def to_inline(file: str, title: str) -> str:
    """An SVG file as an element of the page.

    It loses its size, metadata and unused ids, and its colours become those of the page. Artists
    with the gid `candidate-N` get `data-candidate`, by which the page finds a candidate's marks.
    """
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(file)
    for tag in ("metadata", "defs"):  # the first defs hold only a style for all elements
        for child in root.findall(f"{{{SVG}}}{tag}")[:1]:
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


@dataclass(frozen=True)
class Look:
    """How a candidate appears in every chart."""

    name: str  # shortened
    place: int  # in the results; the page finds its marks by it
    colour: str
    marker: str
    role: str  # "recommended", "baseline", both or nothing
    is_notable: bool  # named where there is no room for all

    @property
    def gid(self) -> str:
        return f"candidate-{self.place}"


def candidate_looks(source: Source) -> dict[str, Look]:
    """Colours go by plan where several candidates share a plan, otherwise by candidate."""
    standings = source.results.candidates
    plans = {one.name: one.plan for one in standings}
    is_by_plan = 1 < len(set(plans.values())) < len(plans)
    keys = plans if is_by_plan else {name: name for name in plans}
    first: dict[str, str] = {}  # colour key -> the first candidate that has it
    for name in by_interest(source):
        first.setdefault(keys[name], name)
    notable = {*list(first.values())[: len(SERIES)], *main_candidates(source)}
    ranks = {key: rank for rank, key in enumerate(first)}
    short = short_names(list(plans))
    chosen = source.decision.candidate if source.decision else None
    roles = {"recommended": chosen, "baseline": source.results.baseline}
    looks = {}
    for place, name in enumerate(plans):
        rank = ranks[keys[name]]
        colour, marker = (
            (SERIES[rank], MARKERS[rank]) if rank < len(SERIES) else (OTHER, MARKERS[0])
        )
        role = ", ".join(role for role, owner in roles.items() if owner == name)
        looks[name] = Look(short[place], place, colour, marker, role, name in notable)
    return looks


def main_candidates(source: Source) -> list[str]:
    """The recommended candidate, the baseline and the model per task, as far as they exist."""
    chosen = source.decision.candidate if source.decision else None
    known = {one.name for one in source.results.candidates}
    wanted = (chosen, source.results.baseline, source.results.single)
    return [name for name in dict.fromkeys(wanted) if name in known and name is not None]


def by_interest(source: Source) -> list[str]:
    """All candidates: the main ones, then the Pareto front, then the others."""
    front = [point.name for point in source.decision.front] if source.decision else []
    names = [one.name for one in source.results.candidates]
    return list(dict.fromkeys((*main_candidates(source), *front, *names)))


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
    axes: Axes, x: float, y: float, look: Look, *, is_filled: bool, size: float, **error: Any
) -> None:
    """A candidate's marker with an error bar (`xerr` or `yerr`)."""
    bar = axes.errorbar(
        x, y, **error, fmt=look.marker, color=look.colour, markersize=size, markeredgewidth=1.5,
        markerfacecolor=look.colour if is_filled else GROUND,
    )  # fmt: skip
    for artist in bar.get_children():
        artist.set_gid(look.gid)


def make_panels(
    titles: Iterable[str], *, xlabel: str = "", height: float = 165.0, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with one small chart for each title, two to a row."""
    from matplotlib.figure import Figure

    names = list(titles)
    rows = -(-len(names) // 2)
    figure = Figure(figsize=(WIDTH / 72, rows * height / 72))
    panels = list(figure.subplots(rows, 2, squeeze=False, **options).flat)
    for axes, title in zip(panels, names, strict=False):
        axes.set_title(title)
        axes.set_xlabel(xlabel, loc="right")
    for unused in panels[len(names) :]:
        unused.remove()
    return figure, panels[: len(names)]


def add_legend(figure: Figure, entries: Sequence[tuple[str, str, Look | None]]) -> None:
    """Lines above the charts: label, colour and, for a candidate, its look."""
    from matplotlib.lines import Line2D

    if not entries:
        return
    handles = [
        Line2D([], [], color=colour, marker=look.marker if look else "", markersize=4.5)
        for _, colour, look in entries
    ]
    labels = [label for label, *_ in entries]
    columns = max(1, int(WIDTH / (6.2 * max(map(len, labels)) + 42)))
    rows = -(-len(labels) // columns)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.24 * rows)
    legend = figure.legend(handles, labels, loc="outside upper left", ncols=columns)
    for line, text, (*_, look) in zip(legend.get_lines(), legend.get_texts(), entries, strict=True):
        for artist in (line, text) if look else ():
            artist.set_gid(look.gid if look else None)


def set_log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic x axis with plain numbers at these values."""
    axes.set_xscale("log")
    axes.set_xticks(values, [plain_number(value) for value in values], minor=False)
    axes.set_xticks([], minor=True)


def plain_number(value: float) -> str:
    """Short, with a typographic minus: 0.001, 3e−5, 1,000."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return re.sub(r"e−0?", "e−", text.replace("-", "−"))
