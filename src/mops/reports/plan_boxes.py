"""Where the boxes of a plan's picture lie: a column per task, a row per layer, a box per copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, permutations

from mops.plans.layout import Layout
from mops.plans.picture import columns_of
from mops.reports.figures.colours import SHARED, TASKS, task_colours

WIDTH, LEFT, RIGHT = 420.0, 44.0, 4.0
GAP, BETWEEN = 6.0, 3.0  # from column to column, from row to row
TALL, LOW, MANY = 19.0, 10.0, 18  # of a row; of a row where there are many
HEAD = 25.0  # height of a head, with the name of its task
SIDE = 13.0  # width of an addition
MOST_TRIED = 5  # tasks whose order is tried in all ways
SOME = (TASKS[5], TASKS[3], TASKS[4])  # colours of what some of the tasks share
Cells = Mapping[str, tuple[str, ...]]  # task -> its owners


@dataclass(frozen=True)
class Box:
    """A copy, as wide as the tasks side by side that use it."""

    left: float
    top: float
    width: float
    height: float
    colour: str
    users: tuple[str, ...]
    is_frozen: bool


@dataclass(frozen=True)
class Row:
    """The embeddings, a layer, a place on top, the pooler, a late layer, or the heads."""

    name: str
    slices: tuple[Cells, ...]  # from the bottom; several where parts are shared differently
    added: Cells  # the additions here; of no task: none
    top: float
    height: float


@dataclass(frozen=True)
class Boxes:
    """The picture in its own units."""

    layout: Layout
    tasks: tuple[str, ...]  # from left to right
    rows: tuple[Row, ...]  # from top to bottom

    @property
    def column(self) -> float:
        return (WIDTH - LEFT - RIGHT - GAP * (len(self.tasks) - 1)) / len(self.tasks)

    @property
    def bottom(self) -> float:
        return self.rows[-1].top + self.rows[-1].height

    def left_of(self, task: str) -> float:
        return LEFT + self.tasks.index(task) * (self.column + GAP)

    def of_row(self, row: Row) -> Iterator[Box]:
        """The copies of the encoder, late layers or heads."""
        parts = sum(len(owners_in(cells)) for cells in row.slices)
        top = row.top + row.height
        for cells in row.slices:
            height = row.height * len(owners_in(cells)) / parts
            top -= height
            yield from self.boxes(cells, top, height)

    def added_to(self, row: Row) -> Iterator[Box]:
        """Additions: at the right end of a layer's box, or a row of their own on top of all."""
        for box in self.boxes(row.added, row.top, row.height) if row.added else ():
            if row.slices:
                left, high = box.left + box.width - SIDE - 3, row.height - 5
                yield Box(left, row.top + 2.5, SIDE, high, box.colour, box.users, box.is_frozen)
            else:
                yield box

    def boxes(self, cells: Cells, top: float, height: float) -> Iterator[Box]:
        for owners, side_by_side in groupby(self.tasks, key=lambda task: cells[task]):
            tasks = list(side_by_side)
            left, width = self.left_of(tasks[0]), self.column * len(tasks) + GAP * (len(tasks) - 1)
            users = tuple(task for task in self.tasks if cells[task] == owners)
            is_frozen = all(self.layout.rates[owner] == 0 for owner in owners)
            yield Box(left, top, width, height, self.colour(users), users, is_frozen)

    def colour(self, users: tuple[str, ...]) -> str:
        if len(users) == 1:
            return task_colours(self.layout.tasks)[users[0]]
        if len(users) == len(self.tasks):
            return SHARED
        return SOME[min(map(self.tasks.index, users)) % len(SOME)]


def lay_boxes(layout: Layout) -> Boxes:
    rows = rows_of(layout)
    return Boxes(layout, best_order(layout, rows), rows)


def rows_of(layout: Layout) -> tuple[Row, ...]:
    """The heads on top; above them room for what they hear of each other."""
    hears = max(len(route.feeds) for route in layout.routes.values())
    top = 6.0 + (14.0 + 7.0 * hears if hears else 0.0)
    columns = columns_of(layout)
    tall = TALL if len(columns) <= MANY else LOW
    found = []
    for name, cells in reversed(columns.items()):
        has_trunk = not name.startswith("top")
        slices = slices_of(layout, cells[0]) if has_trunk else ()
        added = cells[-1] if len(cells) > has_trunk else {}
        found.append(Row(name, slices, added, top, HEAD if name == "head" else tall))
        top += found[-1].height + BETWEEN
    return tuple(found)


def slices_of(layout: Layout, cells: Cells) -> tuple[Cells, ...]:
    """One, or several where some parts are shared otherwise than others, or frozen."""
    forms: dict[object, list[int]] = {}
    for n in range(len(owners_in(cells))):
        forms.setdefault(form_of(layout, [owners[n] for owners in cells.values()]), []).append(n)
    return tuple(
        {task: tuple(owners[n] for n in parts) for task, owners in cells.items()}
        for parts in forms.values()
    )


def owners_in(cells: Cells) -> tuple[str, ...]:
    """Those of the first task: every task has as many."""
    return next(iter(cells.values()))


def form_of(layout: Layout, owners: Sequence[str]) -> tuple[tuple[int, bool], ...]:
    """Who shares a part with whom, and for whom it is frozen; whatever the owners are called."""
    return tuple((owners.index(own), layout.rates[own] == 0) for own in owners)


def best_order(layout: Layout, rows: Sequence[Row]) -> tuple[str, ...]:
    """The tasks as they are, or so that those that share lie side by side."""
    tasks = tuple(layout.tasks)
    if len(tasks) > MOST_TRIED:
        return tasks
    forms = {tuple(cells.values()): cells for row in rows for cells in row.slices}

    def edges(order: tuple[str, ...]) -> int:
        """Borders between boxes."""
        return sum(
            cells[one] != cells[other] for cells in forms.values() for one, other in pairwise(order)
        )

    return min(permutations(tasks), key=edges)  # the first of equals: the given order
