"""Recipes of two, three and four tasks, and small surveys of them; nothing here needs torch."""

from __future__ import annotations

import copy
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.data.compose import compose_recipe, tasks_in
from mops.surveys.design import Survey, to_survey

RATES = "training.learning_rate"
BOTH = "training.learning_rate+training.head_learning_rate"
STAGES = [
    {"steps": 300, "frozen": True},
    {"steps": 100, "warmup_steps": 20, "learning_rate": 1e-5},
]


def recipe(*tasks: str, **training: Any) -> Recipe:
    """The sample's tasks; `movies` is its sentiment once more, under another name."""
    found = tasks_in("sample")
    found["movies"] = copy.deepcopy(found["sentiment"])
    names = tasks or ("sentiment", "paraphrase", "similarity")
    data = {"tasks": {name: found[name] for name in names}, "training": training}
    return to_recipe(data)


def survey(axes: dict[str, Any] | None = None, **fields: Any) -> Survey:
    """One block of plans on the sample."""
    base = fields.pop("recipe", None) or compose_recipe(data="sample")
    data = {"name": "mine", "axes": axes or {"plan": ["shared", "separate"]}, **fields}
    if "blocks" in fields:
        del data["axes"]
    return to_survey(data, base)


def names(of: Survey) -> list[str]:
    return [candidate.name for candidate in of.candidates()]
