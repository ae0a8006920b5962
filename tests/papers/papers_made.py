"""Made surveys for the papers' tables: candidates with results and records, nothing trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mops.config.recipe import Recipe, to_recipe
from mops.data.compose import tasks_in
from mops.evaluate.statistics import RowNoise
from mops.papers.paper import METRICS, TASKS, OurResults, PaperModel
from mops.record import Record, RunScores
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

BASE, SMALL = {"depth": 12, "width": 768}, {"depth": 6, "width": 384}
Trials = tuple[str, Record, Sequence[Mapping[str, Any]]]  # candidate, record, metrics by seed
Survey = tuple[Results, Mapping[str, Record]]


def candidate(name: str, score: float = 0.6, **facts: Any) -> CandidateResult:
    """A candidate of the papers' three tasks; the plan is the name before a comma."""
    scores = dict.fromkeys(TASKS, score) | facts.pop("scores", {})
    costs = made_costs(**{"train_seconds": 60.0, "noise": 0.05} | facts.pop("costs", {}))
    plain = {"plan": name.partition(",")[0], "tasks": TASKS,
             "loss_weights": dict.fromkeys(TASKS, 1.0)}  # fmt: skip
    return made_standing(name, score, scores=scores, **plain | {"costs": costs} | facts)


def trials_of(
    one: CandidateResult,
    by_seed: Sequence[Mapping[str, float]],
    recipe: Mapping[str, Any] | None = None,
    shape: Mapping[str, int] = BASE,
) -> list[Trials]:
    """A record of the candidate, and these scores of tasks on the dev rows, for each seed."""
    metrics = [
        {
            task: {"validation": {METRICS.get(task, "accuracy"): s, "matthews": s, "rows": 5000}}
            for task, s in scores.items()
        }
        for scores in by_seed
    ]
    made = made_record(plain_recipe(), {}, Skill())
    seen = made.train_info.tasks["sentiment"]
    record = replace(
        made,
        run_info=replace(made.run_info, recipe=dict(recipe or {}), encoder="base"),
        train_info=replace(made.train_info, tasks=dict.fromkeys(by_seed[0], seen)),
        scores=RunScores(main={}, overall={}, tasks=metrics[0], untrained=()),
        meta_info=made_meta(encoder_shape=shape),
    )
    return [(one.name, record, metrics)]


def material(*candidates: CandidateResult, trials: Sequence[Trials] = (), **facts: Any) -> Survey:
    """The arguments of compare_with: results and records."""
    metrics = {name: by_seed for name, _, by_seed in trials}
    filled = [
        replace(one, trials=tuple(
            replace(trial, metrics=of)
            for trial, of in zip(one.trials, metrics.get(one.name) or [{}] * 9, strict=False)
        ))
        for one in candidates
    ]  # fmt: skip
    tasks = [task for one in candidates for task in one.tasks] or TASKS
    plain = {
        "tasks": {task: METRICS.get(task, "accuracy") for task in tasks},
        "rows": {},
        "baseline": candidates[0].name if candidates else "none",
    }
    return made_summary(*filled, **plain | facts), {name: record for name, record, _ in trials}


def ours_of(
    *candidates: CandidateResult, models: Mapping[str, PaperModel] | None = None, **facts: Any
) -> OurResults:
    return OurResults(*material(*candidates, **facts), models or {})


def paired(ours: OurResults, correlation: float) -> OurResults:
    """The same survey, but the rows move all candidates together."""
    groups = []
    for group in ours.results.groups:
        shared = np.array(next(iter(group.rows.values())).shared)
        spread = np.sqrt(np.diag(shared))
        shared += correlation * (np.outer(spread, spread) - shared)
        noise = RowNoise(tuple(map(tuple, shared.tolist())), (0.0,) * len(shared))
        groups.append(replace(group, rows=dict.fromkeys(group.rows, noise)))
    return replace(ours, results=replace(ours.results, groups=tuple(groups)))


# ------------------------------------------------------------------ named experiments


def four_tasks() -> Recipe:
    """The sample's tasks, and its sentiment once more as `movies`."""
    tasks = tasks_in("sample")
    return to_recipe({"tasks": {**tasks, "movies": copy.deepcopy(tasks["sentiment"])}})


def tied_survey(name: str) -> Survey:
    """A named experiment in which all candidates are equal, with three seeds each."""
    data = four_tasks()
    tasks = {t: e for t, e in data.tasks.items() if name == "single-task" or t != "movies"}
    survey = named_survey(name, data.model_copy(update={"tasks": tasks}))
    made, trials = [], []
    for one in survey.candidates():
        recipe, training = one.recipe.to_data(), one.recipe.training
        plan = recipe["plan"]["name"] if isinstance(recipe["plan"], dict) else recipe["plan"]
        learnt = tuple(training.train_tasks or one.recipe.tasks)
        made.append(candidate(
            one.name, 0.5, plan=plan, settings=one.settings, tasks=learnt,
            learning_rate=training.learning_rate,
            loss_weights=dict(training.loss_weights) or dict.fromkeys(learnt, 1.0),
            scores=dict.fromkeys(learnt, 0.5),
        ))  # fmt: skip
        trials += trials_of(made[-1], [dict.fromkeys(tasks, 0.5)] * 3, recipe, SMALL)
    return material(*made, trials=trials, baseline=survey.baseline)
