"""Surveys made by hand for the papers' tables: standings with records, nothing trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.data.compose import sample_tasks
from mops.evaluate.compare import Difference
from mops.papers.paper import TASKS
from mops.record import Record, RunScores
from mops.reports.material import Material, TrialFiles
from mops.surveys.experiments import named_survey
from mops.surveys.results.results import CandidateResult, Results
from surveying import (
    Skill,
    made_costs,
    made_meta,
    made_record,
    made_standing,
    made_summary,
    plain_recipe,
)

METRICS = {"similarity": "pearson"}  # else accuracy
BASE, SMALL = {"depth": 12, "width": 768}, {"depth": 6, "width": 384}


def candidate(name: str, score: float = 0.6, **facts: Any) -> CandidateResult:
    """A candidate of the papers' three tasks; the plan is the name before a comma."""
    scores = dict.fromkeys(TASKS, score) | facts.pop("scores", {})
    costs = made_costs(**{"noise": 0.05} | facts.pop("costs", {}))
    plain = {"plan": name.partition(",")[0], "tasks": TASKS,
             "loss_weights": dict.fromkeys(TASKS, 1.0)}  # fmt: skip
    return made_standing(name, score, scores=scores, **plain | {"costs": costs} | facts)


def difference(
    mean: float, reach: float, is_significant: bool = False, seeds: int = 3
) -> Difference:
    return Difference(mean, reach / 2, mean - reach, mean + reach, 0.0, 0.0, is_significant, seeds)


def summary(*standings: CandidateResult, **facts: Any) -> Results:
    plain = {
        "tasks": {task: METRICS.get(task, "accuracy") for task in TASKS},
        "rows": {},
        "baseline": standings[0].name if standings else "none",
    }
    return made_summary(*standings, **plain | facts)


def material(
    *standings: CandidateResult, trials: Sequence[TrialFiles] = (), **facts: Any
) -> Material:
    return Material(Path("made"), None, summary(*standings, **facts), None, tuple(trials), ())


def trials_of(
    one: CandidateResult,
    by_seed: Sequence[Mapping[str, float]],
    recipe: Mapping[str, Any] | None = None,
    shape: Mapping[str, int] = BASE,
) -> list[TrialFiles]:
    """Its records, with these scores of tasks on the dev rows."""
    return [
        TrialFiles(one.name, facts, Path("made"), record(scores, recipe or {}, shape))
        for facts, scores in zip(one.trials, by_seed, strict=True)
    ]


def record(
    scores: Mapping[str, float], recipe: Mapping[str, Any], shape: Mapping[str, int]
) -> Record:
    tasks = {
        task: {"validation": {METRICS.get(task, "accuracy"): score, "matthews": score, "rows": 50}}
        for task, score in scores.items()
    }
    made = made_record(plain_recipe(), {}, Skill())
    seen = made.train_info.tasks["sentiment"]
    return replace(
        made,
        run_info=replace(made.run_info, recipe=dict(recipe), encoder="base"),
        train_info=replace(made.train_info, tasks=dict.fromkeys(scores, seen)),
        scores=RunScores(main={}, overall={}, tasks=tasks, untrained=()),
        meta_info=made_meta(encoder_shape=shape),
    )


# ------------------------------------------------------------------ named experiments


def four_tasks() -> Recipe:
    """The sample's tasks, and its sentiment once more as `movies`."""
    found = sample_tasks()
    return to_recipe({"tasks": {**found, "movies": copy.deepcopy(found["sentiment"])}})


def tied_survey(name: str) -> Material:
    """A named experiment in which all candidates are equal, with three seeds each."""
    data = four_tasks()
    joins = name == "single-task"
    tasks = {task: entry for task, entry in data.tasks.items() if joins or task != "movies"}
    survey = named_survey(name, data.model_copy(update={"tasks": tasks}))
    made = list(standings_of(survey.candidates()))
    files = [
        trial
        for one, recipe in made
        for trial in trials_of(one, [dict.fromkeys(tasks, 0.5)] * 3, recipe, SMALL)
    ]
    return material(*(one for one, _ in made), trials=files, baseline=survey.baseline)


def standings_of(candidates: Sequence[Any]) -> Iterator[tuple[CandidateResult, Mapping[str, Any]]]:
    for one in candidates:
        recipe, training = one.recipe.to_data(), one.recipe.training
        plan = recipe["plan"]["name"] if isinstance(recipe["plan"], dict) else recipe["plan"]
        learnt = tuple(training.train_tasks or one.recipe.tasks)
        weights = dict(training.loss_weights) or dict.fromkeys(learnt, 1.0)
        standing = candidate(
            one.name, 0.5, plan=plan, settings=one.settings, tasks=learnt,
            learning_rate=training.learning_rate, loss_weights=weights,
            scores=dict.fromkeys(learnt, 0.5),
        )  # fmt: skip
        yield standing, recipe
