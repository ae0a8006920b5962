"""A layout drawn with letters: a row per task, a column per layer."""

from collections.abc import Iterator, Mapping
from string import ascii_uppercase

from mops.plans.layout import Layout

LEGEND = "same letter in a column = same weights; small letter = frozen"
Cells = Mapping[str, tuple[str, ...]]  # task -> the owners in one cell


def draw(layout: Layout) -> str:
    """The picture of a layout; a cell has the letter of the first task with the same owners."""
    columns = columns_of(layout)
    rows = {
        task: ["+".join(letter(layout, cell, task) for cell in cells) for cells in columns.values()]
        for task in layout.tasks
    }
    first = max(map(len, rows))
    width = max(4, *(len(letters) for row in rows.values() for letters in row))
    lines = [
        f"{task:<{first}}" + "".join(f"  {letters:>{width}}" for letters in row)
        for task, row in {"": list(columns), **rows}.items()
    ]
    return "\n".join([*lines, LEGEND, *notes(layout)])


def columns_of(layout: Layout) -> dict[str, tuple[Cells, ...]]:
    """Name of a column -> its cells: the encoder's owners, then those of the additions there."""
    routes, depth = layout.routes, layout.encoder.depth
    columns: dict[str, tuple[Cells, ...]]
    columns = {"emb": ({task: (route.embeddings,) for task, route in routes.items()},)}
    for n in range(depth):
        trunk = {task: tuple(route.layers[n].values()) for task, route in routes.items()}
        columns[str(n)] = (trunk, *additions_at(layout, n))
    for n in range(depth, len(layout.branches) - 1):
        columns[f"top{n - depth}"] = tuple(additions_at(layout, n))
    if layout.reading.pool == "pooler":
        columns["pool"] = ({task: route.pooler for task, route in routes.items()},)
    for n in range(len(layout.plan.late)):
        columns[f"L{n + 1}"] = ({task: (route.late[n],) for task, route in routes.items()},)
    return columns | {"head": ({task: (route.head,) for task, route in routes.items()},)}


def additions_at(layout: Layout, stage: int) -> Iterator[Cells]:
    """One cell for all additions of a layer."""
    owners = {
        task: tuple(owner for adapter in route.adapters[stage] for owner in adapter.parts.values())
        for task, route in layout.routes.items()
    }
    if any(owners.values()):
        yield owners


def letter(layout: Layout, cells: Cells, task: str) -> str:
    if not cells[task]:  # an addition of other tasks
        return "-"
    first = next(n for n, other in enumerate(cells) if cells[other] == cells[task])
    name = ascii_uppercase[first] if first < len(ascii_uppercase) else f"#{first}"
    is_frozen = all(layout.rates[owner] == 0 for owner in cells[task])
    return name.lower() if is_frozen else name


def notes(layout: Layout) -> Iterator[str]:
    """Facts that a cell cannot show: additions, feeds, L2 penalties."""
    for addition in layout.plan.additions:
        whose = f" of {', '.join(addition.tasks)}" if addition.tasks else ""
        yield f"+ {addition.name}{whose}: {addition.kind}, {', '.join(addition.sites)}"
    for route in layout.routes.values():
        for feed in route.feeds:
            yield f"{feed.target}'s head is fed by {feed.source} ({feed.what}, {feed.gradient})"
    for towards, strength in dict.fromkeys((p.towards, p.strength) for _, p in layout.l2_groups):
        aim = {"copies": "each other", "start": "their initial weights"}[towards]
        yield f"copies are pulled towards {aim} (L2, {strength:g})"
