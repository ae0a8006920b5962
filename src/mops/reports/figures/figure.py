"""The house style of charts, and how a matplotlib figure becomes a picture of a report."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mops.reports.figures.colours import GRID, INK, PALE
from mops.reports.figures.svg import for_file, for_page, read_body
from mops.reports.parts import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 460.0  # points; a phone shows it at three quarters of that
SIZE, SMALL = 11.5, 10.5  # of text
LETTER = 0.58  # width of a mean letter as a share of the size
TINY, MANY = 2e-3, 1e4  # below, numbers have powers; from there on they count in thousands
PAD = 5.0  # from a chart to the names of its values
STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": SMALL,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "mops",  # same figure, same bytes
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": PALE,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "text.parse_math": False,  # a $ in a name is a $
    "path.simplify": True,
}
NO_FACTS: dict[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class Drawn:
    """A chart with its words; `picture` and `png` render it."""

    figure: Figure
    name: str
    title: str
    caption: str
    group: str = ""
    choice: str = ""

    def picture(self) -> Picture:
        words = (self.title, self.caption, self.group, self.choice)
        return to_picture(self.figure, self.name, *words)

    def png(self) -> bytes:
        """On white, at twice the size of its points."""
        out = io.BytesIO()
        with house_style():
            self.figure.patch.set(visible=True, facecolor="white")
            self.figure.savefig(out, format="png", dpi=144, metadata={"Software": None})
            self.figure.patch.set_visible(False)
        return out.getvalue()


def to_picture(
    figure: Figure, name: str, title: str, caption: str, group: str = "", choice: str = ""
) -> Picture:
    """Rendered once, in two versions."""
    out = io.StringIO()
    with house_style():
        figure.savefig(out, format="svg", metadata=NO_FACTS)
    body = read_body(out.getvalue(), name)
    page, file = for_page(body, title), for_file(body, title)
    return Picture(name, title, caption, page, file, group, choice)


@contextmanager
def house_style() -> Iterator[None]:
    """Entered once for all pictures of a report: matplotlib's contexts are slow."""
    import matplotlib

    is_on = all(matplotlib.rcParams[key] == value for key, value in STYLE.items())
    with nullcontext() if is_on else matplotlib.rc_context(STYLE):
        yield


# ------------------------------------------------------------------ places, in points from the top


def blank(height: float, width: float = WIDTH) -> Figure:
    """An empty figure whose pixels are points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    figure.patch.set_visible(False)
    return figure


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """A chart without frame and axes: what `set_scale` draws instead is far less work."""
    whole_width, whole_height = (72 * inches for inches in figure.get_size_inches())
    bottom = whole_height - top - height
    place = (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)
    axes = figure.add_axes(place)
    axes.set_axis_off()
    return axes


def write(figure: Figure, left: float, top: float, text: str, **look: Any) -> None:
    """Words whose baseline is this far below the top."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    plain: dict[str, Any] = {"fontsize": SMALL, "color": PALE, "va": "baseline"}
    figure.text(left / width, 1 - top / height, text, **plain | look)


# ------------------------------------------------------------------ scales


def set_scale(axes: Axes, which: str, low: float, high: float, *, count: int = 4) -> None:
    """Limits, a few round ticks, and pale lines across."""
    from matplotlib.ticker import MaxNLocator

    found = MaxNLocator(nbins=count, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    values = [float(v) for v in found if low <= v <= high]
    set_ticks(axes, which, low, high, values, numbers(values))


def set_log_scale(axes: Axes, which: str, low: float, high: float, values: Sequence[float]) -> None:
    getattr(axes, f"set_{which}scale")("log")
    set_ticks(axes, which, low, high, values, [number(value) for value in values])


def set_ticks(
    axes: Axes, which: str, low: float, high: float, values: Sequence[float], names: Sequence[str]
) -> None:
    """Limits, pale lines across at the values, and their names beside the chart."""
    from matplotlib.collections import LineCollection

    name_ticks(axes, which, low, high, values, names)
    along = getattr(axes, f"get_{which}axis_transform")()
    ends = [[(v, 0), (v, 1)] if which == "x" else [(0, v), (1, v)] for v in values]
    lines = LineCollection(ends, colors=GRID, linewidths=0.7, transform=along, zorder=0.5)
    axes.figure.add_artist(lines)


def name_ticks(
    axes: Axes, which: str, low: float, high: float, values: Sequence[float], names: Sequence[str]
) -> None:
    """Limits and names alone."""
    getattr(axes, f"set_{which}lim")(low, high)
    is_x = which == "x"
    along = getattr(axes, f"get_{which}axis_transform")()
    pad = -PAD / (axes.bbox.height if is_x else axes.bbox.width)
    sides: dict[str, Any] = (
        {"ha": "center", "va": "top"} if is_x else {"ha": "right", "va": "center"}
    )
    for value, name in zip(values, names, strict=True):
        place = (value, pad) if is_x else (pad, value)
        axes.figure.text(*place, name, transform=along, fontsize=SMALL, color=PALE, **sides)


def spread(values: Sequence[float], share: float = 0.08) -> tuple[float, float]:
    """The range of the values with some room at both ends."""
    low, high = min(values), max(values)
    room = share * (high - low) or 0.05 * abs(high) or 0.5
    return low - room, high + room


def number(value: float) -> str:
    """Short, with a true minus."""
    if 0 < abs(value) < TINY:
        digits, _, power = f"{value:.3e}".partition("e")
        return f"{float(digits):g}e{int(power)}".replace("-", "−")
    if abs(value) >= MANY:
        return f"{value / 1000:.4g}k".replace("-", "−")
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", "−")


def numbers(values: Sequence[float]) -> list[str]:
    """All in thousands where one is, or with as many decimals as one of them needs."""
    short = [number(value) for value in values]
    if any(abs(value) >= MANY for value in values):
        return [number(value / 1000) + ("k" if value else "") for value in values]
    decimals = max((len(word.partition(".")[2]) for word in short), default=0)
    if not decimals or any("e" in word for word in short):
        return short
    return [f"{value:.{decimals}f}".replace("-", "−") for value in values]


# ------------------------------------------------------------------ words


def width_of(text: str, size: float = SMALL) -> float:
    """About how wide a text is drawn."""
    return LETTER * size * len(text)
