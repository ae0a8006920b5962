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
    for task, seconds in one.costs.latency_by_task.items():
        facts[f"latency, {task}"] = cost_cell("latency_seconds", seconds).text
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


class Level(NamedTuple):
    """Embeddings, a layer, an addition on top, the pooler, a late layer, or the heads."""

    name: str
    top: float
    height: float
    copies: tuple[Box, ...]
    added: tuple[Box, ...]  # users of additions; drawn small where there are copies

    @property
    def form(self) -> tuple[object, ...]:
        """Equal for rows that look alike."""
        users = tuple((box.users, box.is_frozen) for box in self.copies)
        return self.name == "head", bool(self.added), users


def draw_plan(layout: Layout, number: int = 0) -> Picture:
    """The figure with the plan's description as caption."""
    title, about = f"Plan {layout.plan.name}", layout.plan.about
    file = load_template("plan.svg").render(
        title=title, layout=layout, diagram=Diagram(layout), width=WIDTH, left=LEFT, tall=TALL,
        ink=INK, pale=PALE, ground=GROUND, shared=SHARED,
    )  # fmt: skip
    caption = f"{about[:1].upper()}{about[1:]}." if about else ""
    svg = in_theme(file[file.index("<svg") :])
    return Picture("plan", str(number), title, caption, svg, file)


class Diagram:
    """The boxes of a layout, in points; labels, arrows and legend are those of plan.svg."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.tasks = layout, tuple(layout.tasks)
        self.column = (WIDTH - LEFT - RIGHT + COLUMN_GAP) / len(self.tasks) - COLUMN_GAP
        self.colours = {task: TASKS[n % len(TASKS)] for n, task in enumerate(self.tasks)}
        self.rows = tuple(self.make_rows())

    def make_rows(self) -> Iterator[Level]:
        """From the heads down; above the heads is room for the arrows of feeds."""
        feeds = max(len(route.feeds) for route in self.layout.routes.values())
        top = 6.0 + (14.0 + 7.0 * feeds if feeds else 0.0)
        columns = columns_of(self.layout)
        tall = TALL if len(columns) <= MANY else LOW
        for name, cells in reversed(columns.items()):
            height, is_on_top = HEAD if name == "head" else tall, name.startswith("top")
            copies = () if is_on_top else tuple(self.part_boxes(cells[0], top, height))
            additions = cells if is_on_top else cells[1:]
            added = tuple(box for own in additions for box in self.boxes(own, top, height))
            yield Level(name, top, height, copies, added)
            top += height + ROW_GAP

    def part_boxes(self, cells: Cells, top: float, height: float) -> Iterator[Box]:
        """The copies of a row; parts that are shared or frozen differently lie above each other."""
        forms: dict[object, list[tuple[str, ...]]] = {}
        for owners in zip(*cells.values(), strict=True):  # of one part, for each task
            form = tuple((owners.index(own), self.layout.rates[own] == 0) for own in owners)
            forms.setdefault(form, []).append(owners)
        count, bottom = sum(map(len, forms.values())), top + height
        for parts in forms.values():
            own_height = height * len(parts) / count
            bottom -= own_height
            own = dict(zip(cells, zip(*parts, strict=True), strict=True))
            yield from self.boxes(own, bottom, own_height)

    def boxes(self, cells: Cells, top: float, height: float) -> Iterator[Box]:
        for owners, neighbours in groupby(self.tasks, key=lambda task: cells[task]):
            tasks = list(neighbours)
            width = self.column * len(tasks) + COLUMN_GAP * (len(tasks) - 1)
            users = tuple(task for task in self.tasks if cells[task] == owners)
            is_frozen = all(self.layout.rates[owner] == 0 for owner in owners)
            colour = SUBSETS[self.tasks.index(users[0]) % len(SUBSETS)]
            if len(users) in (1, len(self.tasks)):
                colour = self.colours[users[0]] if len(users) == 1 else SHARED
            yield Box(self.left_of(tasks[0]), top, width, height, colour, users, is_frozen)

    def left_of(self, task: str) -> float:
        return LEFT + self.tasks.index(task) * (self.column + COLUMN_GAP)

    def labelled(self) -> Iterator[tuple[Level, Box]]:
        """Of rows that look alike, the boxes of the middle one that have room for a text."""
        for _, run in groupby(self.rows, key=lambda row: row.form):
            rows = list(run)
            row = rows[len(rows) // 2]
            yield from ((row, box) for box in row.copies or row.added if box.height >= TALL)
