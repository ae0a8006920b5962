"""Several text tasks, one encoder, one small machine: which weights should the tasks share?

import mops

recipe = mops.recipe(data="sample", plan="hybrid:3", set={"training.max_steps": 60})
run = mops.train(recipe, out="runs/hybrid")
print(run.scores.overall["report"])
model = mops.load("runs/hybrid/model")
print(model.predict("sentiment", ["A lovely film.", "Not worth the ticket."]))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mops.api.check import Checked, check
    from mops.api.results import SurveyRun, WrittenReport, recommend, report
    from mops.api.survey import survey
    from mops.api.training import train
    from mops.config.recipe import Recipe
    from mops.data.compose import compose_recipe as recipe
    from mops.errors import MopsError
    from mops.evaluate.conflicts import Conflicts
    from mops.plans.catalog import read_plan
    from mops.plans.rows import SharingPlan
    from mops.predict.bundle import Predictor, load
    from mops.record import Record, read_record
    from mops.surveys.results.recommend import Decision
    from mops.surveys.results.results import Results
    from mops.tasks import Task
    from mops.training.batched import train_many
    from mops.training.conflicts import conflicts
    from mops.training.pretrain import Pretrained, pretrain
    from mops.training.run import Run

__version__ = "0.1.0"

# public name -> module:attribute, imported at first use, so that `import mops` is quick
_HOMES = {
    "Checked": "mops.api.check:Checked",
    "Conflicts": "mops.evaluate.conflicts:Conflicts",
    "Decision": "mops.surveys.results.recommend:Decision",
    "MopsError": "mops.errors:MopsError",
    "Predictor": "mops.predict.bundle:Predictor",
    "Pretrained": "mops.training.pretrain:Pretrained",
    "Recipe": "mops.config.recipe:Recipe",
    "Record": "mops.record:Record",
    "Results": "mops.surveys.results.results:Results",
    "Run": "mops.training.run:Run",
    "SharingPlan": "mops.plans.rows:SharingPlan",
    "SurveyRun": "mops.api.results:SurveyRun",
    "Task": "mops.tasks:Task",
    "WrittenReport": "mops.api.results:WrittenReport",
    "check": "mops.api.check:check",
    "conflicts": "mops.training.conflicts:conflicts",
    "load": "mops.predict.bundle:load",
    "pretrain": "mops.training.pretrain:pretrain",
    "read_plan": "mops.plans.catalog:read_plan",
    "read_record": "mops.record:read_record",
    "recipe": "mops.data.compose:compose_recipe",
    "recommend": "mops.api.results:recommend",
    "report": "mops.api.results:report",
    "survey": "mops.api.survey:survey",
    "train": "mops.api.training:train",
    "train_many": "mops.training.batched:train_many",
}

__all__ = [
    "Checked", "Conflicts", "Decision", "MopsError", "Predictor", "Pretrained", "Recipe",
    "Record", "Results", "Run", "SharingPlan", "SurveyRun", "Task", "WrittenReport", "check",
    "conflicts", "load", "pretrain", "read_plan", "read_record", "recipe", "recommend",
    "report", "survey", "train", "train_many",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mops' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
