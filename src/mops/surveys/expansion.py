"""Expands the settings of a survey into candidates: complete recipes with short names. No torch."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.data.compose import set_key
from mops.errors import RecipeError
from mops.surveys.ledger import Candidate

STEP_COUNTS = ("eval_steps", "steps_per_epoch", "dwa_steps")  # settings that count steps


@dataclass(frozen=True)
class Point:
    """One combination of a block."""

    given: Mapping[str, Any]  # dotted key -> value
    axes: Iterable[str]  # the keys that vary in its block, linked ones joined by +


def expand(
    base: Mapping[str, Any],
    points: Sequence[Point],
    *,
    steps: int | None,
    evaluations: int | None,
    with_test: bool,
) -> tuple[Candidate, ...]:
    """A candidate for each point; points with equal recipes give the same candidate."""
    data = [apply(base, point.given, with_test) for point in points]
    if steps is not None:
        rescale(data, points, steps)
    distinct: dict[str, tuple[Point, Recipe]] = {}  # by content
    contents = []
    for plain, point in zip(data, points, strict=True):
        if evaluations is not None:
            plain["training"] = limit_evaluations(plain.get("training") or {}, evaluations)
        label = ", ".join(map(str, point.given.values()))[:60] or "of the recipe"
        recipe = to_recipe(copy.deepcopy(plain), where=f"survey, candidate {label}")
        contents.append(json.dumps(recipe.to_data(), sort_keys=True))
        distinct.setdefault(contents[-1], (point, recipe))
    named = dict(zip(distinct, name_candidates(list(distinct.values())), strict=True))
    return tuple(named[content] for content in contents)


def apply(base: Mapping[str, Any], given: Mapping[str, Any], with_test: bool) -> dict[str, Any]:
    """The base recipe with the settings of a point; test files only if they are scored."""
    data = copy.deepcopy(dict(base))
    for key, value in given.items():
        if key == "training.seed":
            raise RecipeError(f"a survey does not set {key}: name them under `seeds` of the survey")
        set_key(data, key, copy.deepcopy(value))
    tasks = data.get("tasks")
    for entry in tasks.values() if isinstance(tasks, dict) and not with_test else ():
        if isinstance(entry, dict):
            entry.pop("test", None)
    return data


# ------------------------------------------------------------------ names


def name_candidates(distinct: Sequence[tuple[Point, Recipe]]) -> list[Candidate]:
    """Short, distinct names: the plan, the axes, and other settings only where needed."""
    points, recipes = zip(*distinct, strict=True)
    data = [recipe.to_data() for recipe in recipes]
    parts = [part for point in points for axis in point.axes for part in axis.split("+")]
    keys = dict.fromkeys(("plan", *parts, *(key for point in points for key in point.given)))
    varied = [
        key for key in keys if not all(value_at(d, key) == value_at(data[0], key) for d in data)
    ]
    axes = {axis.partition("+")[0] for point in points for axis in point.axes} & set(varied)
    shown = sorted((key for key in varied if key != "plan"), key=lambda key: key not in axes)
    for count in range(len(axes - {"plan"}), len(shown) + 1):
        names = [write_name(point, d, shown[:count]) for point, d in zip(points, data, strict=True)]
        if len(set(names)) == len(names):
            break
    else:
        name = next(name for name in names if names.count(name) > 1)
        raise RecipeError(
            f"two candidates of the survey would be called {name[:160]!r}, but they differ; give "
            "their plans or folders different names"
        )
    return [
        Candidate(name, {key: value_at(d, key) for key in varied}, recipe)
        for name, d, recipe in zip(names, data, recipes, strict=True)
    ]


def write_name(point: Point, data: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The plan and the settings of this point: `PLAN, learning_rate=0.001`."""
    plan = data["plan"]
    words = [plan["name"] if isinstance(plan, dict) else plan]
    for key in keys:
        value = value_at(data, key)
        if key in point.given and value not in (None, [], {}):
            words.append(f"{key.rpartition('.')[2]}={abbreviate(value)}")
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


# ------------------------------------------------------------------ another number of steps


def count_steps(training: Mapping[str, Any]) -> int | None:
    """Steps in all; None where they depend on the number of rows."""
    if training.get("stages"):
        return sum(int(stage["steps"]) for stage in training["stages"])
    if training.get("max_steps"):
        return int(training["max_steps"])
    if training.get("steps_per_epoch"):
        return round(float(training.get("num_train_epochs", 3)) * int(training["steps_per_epoch"]))
    return None


def rescale(data: Sequence[dict[str, Any]], points: Sequence[Point], steps: int) -> None:
    """All recipes with this many steps; where the budget itself varies, the largest has them."""
    totals = [count_steps(recipe.get("training") or {}) or 0 for recipe in data]
    varies = [any("training.max_steps" in axis for axis in point.axes) for point in points]
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
    new |= {key: resize(new[key]) for key in STEP_COUNTS if new.get(key)}
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


def limit_evaluations(training: Mapping[str, Any], evaluations: int) -> dict[str, Any]:
    """The same training with at most so many evaluations, evenly spread."""
    steps = count_steps(training)
    if steps is None:
        return dict(training)
    interval = training.get("eval_steps") or training.get("steps_per_epoch") or 1
    return {**training, "eval_steps": max(interval, math.ceil(steps / evaluations))}
