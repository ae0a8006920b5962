"""A plan drawn as papers do: layers from the bottom up, colours for who shares what."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from mops.plans.layout import Layout
from mops.reports.figures.colours import INK, PAGE, PALE, SHARED, task_colours
from mops.reports.figures.svg import COLOUR, FONTS
from mops.reports.layouts import layouts_of
from mops.reports.material import Material
from mops.reports.parts import Picture
from mops.reports.plan_boxes import LEFT, RIGHT, SIDE, TALL, WIDTH, Box, Boxes, Row, lay_boxes

SIZE = 12.0  # of text
LETTER = 0.56
LINE = 19.0  # of the legend
FEW_SITES = 2  # that are named
LOCKED = 16.0  # room for a lock
LOCK = "M{x} {y}h7v-5h-7zM{a} {b}v-2a2 2 0 0 1 4 0v2"  # a body and a bow


def draw_plan(layout: Layout, title: str) -> str:
    """SVG for the page: it takes ink and lines from there."""
    body, height = body_of(layout)
    page = COLOUR.sub(lambda found: PAGE[found[0]], body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        f'aria-label={quoteattr(title)} font-size="{SIZE:g}"><title>{escape(title)}</title>'
        f"{page}</svg>"
    )


def draw_plan_file(layout: Layout, title: str) -> str:
    """A complete document on white."""
    body, height = body_of(layout)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{WIDTH:g}pt" height="{height:g}pt" viewBox="0 0 {WIDTH:g} {height:g}" '
        f'font-family="{FONTS}" font-size="{SIZE:g}"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>\n'
    )


def draw_plans(material: Material) -> tuple[Picture, ...]:
    """Each different plan once, as pictures of a report."""
    found: dict[str, Picture] = {}
    for name, layout in layouts_of(material).items():
        plan = layout.plan.name
        if plan not in found:
            place = [one.name for one in material.summary.standings].index(name)
            title, about = f"Plan {plan}", sentence_of(layout)
            svg, file = draw_plan(layout, title), draw_plan_file(layout, title)
            found[plan] = Picture(f"plan-{place}", title, about, svg, file, "plans", plan)
    return tuple(found.values())


def sentence_of(layout: Layout) -> str:
    about = layout.plan.about
    return f"{about[:1].upper()}{about[1:]}." if about else ""


def body_of(layout: Layout) -> tuple[str, float]:
    """What is inside of the drawing, and its height."""
    boxes = lay_boxes(layout)
    parts = [draw_row(boxes, row) for row in boxes.rows]
    parts += draw_words(boxes)
    parts += draw_feeds(boxes)
    legend, height = draw_legend(boxes)
    return "".join((*parts, *legend)), height


# ------------------------------------------------------------------ boxes


def draw_row(boxes: Boxes, row: Row) -> str:
    trunk = "".join(rectangle(box, 0.24) for box in boxes.of_row(row))
    added = "".join(rectangle(box, 0.8 if row.slices else 0.24) for box in boxes.added_to(row))
    is_shown = row.height >= TALL or not row.name.isdigit() or int(row.name) % 4 == 0
    label = text(LEFT - 7, row.top + row.height / 2, row.name, anchor="end", colour=PALE)
    return (label if is_shown else "") + trunk + added


def rectangle(box: Box, depth: float) -> str:
    size = f'width="{box.width:.4g}" height="{box.height:.4g}"'
    if box.is_frozen:
        look = f'fill="{PALE}" fill-opacity=".1" stroke="{PALE}" stroke-dasharray="3 2"'
    else:
        look = f'fill="{box.colour}" fill-opacity="{depth:g}" stroke="{box.colour}"'
    return f'<rect x="{box.left:.4g}" y="{box.top:.4g}" {size} rx="2.5" {look}/>'


def draw_words(boxes: Boxes) -> Iterator[str]:
    """Who uses a box, once in the middle of a run of equal rows; the task in its head."""
    for _, same in groupby(boxes.rows, key=lambda row: form_of_row(boxes, row)):
        run = list(same)
        row = run[len(run) // 2]
        if len(row.slices) <= 1 and row.height >= TALL:
            for box in boxes.of_row(row) if row.slices else boxes.added_to(row):
                yield from box_words(boxes, row, box)


def form_of_row(boxes: Boxes, row: Row) -> tuple[object, ...]:
    """Equal for rows that look alike."""
    found = [(box.users, box.is_frozen) for box in boxes.of_row(row)]
    return row.name == "head", bool(row.slices), bool(row.added), tuple(found)


def box_words(boxes: Boxes, row: Row, box: Box) -> Iterator[str]:
    """In the middle of the box, or left of the first addition in it."""
    wide = boxes.column - SIDE if row.added and row.slices else box.width
    words = words_of(boxes, row, box)
    room = int((wide - 2 * (LOCKED if box.is_frozen else 4)) / (LETTER * SIZE))
    shown = words if len(words) <= room else f"{words[: max(room - 1, 1)]}…"
    weight = ' font-weight="600"' if row.name == "head" else ""
    yield text(box.left + wide / 2, box.top + box.height / 2, shown, more=weight)
    if box.is_frozen:
        x, y = box.left + 6, box.top + box.height / 2 + 5
        path = LOCK.format(x=f"{x:.4g}", y=f"{y:.4g}", a=f"{x + 1.5:.4g}", b=f"{y - 5:.4g}")
        yield f'<path d="{path}" fill="none" stroke="{PALE}" stroke-width="1.2"/>'


def words_of(boxes: Boxes, row: Row, box: Box) -> str:
    if row.name == "head":
        return box.users[0]
    if box.is_frozen:
        return "frozen"
    if not row.slices:
        stops = boxes.layout.routes[box.users[0]].adapters[boxes.layout.encoder.depth :]
        return ", ".join(dict.fromkeys(stop.addition.kind for of in stops for stop in of))
    is_for_all = len(box.users) == len(boxes.tasks) > 1
    return "shared by all" if is_for_all else " + ".join(box.users)


def text(
    x: float, y: float, words: str, *, anchor: str = "middle", colour: str = INK, more: str = ""
) -> str:
    return (
        f'<text x="{x:.4g}" y="{y + 0.35 * SIZE:.4g}" text-anchor="{anchor}" fill="{colour}"{more}>'
        f"{escape(words)}</text>"
    )


# ------------------------------------------------------------------ feeds


def draw_feeds(boxes: Boxes) -> Iterator[str]:
    """Arrows from head to head, over the heads between; dashed where no gradient goes back."""
    top = boxes.rows[0].top
    for target, route in boxes.layout.routes.items():
        for n, feed in enumerate(route.feeds):
            start = boxes.left_of(feed.source) + boxes.column * 0.62
            end = boxes.left_of(target) + boxes.column * (0.3 + 0.08 * n)
            rise = 14.0 + 7.0 * abs(boxes.tasks.index(target) - boxes.tasks.index(feed.source))
            dashes = ' stroke-dasharray="3 2"' if feed.gradient == "stop" else ""
            yield (
                f'<path d="M{start:.4g} {top - 1:.4g}C{start:.4g} {top - rise:.4g} {end:.4g} '
                f'{top - rise:.4g} {end:.4g} {top - 4:.4g}" fill="none" stroke="{INK}" '
                f'stroke-width="1.2"{dashes}/><path d="M{end - 3:.4g} {top - 6:.4g}h6l-3 5z" '
                f'fill="{INK}"/>'
            )


# ------------------------------------------------------------------ the legend


def draw_legend(boxes: Boxes) -> tuple[list[str], float]:
    """Swatches with words, as many to a line as there is room for."""
    x, y = LEFT, boxes.bottom + 18
    found = []
    for mark, words in legend_of(boxes):
        wide = 20 + LETTER * SIZE * len(words) + 14
        if x > LEFT and x + wide - 14 > WIDTH - RIGHT:
            x, y = LEFT, y + LINE
        found.append(mark.format(x=f"{x:.4g}", y=f"{y - 4.5:.4g}"))
        found.append(text(x + 19, y, words, anchor="start", colour=PALE))
        x += wide
    return found, y + 9


def legend_of(boxes: Boxes) -> Iterator[tuple[str, str]]:
    """Only what is in the picture."""
    layout = boxes.layout
    all_boxes = [box for row in boxes.rows for box in boxes.of_row(row) if row.name != "head"]
    colours = {box.colour for box in all_boxes if not box.is_frozen}
    if SHARED in colours and len(boxes.tasks) > 1:
        yield swatch(SHARED), "one copy for all tasks"
    if colours & set(task_colours(layout.tasks).values()):
        own = task_colours(layout.tasks)[boxes.tasks[0]]
        yield swatch(own), "a copy per task"
    if any(box.is_frozen for box in all_boxes):
        yield swatch(PALE, dashes=' stroke-dasharray="3 2"'), "frozen"
    for kind in dict.fromkeys(addition.kind for addition in layout.plan.additions):
        sites = [site for a in layout.plan.additions if a.kind == kind for site in a.sites]
        where = ", ".join(sites) if len(sites) <= FEW_SITES else f"at {len(sites)} places"
        words = f"{kind} {where}".replace("_", " ")
        yield swatch(task_colours(layout.tasks)[boxes.tasks[0]], depth=0.8), words
    if any(route.feeds for route in layout.routes.values()):
        yield ARROW, "answers that a later head hears"
    for strength in dict.fromkeys(pulled.strength for pulled in layout.l2_groups):
        yield SPRING, f"copies pulled together (L2, {strength:g})"


def swatch(colour: str, *, depth: float = 0.24, dashes: str = "") -> str:
    return (
        f'<rect x="{{x}}" y="{{y}}" width="13" height="9" rx="2" fill="{colour}" '
        f'fill-opacity="{depth:g}" stroke="{colour}"{dashes}/>'
    )


ARROW = (
    f'<g transform="translate({{x}} {{y}})"><path d="M0 5h9" stroke="{INK}"/>'
    f'<path d="M8 2l5 3l-5 3z" fill="{INK}"/></g>'
)
SPRING = (
    '<path transform="translate({x} {y})" d="M0 5l2 -3l3 6l3 -6l3 6l2 -3" fill="none" '
    f'stroke="{INK}"/>'
)
