"""Candidates of a survey: blocks of settings, short names, other numbers of steps. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress, product
from typing import Annotated, Any

from pydantic import Field

from mops.config.training import Strict
from mops.errors import RecipeError
from mops.surveys.ledger import Candidate

Settings = Mapping[str, Any]  # dotted key of the recipe -> its value
STEP_COUNTS = ("eval_steps", "steps_per_epoch", "dwa_steps")  # settings that count steps


class Block(Strict):
    """Candidates that vary together: all combinations of the axes, on the same settings."""

    set: dict[str, Any] = Field(
        default_factory=dict, description="dotted key of the recipe -> its value in this block"
    )
    axes: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="dotted key -> the values to compare; `a+b` sets two keys to the same value",
    )

    def points(self) -> list[dict[str, Any]]:
        """The settings of each combination."""
        keys = [axis.split("+") for axis in self.axes]
        return [
            self.set
            | {k: value for linked, value in zip(keys, values, strict=True) for k in linked}
            for values in product(*self.axes.values())
        ]

    def varies(self, key: str) -> bool:
        return any(key in axis.split("+") for axis in self.axes)

    def with_axis(self, key: str, values: Sequence[Any]) -> Block:
        """The same block with other values of a key, whether it was set, varied or absent."""
        axis = next((axis for axis in self.axes if key in axis.split("+")), key)
        kept = {name: value for name, value in self.set.items() if name not in axis.split("+")}
        return Block(set=kept, axes={**self.axes, axis: list(values)})


def name_candidates(drafts: Sequence[Candidate], axes: Iterable[str]) -> list[Candidate]:
    """Short, distinct names: the plan, the axes, and other settings only where needed."""
    linked = [axis.split("+") for axis in axes]
    keys = dict.fromkeys(["plan", *chain(*linked), *chain(*(draft.settings for draft in drafts))])
    data = (draft.recipe.to_data() for draft in drafts)
    rows = [{key: value_at(recipe, key) for key in keys} for recipe in data]
    varied = [key for key in keys if any(row[key] != rows[0][key] for row in rows)]
    first = {parts[0] for parts in linked} & set(varied)
    shown = sorted((key for key in varied if key != "plan"), key=lambda key: key not in first)
    both = list(zip(drafts, rows, strict=True))
    for count in range(len(first - {"plan"}), len(shown) + 1):
        names = [write_name(draft.settings, row, shown[:count]) for draft, row in both]
        if len(set(names)) == len(names):
            break
    else:
        name = next(name for name in names if names.count(name) > 1)
        raise RecipeError(
            f"two candidates of the survey would be called {name[:160]!r}, but they differ; give "
            "their plans or folders different names"
        )
    return [
        Candidate(name, {key: row[key] for key in varied}, draft.recipe)
        for name, (draft, row) in zip(names, both, strict=True)
    ]


def write_name(given: Settings, row: Settings, keys: Sequence[str]) -> str:
    """The plan and the settings of this point: `PLAN, learning_rate=0.001`."""
    plan = row["plan"]
    words = [plan["name"] if isinstance(plan, dict) else plan]
    for key in keys:
        if key in given and row[key] not in (None, [], {}):
            words.append(f"{key.rpartition('.')[2]}={abbreviate(row[key])}")
    return ", ".join(words)


def abbreviate(value: Any) -> str:
    """A value in few letters: numbers short, folders by their last name, mappings by values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        parts = {key: part for key, part in value.items() if part is not False and key != "steps"}
        return "/".join(key if part is True else abbreviate(part) for key, part in parts.items())
    if isinstance(value, list | tuple):
        return "+".join(map(abbreviate, value))
    return str(value).rstrip("/").rpartition("/")[2]


def value_at(data: Mapping[str, Any], dotted: str) -> Any:
    value: Any = data
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def count_steps(training: Mapping[str, Any]) -> int | None:
    """Steps in all; None where they depend on the number of rows."""
    if training.get("stages"):
        return sum(int(stage["steps"]) for stage in training["stages"])
    if training.get("max_steps"):
        return int(training["max_steps"])
    if training.get("steps_per_epoch"):
        return round(float(training.get("num_train_epochs", 3)) * int(training["steps_per_epoch"]))
    return None


def rescale(data: Sequence[dict[str, Any]], varies: Sequence[bool], steps: int) -> None:
    """All recipes with this many steps; where the budget itself varies, the largest has them."""
    totals = [count_steps(recipe.get("training") or {}) or 0 for recipe in data]
    largest = max(compress(totals, varies), default=0)
    for recipe, total, is_varied in zip(data, totals, varies, strict=True):
        share = (total or largest) / largest if is_varied else 1
        recipe["training"] = scale(recipe.get("training") or {}, max(1, round(steps * share)))


def scale(training: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The same training with `steps` steps; stages, evaluations and limits in proportion.

    If the steps followed from the rows, the proportion is unknown and step counts stay, at most
    `steps`.
    """
    before = count_steps(training)
    ratio = steps / before if before else None

    def resize(count: int) -> int:  # rounded up: never more evaluations than before
        return min(steps, math.ceil(count * ratio) if ratio else count)

    new = dict(training)
    new |= {key: resize(new[key]) for key in STEP_COUNTS if (new.get(key) or 0) >= 1}
    if new.get("task_steps"):
        new["task_steps"] = {task: resize(most) for task, most in new["task_steps"].items()}
    new |= scale_warmup(new, ratio)
    if new.get("stages"):
        return new | {"max_steps": None, "stages": scale_stages(new["stages"], steps)}
    return new | {"max_steps": steps}


def scale_warmup(part: Mapping[str, Any], ratio: float | None) -> dict[str, Any]:
    """A warm-up below 1 is a fraction and stays."""
    given = part.get("warmup_steps")
    return {"warmup_steps": max(1, round(given * ratio))} if ratio and given and given >= 1 else {}


def scale_stages(stages: Sequence[Mapping[str, Any]], steps: int) -> list[dict[str, Any]]:
    """In proportion, with `steps` in all; at least one each."""
    total = sum(stage["steps"] for stage in stages)
    scaled, before, done = [], 0, 0
    for later, stage in zip(reversed(range(len(stages))), stages, strict=True):
        before += stage["steps"]
        here = max(1, min(round(steps * before / total), steps - later) - done)
        done += here
        scaled.append({**stage, "steps": here, **scale_warmup(stage, steps / total)})
    return scaled


def limit_evaluations(data: Iterable[dict[str, Any]], most: int, *, is_exact: bool) -> None:
    """All recipes with at most, or exactly, so many evaluations, evenly spread."""
    for recipe in data:
        training = recipe.get("training") or {}
        if steps := count_steps(training):
            even = math.ceil(steps / most)
            interval = training.get("eval_steps") or training.get("steps_per_epoch") or 1
            interval = math.ceil(interval * steps) if interval < 1 else interval
            interval = even if is_exact else max(interval, even)
            recipe["training"] = {**training, "eval_steps": interval}
