"""The result of a gradient measurement: where tasks conflict, and the advice that follows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from mops.errors import UsageError
from mops.evaluate.agreement import CosineCell
from mops.evaluate.statistics import LEVEL
from mops.files import write_text


@dataclass(frozen=True)
class Conflicts:
    """Where the tasks' gradients disagree: by owner, by place, and averaged over pairs."""

    info: Mapping[str, Any]  # plan, encoder, tasks, measured steps, batch sizes, level
    recipe: Mapping[str, Any]
    machine: Mapping[str, Any]
    owners: tuple[CosineCell, ...]
    places: tuple[CosineCell, ...]
    averages: tuple[CosineCell, ...]
    advice: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(cell.tasks for cell in self.places))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def write_conflicts(path: Path, conflicts: Conflicts) -> None:
    write_text(path, conflicts.to_json())


def read_conflicts(path: str | Path) -> Conflicts:
    """The measurement in a file conflicts.json."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        for key in ("owners", "places", "averages"):
            data[key] = tuple(read_cell(row) for row in data[key])
        return Conflicts(**{**data, "advice": tuple(data["advice"])})
    except (OSError, ValueError, TypeError, KeyError) as cause:
        raise UsageError(
            f"{path} is not a measurement of conflicts: {cause}; delete it or name another --out"
        ) from cause


def read_cell(row: Mapping[str, Any]) -> CosineCell:
    return CosineCell(**{**row, "tasks": tuple(row["tasks"]), "own": tuple(row["own"])})


# ------------------------------------------------------------------ advice


def advise(owners: Sequence[CosineCell], places: Sequence[CosineCell]) -> tuple[str, ...]:
    """One or two sentences: the worst conflict, and where separate copies would remove it."""
    conflicting = [cell for cell in places if cell.is_conflict]
    if conflicting:
        return describe_worst(conflicting, len(places)), suggest_split(conflicting, places)
    return tuple(describe_none(owners, places))


def describe_worst(conflicting: Sequence[CosineCell], tested: int) -> str:
    lowest = min(conflicting, key=lambda cell: cell.mean)
    return (
        f"The tasks disagree most in {lowest.place}: {' and '.join(lowest.tasks)} have a mean "
        f"cosine of {lowest.mean:z.3f} ± {lowest.stderr:.3f} there, where two tasks with the same "
        f"goal would show about {lowest.ceiling:.2f}; {len(conflicting)} of {tested} cells (place "
        "and pair of tasks) conflict."
    )


def suggest_split(conflicting: Sequence[CosineCell], places: Sequence[CosineCell]) -> str:
    """Split at the lowest layer from which on every shared layer conflicts in some pair."""
    layers = {cell.layer for cell in conflicting}
    shared = sorted({cell.layer for cell in places if cell.layer is not None}, reverse=True)
    upper = list(takewhile(lambda layer: layer in layers, shared))
    if upper:
        return (
            f"Every shared layer from {upper[-1]} on conflicts: a copy per task from layer "
            f"{upper[-1]} on would remove the conflicts; train both ways before you decide."
        )
    where = ", ".join(dict.fromkeys(cell.place for cell in conflicting))
    return (
        f"The conflicts ({where}) do not reach the top layer: a copy per task from some layer on "
        "would split layers that agree; copy only the conflicting parts instead."
    )


def describe_none(owners: Sequence[CosineCell], places: Sequence[CosineCell]) -> Iterator[str]:
    lowest = min(places, key=lambda cell: cell.mean)
    yield (
        f"No layer shows a significant conflict (level {LEVEL}, Holm over {len(places)} cells); "
        f"the lowest mean cosine is {lowest.mean:z.3f} ± {lowest.stderr:.3f}, in {lowest.place} "
        f"between {' and '.join(lowest.tasks)}."
    )
    conflicting = sorted((cell for cell in owners if cell.is_conflict), key=lambda c: c.mean)
    if conflicting:
        named = ", ".join(f"{cell.owner} ({' and '.join(cell.tasks)})" for cell in conflicting[:3])
        yield (
            f"Single parts do: {len(conflicting)} of {len(owners)} cells, the lowest are {named}."
        )
