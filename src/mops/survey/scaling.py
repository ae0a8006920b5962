"""Another number of steps for a training: what counts in steps is scaled with it. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

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
