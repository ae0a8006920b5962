"""What hovering a candidate shows: its plan in a sentence and a picture, facts, recipe, command."""

from __future__ import annotations

import copy
import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mops.config.recipe import to_recipe
from mops.data.compose import set_key
from mops.errors import MopsError
from mops.plans.layout import Layout
from mops.reports.layouts import layouts_of
from mops.reports.material import Material, TrialFiles
from mops.reports.parts import Card
from mops.reports.plan_picture import draw_plan, sentence_of
from mops.surveys.results.cells import COSTS, cost_cell, estimate_cell
from mops.surveys.results.standings import Standing
from mops.yaml_io import format_yaml


def make_cards(material: Material) -> tuple[Card, ...]:
    """One per candidate, in the order of the standings."""
    layouts = layouts_of(material)
    base = complete(material.survey.recipe) if material.survey else {}
    return tuple(
        make_card(material, one, layouts.get(one.name), base) for one in material.summary.standings
    )


def make_card(
    material: Material, one: Standing, layout: Layout | None, base: Mapping[str, Any]
) -> Card:
    best = best_trial(material, one)
    return Card(
        candidate=one.name,
        plan=one.plan,
        says=sentence_of(layout) if layout else "",
        picture=draw_plan(layout, f"Plan {one.plan}") if layout else "",
        recipe=recipe_of(best, base) if best else "",
        command=command_of(material, best) if best else "",
        facts=tuple(facts_of(material, one)),
        warnings=tuple(dict.fromkeys(w for trial in one.trials for w in trial.warnings)),
    )


def best_trial(material: Material, one: Standing) -> TrialFiles | None:
    """By the rows that choose."""
    return max(
        material.of(one.name),
        key=lambda trial: -math.inf if trial.facts.selection is None else trial.facts.selection,
        default=None,
    )


def facts_of(material: Material, one: Standing) -> Iterator[tuple[str, str]]:
    """Scores, then costs, as the tables have them."""
    yield "overall", estimate_cell(one.overall).text
    for task in one.tasks:
        yield task, estimate_cell(one.scores.get(task)).text
    seeds = ", ".join(str(trial.seed) for trial in one.trials)
    yield "seeds", seeds
    for fact, (name, *_) in COSTS.items():
        words = cost_cell(one.costs, fact).text
        if words:
            yield name, words


# ------------------------------------------------------------------ how to repeat it


def command_of(material: Material, trial: TrialFiles) -> str:
    """Trains the best of its seeds once more."""
    recipe = shlex.quote(str(recipe_file(material, trial)))
    return f"mops train --config {recipe} --out {shlex.quote(f'runs/{trial.facts.id}-again')}"


def recipe_file(material: Material, trial: TrialFiles) -> Path:
    """A run's own file; a survey keeps one of every trial, also of those without a folder."""
    own = trial.folder / "recipe.yaml"
    kept = material.folder / "recipes" / f"{trial.facts.id}.yaml"
    return kept if material.survey and kept.is_file() else own


def recipe_of(trial: TrialFiles, base: Mapping[str, Any]) -> str:
    """What a candidate adds to the survey's recipe; of a single run all of its recipe."""
    return format_yaml(changed(trial.recipe.to_data(), base))


def complete(base: Mapping[str, Any]) -> Mapping[str, Any]:
    """With all its defaults, so that a default that was written down is no difference."""
    try:
        return to_recipe(copy.deepcopy(dict(base))).to_data()
    except MopsError:  # it needs what the survey sets
        return base


def changed(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The plan, and each key whose value is not that of the base."""
    found: dict[str, Any] = {"plan": own["plan"]}
    for key, value in differing(own, base):
        set_key(found, key, value)
    return found


def differing(
    own: Mapping[str, Any], base: Mapping[str, Any], before: str = ""
) -> Iterator[tuple[str, Any]]:
    for key, value in own.items():
        other = base.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from differing(value, other, f"{before}{key}.")
        elif plain(value) != plain(other):
            yield f"{before}{key}", value


def plain(value: Any) -> Any:
    """Labels that are written as numbers are the same as words."""
    return [str(item) for item in value] if isinstance(value, list) else value
