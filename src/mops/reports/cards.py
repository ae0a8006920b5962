"""Cards: a candidate's plan in a sentence and a figure, its results, recipe and command."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mops.config.recipe import to_recipe
from mops.errors import MopsError
from mops.reports.figures.style import Picture
from mops.reports.plan_figure import draw_plan
from mops.reports.source import Source
from mops.surveys.results.results import CandidateResult
from mops.surveys.results.tables import COSTS, cost_cell, estimate_cell
from mops.tables import to_minus
from mops.yaml_io import format_yaml


@dataclass(frozen=True)
class Card:
    """Everything about one candidate; hovering over its name shows it."""

    candidate: str
    plan: str
    picture: Picture | None  # None where the record does not tell the encoder's shape
    recipe: str = ""  # YAML: what differs from the survey's recipe
    command: str = ""  # repeats its best training
    facts: tuple[tuple[str, str], ...] = ()  # name, value
    warnings: tuple[str, ...] = ()


def make_cards(source: Source) -> tuple[Card, ...]:
    """One per candidate, in the order of the results; equal plans share one figure."""
    pictures: dict[str, Picture] = {}
    for place, one in enumerate(source.results.candidates):
        if one.name in source.layouts and one.plan not in pictures:
            pictures[one.plan] = draw_plan(source.layouts[one.name], f"plan-{place}")
    base = complete(source.survey.recipe) if source.survey else {}
    return tuple(
        make_card(source, one, pictures.get(one.plan), base) for one in source.results.candidates
    )


def make_card(
    source: Source, one: CandidateResult, picture: Picture | None, base: Mapping[str, Any]
) -> Card:
    """The recipe and the command are those of the trial with the best selection score."""
    texts = {key: estimate_cell(one.scores.get(key)).text for key in ("overall", *one.tasks)}
    texts = {key: to_minus(text) for key, text in texts.items()}
    texts["seeds"] = ", ".join(str(trial.seed) for trial in one.trials)
    costs = {
        name: cost_cell(key, getattr(one.costs, key)).text for key, (name, *_) in COSTS.items()
    }
    facts = (*texts.items(), *((name, text) for name, text in costs.items() if text))
    warnings = tuple(dict.fromkeys(w for trial in one.trials for w in trial.warnings))
    trials = source.trials_of(one.name)
    if not trials:
        return Card(one.name, one.plan, picture, facts=facts, warnings=warnings)
    selections = [trial.result.selection for trial in trials]
    best = trials[int(np.argmax([-np.inf if score is None else score for score in selections]))]
    recipe = best.recipe.to_data()
    changed = format_yaml({"plan": recipe["plan"], **differences(recipe, base)})
    # A survey keeps the recipe of every trial, also of those without a folder.
    kept = source.folder / "recipes" / f"{best.result.id}.yaml"
    config = str(kept if source.survey and kept.is_file() else best.folder / "recipe.yaml")
    words = ("mops", "train", "--config", config, "--out", f"runs/{best.result.id}-again")
    return Card(one.name, one.plan, picture, changed, shlex.join(words), facts, warnings)


def complete(base: Mapping[str, Any]) -> Mapping[str, Any]:
    """A survey's recipe with all defaults, so that a written default is no difference."""
    try:
        return to_recipe(copy.deepcopy(dict(base))).to_data()
    except MopsError:  # it lacks a key that the survey varies
        return base


def differences(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Each key whose value differs from the base."""
    changed: dict[str, Any] = {}
    for key, value in own.items():
        other = base.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            changed |= {key: nested} if (nested := differences(value, other)) else {}
        elif as_texts(value) != as_texts(other):
            changed[key] = value
    return changed


def as_texts(value: Any) -> Any:
    """Labels written as numbers equal labels written as texts."""
    return [str(item) for item in value] if isinstance(value, list) else value
