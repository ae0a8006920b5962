"""A layout drawn with letters: a row per task, a column per layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mops.plans.layout import Layout

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LEGEND = "same letter in a column = same weights; small letter = frozen"
Cells = Mapping[str, tuple[str, ...]]  # task -> the owners in one cell


def draw(layout: Layout) -> str:
    """The picture of a layout; the letter of a cell is that of the first task with its owners."""
    columns = columns_of(layout)
    width = max(len(task) for task in layout.tasks)
    wide = max(len(letters(layout, cells, task)) for cells in columns.values() for task in cells[0])
    wide = max(wide, 4)
    header = " " * width + "".join(f"  {name:>{wide}}" for name in columns)
    rows = [
        f"{task:<{width}}"
        + "".join(f"  {letters(layout, cells, task):>{wide}}" for cells in columns.values())
        for task in layout.tasks
    ]
    return "\n".join([header, *rows, LEGEND, *notes(layout)])


def columns_of(layout: Layout) -> dict[str, tuple[Cells, ...]]:
    """Name of a column -> its cells: the encoder's owners, then those of the additions there."""
    routes = layout.routes
    columns: dict[str, tuple[Cells, ...]]
    columns = {"emb": ({task: (route.embeddings,) for task, route in routes.items()},)}
    for n in range(layout.encoder.depth):
        trunk = {task: tuple(route.layers[n].values()) for task, route in routes.items()}
        columns[str(n)] = (trunk, *additions_at(layout, n))
    for n in range(layout.encoder.depth, len(layout.branches) - 1):
        columns[f"top{n - layout.encoder.depth}"] = tuple(additions_at(layout, n))
    if layout.reading.pool == "pooler":
        columns["pool"] = ({task: route.pooler for task, route in routes.items()},)
    for n in range(len(layout.plan.late)):
        columns[f"L{n + 1}"] = ({task: (route.late[n],) for task, route in routes.items()},)
    return columns | {"head": ({task: (route.head,) for task, route in routes.items()},)}


def additions_at(layout: Layout, stage: int) -> Iterator[Cells]:
    """One cell for all additions of a layer together."""
    owners = {
        task: tuple(owner for adapter in route.adapters[stage] for owner in adapter.parts.values())
        for task, route in layout.routes.items()
    }
    if any(owners.values()):
        yield owners


def letters(layout: Layout, cells: tuple[Cells, ...], task: str) -> str:
    return "+".join(letter(layout, cell, task) for cell in cells)


def letter(layout: Layout, cells: Cells, task: str) -> str:
    first = next(n for n, other in enumerate(cells) if cells[other] == cells[task])
    found = LETTERS[first] if first < len(LETTERS) else f"#{first}"
    is_frozen = all(layout.rates[owner] == 0 for owner in cells[task])
    return found.lower() if is_frozen else found


def notes(layout: Layout) -> Iterator[str]:
    """What a cell cannot show: additions, feeds, pulls."""
    for addition in layout.plan.additions:
        yield f"+ {addition.name}: {addition.kind}, {', '.join(addition.sites)}"
    for task, route in layout.routes.items():
        if route.feeds:
            how = sorted({f"{feed.what}, {feed.gradient}" for feed in route.feeds})
            sources = ", ".join(feed.source for feed in route.feeds)
            yield f"{task}'s head hears {sources} ({'; '.join(how)})"
    for towards in dict.fromkeys(pulled.towards for pulled in layout.l2_groups):
        strengths = sorted({p.strength for p in layout.l2_groups if p.towards == towards})
        aim = {"copies": "each other", "start": "their start"}[towards]
        yield f"copies are pulled towards {aim} (L2, {', '.join(f'{s:g}' for s in strengths)})"
