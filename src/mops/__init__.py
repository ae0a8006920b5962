"""Several text tasks, one encoder, one small machine: which weights should the tasks share?

import mops

recipe = mops.recipe(data="sample", plan="hybrid:3", set={"training.max_steps": 60})
run = mops.train(recipe, out="runs/hybrid")
print(run.scores["overall"]["report"])
model = mops.load("runs/hybrid/model")
print(model.predict("sentiment", ["A lovely film.", "Not worth the ticket."]))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mops.data.compose import compose_recipe as recipe
    from mops.errors import MopsError
    from mops.fit.conflicts import conflicts
    from mops.fit.run import Run, train
    from mops.judge.conflicts import Conflicts
    from mops.many.run import train_many
    from mops.mlm.run import Pretrained, pretrain
    from mops.parsing import read_plan
    from mops.predict.predictor import Predictor, load
    from mops.recipes import Recipe
    from mops.records import Record, read_record
    from mops.sharing import SharingPlan
    from mops.tasks import Task

# public name -> where it lives; loaded when it is first used, so that `import mops` is quick
_HOMES = {
    "Conflicts": "mops.judge.conflicts:Conflicts",
    "MopsError": "mops.errors:MopsError",
    "Predictor": "mops.predict.predictor:Predictor",
    "Pretrained": "mops.mlm.run:Pretrained",
    "Recipe": "mops.recipes:Recipe",
    "Record": "mops.records:Record",
    "Run": "mops.fit.run:Run",
    "SharingPlan": "mops.sharing:SharingPlan",
    "Task": "mops.tasks:Task",
    "conflicts": "mops.fit.conflicts:conflicts",
    "load": "mops.predict.predictor:load",
    "pretrain": "mops.mlm.run:pretrain",
    "read_plan": "mops.parsing:read_plan",
    "read_record": "mops.records:read_record",
    "recipe": "mops.data.compose:compose_recipe",
    "train": "mops.fit.run:train",
    "train_many": "mops.many.run:train_many",
}

__all__ = [
    "Conflicts",
    "MopsError",
    "Predictor",
    "Pretrained",
    "Recipe",
    "Record",
    "Run",
    "SharingPlan",
    "Task",
    "conflicts",
    "load",
    "pretrain",
    "read_plan",
    "read_record",
    "recipe",
    "train",
    "train_many",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mops' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
