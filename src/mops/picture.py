"""A layout drawn with letters: a row per task, a column per layer."""

from __future__ import annotations

from mops.layout import Layout

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LEGEND = "same letter in a column = same weights; small letter = frozen"


def draw(layout: Layout) -> str:
    """The picture of a layout; the letter of a cell is that of the first task with its owners."""
    columns = columns_of(layout)
    width = max(len(task) for task in layout.tasks)
    header = " " * width + "".join(f"  {name:>4}" for name in columns)
    rows = [
        f"{task:<{width}}"
        + "".join(f"  {letter(layout, cells, task):>4}" for cells in columns.values())
        for task in layout.tasks
    ]
    return "\n".join([header, *rows, LEGEND])


def columns_of(layout: Layout) -> dict[str, dict[str, tuple[str, ...]]]:
    """Name of a column -> task -> the owners in that cell."""
    routes = layout.routes
    columns: dict[str, dict[str, tuple[str, ...]]]
    columns = {"emb": {task: (route.embeddings,) for task, route in routes.items()}}
    for n in range(layout.encoder.depth):
        columns[str(n)] = {task: tuple(r.layers[n].values()) for task, r in routes.items()}
    if layout.reading.pool == "pooler":
        columns["pool"] = {task: route.pooler for task, route in routes.items()}
    for n in range(len(layout.plan.late)):
        columns[f"L{n + 1}"] = {task: (route.late[n],) for task, route in routes.items()}
    return columns | {"head": {task: (route.head,) for task, route in routes.items()}}


def letter(layout: Layout, cells: dict[str, tuple[str, ...]], task: str) -> str:
    first = next(n for n, other in enumerate(cells) if cells[other] == cells[task])
    found = LETTERS[first] if first < len(LETTERS) else f"#{first}"
    is_frozen = all(layout.rates[owner] == 0 for owner in cells[task])
    return found.lower() if is_frozen else found
