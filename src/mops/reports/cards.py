"""Cards: a candidate's plan in a sentence and a figure, its results, recipe and command.

The figure of a plan is as papers draw it: a column per task, a row per layer, a box per copy.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from mops.data.compose import set_key
from mops.plans.layout import Layout
from mops.plans.picture import Cells, columns_of
from mops.reports.figures.style import GROUND, INK, PALE, Picture, in_theme
from mops.reports.page import load_template
from mops.reports.source import Source
from mops.surveys.results.results import CandidateResult
from mops.surveys.results.tables import COSTS, cost_cell, estimate_cell
from mops.tables import to_minus
from mops.yaml_io import format_yaml

WIDTH, LEFT, RIGHT = 420.0, 44.0, 4.0
COLUMN_GAP, ROW_GAP = 6.0, 3.0
TALL, LOW, MANY = 19.0, 10.0, 18  # height of a row; with more than MANY rows
HEAD = 25.0  # height of a head's row
SIDE = 13.0  # width of an addition inside a layer's box
LETTER = 6.7  # width of a character, about
FILL, ADDED_FILL = 0.24, 0.8  # opacity of copies and of additions
SHARED = "#2f7fd6"  # one copy for all tasks
TASKS = (
    "#d9660a", "#1a9166", "#8f6bd6", "#c94f7c", "#a07d00", "#1293a8", "#d64545", "#6b8e23",
)  # fmt: skip
SUBSETS = (TASKS[5], TASKS[3], TASKS[4])  # copies that some of the tasks share


@dataclass(frozen=True)
class Card:
    """Everything that the page knows about one candidate; hovering over its name shows it."""

    number: int  # its place in the results
    candidate: str
    plan: str
    is_best: bool  # whether it may be the best
    tags: tuple[str, ...]  # beside its name in the table of plans
    picture: Picture | None  # None where the record does not tell the encoder's shape
    facts: tuple[tuple[str, str], ...]  # name, value
    warnings: tuple[str, ...]
    recipe: str = ""  # YAML: the settings of this candidate; of a run all of them
    command: str = ""  # repeats its best training

    @property
    def family(self) -> str:
        return self.plan.partition(":")[0]


def make_cards(source: Source) -> tuple[Card, ...]:
    """One per candidate, in the order of the results; equal plans share one figure."""
    pictures: dict[str, Picture] = {}
    cards = []
    for number, one in enumerate(source.results.candidates):
        if one.name in source.layouts and one.plan not in pictures:
            pictures[one.plan] = draw_plan(source.layouts[one.name], number)
        tags = [role for role, name in source.roles.items() if name == one.name and source.survey]
        if one.missing_seeds:
            planned = len(one.trials) + len(one.missing_seeds)
            tags.append(f"{len(one.trials)} of {planned} seeds")
        warnings = tuple(dict.fromkeys(w for trial in one.trials for w in trial.warnings))
        cards.append(Card(
            number, one.name, one.plan, one.is_best, tuple(tags), pictures.get(one.plan),
            tuple(list_facts(one).items()), warnings, *repeat_best(source, one),
        ))  # fmt: skip
    return tuple(cards)


def list_facts(one: CandidateResult) -> dict[str, str]:
    """Scores, seeds and the costs that are known."""
    scores = {key: estimate_cell(one.scores.get(key)).text for key in ("overall", *one.tasks)}
    seeds = ", ".join(str(trial.seed) for trial in one.trials)
    facts = {key: to_minus(text) for key, text in scores.items()} | {"seeds": seeds}
    for key, (name, *_) in COSTS.items():
        if text := cost_cell(key, getattr(one.costs, key)).text:
            facts[name] = text
    return facts


def repeat_best(source: Source, one: CandidateResult) -> tuple[str, str]:
    """The recipe and the command of the trial with the best validation score."""
    trials = source.trials_of(one.name)
    if not trials:
        return "", ""
    best = max(trials, key=lambda trial: trial.result.train_info.best_score or float("-inf"))
    recipe, config = best.recipe.to_data(), best.folder / "recipe.yaml"
    if source.survey:
        recipe = {"plan": recipe["plan"]}
        for key, value in {**one.settings, "training.seed": best.result.seed}.items():
            set_key(recipe, key, value)
        # A survey keeps the recipe of every trial, also of those without a folder.
        kept = source.folder / "recipes" / f"{best.result.id}.yaml"
        config = kept if kept.is_file() else config
    again = ("mops", "train", "--config", str(config), "--out", f"runs/{best.result.id}-again")
    return format_yaml(recipe), shlex.join(again)


class Box(NamedTuple):
    """A copy, as wide as the neighbouring tasks that use it."""

    left: float
    top: float
    width: float
    height: float
    colour: str
    users: tuple[str, ...]
    is_frozen: bool
    opacity: float = FILL


class Level(NamedTuple):
    """Embeddings, a layer, an addition on top, the pooler, a late layer, or the heads."""

    name: str
    slices: tuple[Cells, ...]  # from the bottom; several where parts are shared differently
    added: Cells  # the additions here, if any
    top: float
    height: float


def draw_plan(layout: Layout, number: int = 0) -> Picture:
    """The figure with the plan's description as caption."""
    title, about = f"Plan {layout.plan.name}", layout.plan.about
    file = load_template("plan.svg").render(
        title=title, diagram=Diagram(layout), width=WIDTH, left=LEFT, tall=TALL,
        ink=INK, pale=PALE, ground=GROUND,
    )  # fmt: skip
    caption = f"{about[:1].upper()}{about[1:]}." if about else ""
    svg = in_theme(file[file.index("<svg") :])
    return Picture("plan", str(number), title, caption, svg, file)


class Diagram:
    """The boxes, labels and arrows of a layout, in points."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.rows = make_rows(layout)
        self.tasks = tuple(layout.tasks)
        count = len(self.tasks)
        self.column = (WIDTH - LEFT - RIGHT - COLUMN_GAP * (count - 1)) / count
        self.colours = {task: TASKS[n % len(TASKS)] for n, task in enumerate(layout.tasks)}

    def left_of(self, task: str) -> float:
        return LEFT + self.tasks.index(task) * (self.column + COLUMN_GAP)

    def boxes(self) -> Iterator[Box]:
        for row in self.rows:
            yield from self.row_boxes(row)
            yield from self.added_boxes(row)

    def texts(self) -> Iterator[tuple[Box, float, str, bool]]:
        """A box, the middle of its text, the text, and whether it is a head's.

        Of rows that look alike, the middle one has texts: left of the first addition, if any.
        """
        for _, run in groupby(self.rows, key=self.row_form):
            rows = list(run)
            row = rows[len(rows) // 2]
            if len(row.slices) > 1 or row.height < TALL:
                continue
            for box in self.row_boxes(row) if row.slices else self.added_boxes(row):
                width = self.column - SIDE if row.added and row.slices else box.width
                room = int((width - 2 * (16 if box.is_frozen else 4)) / LETTER)
                text = self.text(row, box)
                text = text if len(text) <= room else f"{text[: max(room - 1, 1)]}…"
                yield box, box.left + width / 2, text, row.name == "head"

    def row_boxes(self, row: Level) -> Iterator[Box]:
        """The copies of the encoder, late layers or heads in a row."""
        parts = [len(cells[self.tasks[0]]) for cells in row.slices]
        top = row.top + row.height
        for cells, count in zip(row.slices, parts, strict=True):
            height = row.height * count / sum(parts)
            top -= height
            yield from self.copies(cells, top, height)

    def added_boxes(self, row: Level) -> Iterator[Box]:
        """Additions: at the right end of a layer's box, or in a row of their own on top."""
        for box in self.copies(row.added, row.top, row.height) if row.added else ():
            left, top, height = box.left + box.width - SIDE - 3, row.top + 2.5, row.height - 5
            small = box._replace(left=left, top=top, width=SIDE, height=height, opacity=ADDED_FILL)
            yield small if row.slices else box

    def copies(self, cells: Cells, top: float, height: float) -> Iterator[Box]:
        for owners, neighbours in groupby(self.tasks, key=lambda task: cells[task]):
            tasks = list(neighbours)
            width = self.column * len(tasks) + COLUMN_GAP * (len(tasks) - 1)
            users = tuple(task for task in self.tasks if cells[task] == owners)
            is_frozen = all(self.layout.rates[owner] == 0 for owner in owners)
            colour = SUBSETS[self.tasks.index(users[0]) % len(SUBSETS)]
            if len(users) in (1, len(self.tasks)):
                colour = self.colours[users[0]] if len(users) == 1 else SHARED
            yield Box(self.left_of(tasks[0]), top, width, height, colour, users, is_frozen)

    def row_form(self, row: Level) -> tuple[object, ...]:
        """Equal for rows that look alike."""
        users = [(box.users, box.is_frozen) for box in self.row_boxes(row)]
        return row.name == "head", bool(row.slices), bool(row.added), tuple(users)

    def text(self, row: Level, box: Box) -> str:
        if row.name == "head":
            return box.users[0]
        if box.is_frozen:
            return "frozen"
        if not row.slices:
            on_top = self.layout.routes[box.users[0]].adapters[self.layout.encoder.depth :]
            return ", ".join(dict.fromkeys(a.addition.kind for sites in on_top for a in sites))
        is_for_all = len(box.users) == len(self.tasks) > 1
        return "shared by all" if is_for_all else " + ".join(box.users)

    def arrows(self) -> Iterator[tuple[float, float, float, bool]]:
        """Feeds from head to head: start, end, rise, and whether no gradient flows back."""
        for target, route in self.layout.routes.items():
            for n, feed in enumerate(route.feeds):
                start = self.left_of(feed.source) + self.column * 0.62
                end = self.left_of(target) + self.column * (0.3 + 0.08 * n)
                distance = abs(self.tasks.index(target) - self.tasks.index(feed.source))
                yield start, end, 14.0 + 7.0 * distance, feed.gradient == "stop"

    def legend(self) -> Iterator[tuple[str, str, str, float]]:
        """Entries for what the figure shows: kind of sign, text, colour, opacity."""
        layout, own = self.layout, self.colours[self.tasks[0]]
        boxes = [b for row in self.rows for b in self.row_boxes(row) if row.name != "head"]
        colours = {box.colour for box in boxes if not box.is_frozen}
        if SHARED in colours and len(self.tasks) > 1:
            yield "box", "one copy for all tasks", SHARED, FILL
        if colours & set(self.colours.values()):
            yield "box", "one copy per task", own, FILL
        if any(box.is_frozen for box in boxes):
            yield "frozen", "frozen", INK, FILL
        for kind in dict.fromkeys(addition.kind for addition in layout.plan.additions):
            sites = [site for a in layout.plan.additions if a.kind == kind for site in a.sites]
            where = ", ".join(sites) if len(sites) <= 2 else f"at {len(sites)} sites"
            yield "box", f"{kind} {where}".replace("_", " "), own, ADDED_FILL
        if any(route.feeds for route in layout.routes.values()):
            yield "arrow", "output fed to a later task's head", INK, 1.0
        for strength in dict.fromkeys(pull.strength for _, pull in layout.l2_groups):
            yield "spring", f"copies pulled together (L2, {strength:g})", INK, 1.0


def make_rows(layout: Layout) -> tuple[Level, ...]:
    """From the heads down; above the heads is room for the arrows of feeds."""
    feeds = max(len(route.feeds) for route in layout.routes.values())
    top = 6.0 + (14.0 + 7.0 * feeds if feeds else 0.0)
    columns = columns_of(layout)
    tall = TALL if len(columns) <= MANY else LOW
    rows = []
    for name, cells in reversed(columns.items()):
        has_trunk = not name.startswith("top")
        slices = split_parts(layout, cells[0]) if has_trunk else ()
        added = cells[-1] if len(cells) > has_trunk else {}
        rows.append(Level(name, slices, added, top, HEAD if name == "head" else tall))
        top += rows[-1].height + ROW_GAP
    return tuple(rows)


def split_parts(layout: Layout, cells: Cells) -> tuple[Cells, ...]:
    """The parts of a layer, grouped by who shares them with whom and for whom they are frozen."""
    forms: dict[object, list[tuple[str, ...]]] = {}
    for owners in zip(*cells.values(), strict=True):  # of one part, for each task
        form = tuple((owners.index(own), layout.rates[own] == 0) for own in owners)
        forms.setdefault(form, []).append(owners)
    return tuple(
        dict(zip(cells, zip(*parts, strict=True), strict=True)) for parts in forms.values()
    )
