"""Who has which colour: the same candidate and the same task everywhere in a report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mops.reports.material import Material

INK, PALE, GRID, GROUND = "#1b1f24", "#6e7681", "#dde1e6", "#fefefe"
# What a page may set; without it the drawing has its own colours.
PAGE = {
    INK: "currentColor",
    PALE: f"var(--pale, {PALE})",
    GRID: f"var(--grid, {GRID})",
    GROUND: "var(--ground, #fff)",
}
# All have a contrast of 3.5 or more to white and to near black, so one set serves both. Neighbours
# differ in hue and, for those who see few hues, by mark and by name.
SERIES = (
    "#2f7fd6", "#d9660a", "#1a9166", "#b657b0", "#a07d00", "#d64545", "#1293a8", "#7a6fe0",
)  # fmt: skip
OTHER = "#808890"  # candidates beyond those
MARKS = ("o", "s", "^", "D", "v", "p", ">", "<")
TASKS = (
    "#d9660a", "#1a9166", "#8f6bd6", "#c94f7c", "#a07d00", "#1293a8", "#d64545", "#6b8e23",
)  # fmt: skip
LONGEST = 26  # letters of a name
SHARED = "#2f7fd6"  # what all tasks use


@dataclass(frozen=True)
class Look:
    """How a candidate appears."""

    name: str  # in few letters
    place: int  # in the standings; the page finds its marks by it
    colour: str
    mark: str
    is_notable: bool  # named where there is no room for all

    @property
    def gid(self) -> str:
        return f"candidate-{self.place}"


def looks(material: Material) -> dict[str, Look]:
    """Colours go by plan where several candidates have the same one, else by candidate."""
    own, named = colour_keys(material), notable(material)
    names = short_names([one.name for one in material.summary.standings])
    keys = list(dict.fromkeys(own[name] for name in ranked(material)))
    found = {}
    for place, one in enumerate(material.summary.standings):
        rank = keys.index(own[one.name])
        has_own = rank < len(SERIES)
        colour, mark = (SERIES[rank], MARKS[rank]) if has_own else (OTHER, "o")
        found[one.name] = Look(names[place], place, colour, mark, one.name in named)
    return found


def short_names(names: Sequence[str]) -> list[str]:
    """Where a name is long, all without the keys of their settings, if that tells them apart."""
    bare = [re.sub(r", [\w.]+=", ", ", name) for name in names]
    is_long = max(map(len, names), default=0) > LONGEST
    chosen = bare if is_long and len(set(bare)) == len(bare) else names
    return [shortened(name) for name in chosen]


def shortened(name: str, most: int = LONGEST) -> str:
    """The beginning and the end: plans differ in the one, settings in the other."""
    half = most // 2
    return name if len(name) <= most else f"{name[: most - half]}…{name[1 - half :]}"


def colour_keys(material: Material) -> dict[str, str]:
    """Candidate -> what its colour goes by."""
    plans = {one.name: one.plan for one in material.summary.standings}
    is_by_plan = 1 < len(set(plans.values())) < len(plans)
    return plans if is_by_plan else {name: name for name in plans}


def ranked(material: Material) -> list[str]:
    """All candidates; those that a reader asks for first come first."""
    names = [one.name for one in material.summary.standings]
    front = material.decision.front if material.decision else ()
    return list(dict.fromkeys((*heads(material), *(point.name for point in front), *names)))


def notable(material: Material) -> set[str]:
    """As many as there are colours; where colours go by plan, the first of each."""
    own = colour_keys(material)
    first: dict[str, str] = {}
    for name in ranked(material):
        first.setdefault(own[name], name)
    return {*list(first.values())[: len(SERIES)], *heads(material)}


def heads(material: Material) -> list[str]:
    """The recommended candidate, the baseline, a model per task: as far as they are there."""
    chosen = material.decision.candidate if material.decision else None
    known = {one.name for one in material.summary.standings}
    asked = (chosen, material.summary.baseline, material.summary.single)
    return [name for name in dict.fromkeys(asked) if name in known and name is not None]


def task_colours(tasks: Iterable[str]) -> Mapping[str, str]:
    """In the order of the summary; after eight they begin anew."""
    return {task: TASKS[n % len(TASKS)] for n, task in enumerate(tasks)}


def roles(material: Material) -> Mapping[str, str]:
    """Candidate -> what it is beside its name."""
    chosen = material.decision.candidate if material.decision else None
    known = {"recommended": chosen, "baseline": material.summary.baseline}
    return {
        one.name: ", ".join(role for role, name in known.items() if name == one.name)
        for one in material.summary.standings
    }
