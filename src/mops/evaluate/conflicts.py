"""What a measurement of gradients wrote down, and the advice that follows from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mops.errors import UsageError
from mops.evaluate.agreement import Cell
from mops.evaluate.statistics import LEVEL
from mops.files import write_text


@dataclass(frozen=True)
class Conflicts:
    """Where the tasks' gradients disagree: by owner, by place, and averaged over pairs."""

    info: Mapping[str, Any]  # plan, encoder, tasks, measured steps, batch sizes, level
    recipe: Mapping[str, Any]
    machine: Mapping[str, Any]
    owners: tuple[Cell, ...]
    places: tuple[Cell, ...]
    averages: tuple[Cell, ...]
    advice: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(cell.tasks for cell in self.places))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def write_conflicts(path: Path, found: Conflicts) -> None:
    write_text(path, found.to_json())


def read_conflicts(path: str | Path) -> Conflicts:
    """The measurement in a file conflicts.json."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        for key in ("owners", "places", "averages"):
            data[key] = tuple(cell_of(row) for row in data[key])
        return Conflicts(**{**data, "advice": tuple(data["advice"])})
    except (OSError, ValueError, TypeError, KeyError) as cause:
        raise UsageError(
            f"{path} is no measurement of conflicts: {cause}; delete it or name another --out"
        ) from cause


def cell_of(row: Mapping[str, Any]) -> Cell:
    return Cell(**{**row, "tasks": tuple(row["tasks"]), "own": tuple(row["own"])})


# ------------------------------------------------------------------ advice


def advise(owners: Sequence[Cell], places: Sequence[Cell]) -> tuple[str, ...]:
    """One or two sentences: where it is worst, and where a split would take it away."""
    bad = [cell for cell in places if cell.is_conflict]
    if bad:
        return worst(bad, len(places)), split(bad, places)
    return tuple(none_found(owners, places))


def worst(bad: Sequence[Cell], tested: int) -> str:
    lowest = min(bad, key=lambda cell: cell.mean)
    return (
        f"The tasks disagree most in {lowest.place}: {' and '.join(lowest.tasks)} have a mean "
        f"cosine of {lowest.mean:z.3f} ± {lowest.stderr:.3f} there, where two tasks that want the "
        f"same would show about {lowest.ceiling:.2f}; {len(bad)} of {tested} cells (place and pair "
        "of tasks) conflict."
    )


def split(bad: Sequence[Cell], places: Sequence[Cell]) -> str:
    """The lowest layer from which on all shared layers conflict, in one pair or another."""
    shared = sorted({cell.layer for cell in places if cell.layer is not None})
    conflicting = {cell.layer for cell in bad}
    first = None
    for layer in reversed(shared):
        if layer not in conflicting:
            break
        first = layer
    if first is not None:
        return (
            f"Every shared layer from {first} on conflicts: a copy per task from layer {first} "
            "on takes that away; train both ways before you decide."
        )
    where = ", ".join(dict.fromkeys(cell.place for cell in bad))
    return (
        f"The conflicts ({where}) do not reach the top layer, so a copy per task from some layer "
        "on would split layers that agree; own copies of those alone would not."
    )


def none_found(owners: Sequence[Cell], places: Sequence[Cell]) -> Iterator[str]:
    lowest = min(places, key=lambda cell: cell.mean)
    yield (
        f"No layer shows a conflict that differs from zero (level {LEVEL}, Holm over "
        f"{len(places)} cells); the lowest mean cosine is {lowest.mean:z.3f} ± "
        f"{lowest.stderr:.3f}, in {lowest.place} between {' and '.join(lowest.tasks)}."
    )
    bad = sorted((cell for cell in owners if cell.is_conflict), key=lambda cell: cell.mean)
    if bad:
        named = ", ".join(f"{cell.owner} ({' and '.join(cell.tasks)})" for cell in bad[:3])
        yield f"Single parts do: {len(bad)} of {len(owners)} cells, lowest first {named}."
