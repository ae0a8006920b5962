"""What a survey sets becomes candidates: complete recipes with short names. No torch.

Another number of steps for a training: what counts in steps is scaled with it. No torch.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.data.compose import set_key
from mops.errors import RecipeError
from mops.surveys.ledger import Candidate

NAME_LENGTH = 160
REFUSED = {"training.seed": "name them under `seeds` of the survey"}


@dataclass(frozen=True)
class Point:
    """One combination of a block."""

    given: Mapping[str, Any]  # dotted key -> value
    axes: Iterable[str]  # the keys that vary in its block, linked ones joined by +


def expand(
    base: Mapping[str, Any],
    points: Sequence[Point],
    *,
    steps: int | None = None,
    evaluations: int | None = None,
    with_test: bool = False,
) -> tuple[Candidate, ...]:
    """A candidate for each point; those with equal recipes are the same one."""
    data = [apply(base, point.given, with_test) for point in points]
    if steps is not None:
        data = rescaled(data, points, steps)
    if evaluations is not None:
        data = [{**d, "training": seldom(d.get("training") or {}, evaluations)} for d in data]
    recipes = [to_recipe(copy.deepcopy(one), where=where(points[n])) for n, one in enumerate(data)]
    digests = [key_of(recipe.to_data()) for recipe in recipes]
    first = {digest: n for n, digest in reversed(list(enumerate(digests)))}
    chosen = sorted(first.values())
    found = dict(zip(chosen, name_all([points[n] for n in chosen], recipes, chosen), strict=True))
    return tuple(found[first[digest]] for digest in digests)


def apply(base: Mapping[str, Any], given: Mapping[str, Any], with_test: bool) -> dict[str, Any]:
    """The base recipe with what a point sets; unlabelled test files are not worth predicting."""
    data = copy.deepcopy(dict(base))
    for key, value in given.items():
        if key in REFUSED:
            raise RecipeError(f"a survey does not set {key}: {REFUSED[key]}")
        set_key(data, key, copy.deepcopy(value))
    tasks = data.get("tasks")
    for entry in tasks.values() if isinstance(tasks, dict) and not with_test else ():
        if isinstance(entry, dict):
            entry.pop("test", None)
    return data


def rescaled(
    data: list[dict[str, Any]], points: Sequence[Point], steps: int
) -> list[dict[str, Any]]:
    """All recipes with this many steps; where the budget itself varies, the largest has them."""
    varied = [any("training.max_steps" in axis for axis in point.axes) for point in points]
    totals = [steps_of(one.get("training") or {}) for one in data]
    largest = max((t or 0 for t, is_so in zip(totals, varied, strict=True) if is_so), default=0)
    found = []
    for one, total, is_varied in zip(data, totals, varied, strict=True):
        wanted = max(1, round(steps * (total or largest) / largest)) if is_varied else steps
        found.append({**one, "training": scaled(one.get("training") or {}, wanted)})
    return found


def where(point: Point) -> str:
    return f"survey, candidate {', '.join(map(str, point.given.values()))[:60] or 'of the recipe'}"


# ------------------------------------------------------------------ names


def name_all(
    points: Sequence[Point], recipes: Sequence[Recipe], chosen: Sequence[int]
) -> list[Candidate]:
    """Names that tell the candidates apart: the plan, the axes, and of the rest what is needed."""
    whole = [recipes[n].to_data() for n in chosen]
    varied = [key for key in keys_of(points) if len({key_of(value_at(d, key)) for d in whole}) > 1]
    axes = [k for k in varied if k in {axis.partition("+")[0] for p in points for axis in p.axes}]
    shown = [key for key in axes if key != "plan"]
    names = [name_of(p, d, shown) for p, d in zip(points, whole, strict=True)]
    for key in varied:
        if len(set(names)) < len(names) and key != "plan" and key not in shown:
            shown = [*shown, key]
            names = [name_of(p, d, shown) for p, d in zip(points, whole, strict=True)]
    refuse_twins(names)
    return [
        Candidate(name, {key: value_at(data, key) for key in varied}, recipes[n])
        for name, data, n in zip(names, whole, chosen, strict=True)
    ]


def keys_of(points: Sequence[Point]) -> list[str]:
    """All keys that any point sets; the plan first, axes before what is only set."""
    axes = [part for point in points for axis in point.axes for part in axis.split("+")]
    return list(dict.fromkeys(("plan", *axes, *(key for point in points for key in point.given))))


def name_of(point: Point, data: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The plan, and what this point sets: `PLAN, learning_rate=0.001`."""
    plan = data["plan"]
    words = [plan["name"] if isinstance(plan, dict) else plan]
    for key in keys:
        value = value_at(data, key)
        if key in point.given and value not in (None, [], {}):
            words.append(f"{key.rpartition('.')[2]}={word_of(value)}")
    return ", ".join(words)


def word_of(value: Any) -> str:
    """A value in few letters: numbers short, folders by their last name, mappings by values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, dict):
        told = {key: part for key, part in value.items() if part is not False and key != "steps"}
        return "/".join(key if part is True else word_of(part) for key, part in told.items())
    if isinstance(value, list | tuple):
        return "+".join(map(word_of, value))
    return str(value).rstrip("/").rpartition("/")[2]


def refuse_twins(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(
                f"two candidates of the survey would be called {name[:NAME_LENGTH]!r}, but they "
                "differ; give their plans or folders different names"
            )


def value_at(data: Mapping[str, Any], dotted: str) -> Any:
    found: Any = data
    for step in dotted.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def key_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# What is a number of steps; a warm-up below 1 is a share and stays.
COUNTED = ("eval_steps", "steps_per_epoch", "dwa_steps")


def steps_of(training: Mapping[str, Any]) -> int | None:
    """Steps in all; none where they follow from the number of rows."""
    if training.get("stages"):
        return sum(int(stage["steps"]) for stage in training["stages"])
    if training.get("max_steps"):
        return int(training["max_steps"])
    if training.get("steps_per_epoch"):
        return round(float(training.get("num_train_epochs", 3)) * int(training["steps_per_epoch"]))
    return None


def scaled(training: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The same training with `steps` steps: stages, evaluations and limits in proportion.

    Where the steps followed from the rows, the proportion is not known: numbers of steps stay,
    as far as they are not more than all.
    """
    before = steps_of(training)
    ratio = steps / before if before else None
    found = dict(training)
    for key in COUNTED:
        if found.get(key):
            found[key] = resized(found[key], ratio, steps)
    if found.get("task_steps"):
        found["task_steps"] = {
            task: resized(most, ratio, steps) for task, most in found["task_steps"].items()
        }
    found |= warmup(found, ratio)
    if found.get("stages"):
        return found | {"max_steps": None, "stages": resized_stages(found["stages"], steps)}
    return found | {"max_steps": steps}


def resized(count: int, ratio: float | None, most: int) -> int:
    """Rounded up, so that there are never more evaluations than before."""
    return min(most, math.ceil(count * ratio) if ratio else count)


def warmup(part: Mapping[str, Any], ratio: float | None) -> dict[str, Any]:
    given = part.get("warmup_steps")
    return {"warmup_steps": max(1, round(given * ratio))} if ratio and given and given >= 1 else {}


def resized_stages(stages: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """In proportion, with `steps` in all; at least one each."""
    total = sum(stage["steps"] for stage in stages)
    found, before, done = [], 0, 0
    for later, stage in zip(reversed(range(len(stages))), stages, strict=True):
        before += stage["steps"]
        here = max(1, min(round(steps * before / total), steps - later) - done)
        done += here
        found.append({**stage, "steps": here, **warmup(stage, steps / total)})
    return found


def seldom(training: Mapping[str, Any], evaluations: int) -> dict[str, Any]:
    """The same training with at most so many evaluations, evenly spread; no more than it had."""
    steps = steps_of(training)
    if steps is None:
        return dict(training)
    now = training.get("eval_steps") or training.get("steps_per_epoch") or 1
    return {**training, "eval_steps": max(now, math.ceil(steps / evaluations))}
