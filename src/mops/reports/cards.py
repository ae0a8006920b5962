"""Cards: a candidate's plan in a sentence and a figure, its results, recipe and command."""

import copy
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    """Everything that the page knows about one candidate; hovering over its name shows it."""

    number: int  # its place in the results
    candidate: str
    plan: str
    is_best: bool  # whether it may be the best
    tags: tuple[str, ...]  # beside its name in the table of plans
    picture: Picture | None  # None where the record does not tell the encoder's shape
    facts: tuple[tuple[str, str], ...]  # name, value
    warnings: tuple[str, ...]
    recipe: str = ""  # YAML: what differs from the survey's recipe
    command: str = ""  # repeats its best training

    @property
    def family(self) -> str:
        return self.plan.partition(":")[0]


def make_cards(source: Source) -> tuple[Card, ...]:
    """One per candidate, in the order of the results; equal plans share one figure."""
    pictures: dict[str, Picture] = {}
    base = complete(source.survey.recipe) if source.survey else {}
    cards = []
    for number, one in enumerate(source.results.candidates):
        if one.name in source.layouts and one.plan not in pictures:
            pictures[one.plan] = draw_plan(source.layouts[one.name], f"plan-{number}")
        tags = [role for role, name in source.roles.items() if name == one.name and source.survey]
        if one.missing_seeds:
            planned = len(one.trials) + len(one.missing_seeds)
            tags.append(f"{len(one.trials)} of {planned} seeds")
        warnings = tuple(dict.fromkeys(w for trial in one.trials for w in trial.warnings))
        cards.append(Card(
            number, one.name, one.plan, one.is_best, tuple(tags), pictures.get(one.plan),
            tuple(list_facts(one).items()), warnings, *repeat_best(source, one.name, base),
        ))  # fmt: skip
    return tuple(cards)


def list_facts(one: CandidateResult) -> dict[str, str]:
    """Scores, seeds and the costs that are known."""
    scores = {key: estimate_cell(one.scores.get(key)).text for key in ("overall", *one.tasks)}
    costs = {
        name: cost_cell(key, getattr(one.costs, key)).text for key, (name, *_) in COSTS.items()
    }
    return {
        **{key: to_minus(text) for key, text in scores.items()},
        "seeds": ", ".join(str(trial.seed) for trial in one.trials),
        **{name: text for name, text in costs.items() if text},
    }


def repeat_best(source: Source, candidate: str, base: Mapping[str, Any]) -> tuple[str, str]:
    """The recipe and the command of the trial with the best validation score."""
    trials = source.trials_of(candidate)
    if not trials:
        return "", ""
    best = max(trials, key=lambda trial: trial.result.train_info.best_score or float("-inf"))
    recipe = best.recipe.to_data()
    changed = format_yaml({"plan": recipe["plan"], **differences(recipe, base)})
    # A survey keeps the recipe of every trial, also of those without a folder.
    kept = source.folder / "recipes" / f"{best.result.id}.yaml"
    config = str(kept if source.survey and kept.is_file() else best.folder / "recipe.yaml")
    words = ("mops", "train", "--config", config, "--out", f"runs/{best.result.id}-again")
    return changed, shlex.join(words)


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
