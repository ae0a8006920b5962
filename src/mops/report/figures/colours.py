"""Who has which colour: the same candidate and the same task everywhere in a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mops.report.material import Material

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
SHARED = "#2f7fd6"  # what all tasks use


@dataclass(frozen=True)
class Look:
    """How a candidate appears."""

    place: int  # in the standings; the page finds its marks by it
    colour: str
    mark: str
    is_notable: bool  # named where there is no room for all

    @property
    def gid(self) -> str:
        return f"candidate-{self.place}"


def looks(material: Material) -> dict[str, Look]:
    """Colours go by plan where several candidates have the same one, else by candidate."""
    standings = material.summary.standings
    plans = {one.name: one.plan for one in standings}
    is_by_plan = 1 < len(set(plans.values())) < len(plans)
    first = ranked(material)
    keys = list(dict.fromkeys(plans[name] if is_by_plan else name for name in first))
    named = notable(material)
    found = {}
    for place, one in enumerate(standings):
        rank = keys.index(one.plan if is_by_plan else one.name)
        has_own = rank < len(SERIES)
        colour, mark = (SERIES[rank], MARKS[rank]) if has_own else (OTHER, "o")
        found[one.name] = Look(place, colour, mark, one.name in named)
    return found


def ranked(material: Material) -> list[str]:
    """All candidates; those that a reader asks for first come first."""
    summary = material.summary
    names = [one.name for one in summary.standings]
    front = material.decision.front if material.decision else ()
    asked = [*heads(material), *(point.name for point in front), *names]
    return [name for name in dict.fromkeys(asked) if name in names]


def heads(material: Material) -> list[str]:
    """The recommended candidate, the baseline, a model per task: as far as they are there."""
    chosen = material.decision.candidate if material.decision else None
    known = {one.name for one in material.summary.standings}
    asked = (chosen, material.summary.baseline, material.summary.single)
    return [name for name in dict.fromkeys(asked) if name in known and name is not None]


def notable(material: Material) -> set[str]:
    """Those with a colour of their own, or all where there are few."""
    return set(ranked(material)[: len(SERIES)])


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
