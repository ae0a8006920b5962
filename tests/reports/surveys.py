"""Whole folders of surveys for the tests of reports: all that a survey leaves, nothing trained.

The data files are read as training would read them, so digests, notes and ids are true;
answers follow from how skilful a candidate is said to be.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from survey_data import write_data, write_encoder
from survey_trials import MACHINE, STEPS, Asked, Maker, World, measured

from mops.config.recipe import to_recipe
from mops.data.dataset import read_dataset
from mops.model.sources import read_shape
from mops.surveys.design import Survey, read_survey, to_survey
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.results import Results
from surveying import write_failure, write_summary

PLANS = ("shared", "separate", "hybrid:2", "frozen+shared")
LABELS = ("bad", "middling", "good")
SPLITS = {"report": ("report",), "test": ("report", "test")}
Names = Collection[tuple[str, int]]  # candidate, seed


def make_survey(
    folder: Path,
    plans: Sequence[Any] = PLANS,
    *,
    seeds: int | Sequence[int] = 2,
    rows: int = 40,  # of each task in each file that judges
    on: str = "report",
    axes: Mapping[str, Sequence[Any]] | None = None,  # what varies beside the plan
    rounds: Sequence[Mapping[str, Any]] = (),
    skills: Mapping[str, float] | None = None,  # plan -> share of right answers
    labels: Sequence[str] = LABELS,  # of sentiment
    split: float | None = None,  # validation out of the training rows, by this share
    broken: Names = (),  # their record.json is torn
    failed: Names = (),
    waiting: Names = (),
    meta: Mapping[str, Mapping[str, Any]] | None = None,  # plan -> what its records say of machines
    warnings: Mapping[str, tuple[str, ...]] | None = None,  # plan -> warnings of its trainings
) -> Path:
    """A judged survey in `folder`, its data in `folder/data`, its encoder in `folder/encoder`."""
    encoder = write_encoder(folder / "encoder")
    tasks = write_data(folder / "data", rows, labels, split)
    survey = design(folder, tasks, {"plan": list(plans), **(axes or {})}, seeds, on, rounds)
    candidates = survey.candidates()
    dataset = read_dataset(candidates[0].recipe)
    asked = [
        Asked(task, split, dataset.splits[name][split.replace("report", "validation")].rows)
        for name, task in dataset.tasks.items()
        for split in SPLITS[on]
    ]
    world = World(folder, dataset, read_shape(encoder), asked)
    costs, trials = {}, survey.trials()
    for number, candidate in enumerate(candidates):
        plan = candidate.name.partition(", ")[0]
        maker = Maker(
            world,
            world.layout(candidate.recipe),
            (skills or {}).get(plan, 0.85 - 0.3 * number / len(candidates)),
            number,
            {**MACHINE, **(meta or {}).get(plan, {})},
            (warnings or {}).get(plan, ()),
        )
        costs[candidate.name] = measured(maker.layout)
        for trial in (t for t in trials if t.candidate.name == candidate.name):
            if (candidate.name, trial.seed) in failed:
                write_failure(folder, trial, "the loss is not a number: lower the learning rate")
            elif (candidate.name, trial.seed) not in waiting:
                maker.write(trial)
    (folder / "survey.yaml").write_text(survey.to_yaml(), "utf-8")
    (folder / "costs.json").write_text(json.dumps(costs), "utf-8")
    for name, seed in broken:
        tear(folder, name, seed)
    judge(folder)
    return folder


def make_large_survey(folder: Path, **options: Any) -> Path:
    """Two hundred trials: five plans, five learning rates, eight seeds."""
    rates = {"training.learning_rate": [1e-5, 3e-5, 1e-4, 3e-4, 1e-3]}
    return make_survey(folder, (*PLANS, "late:SIS"), axes=rates, seeds=8, **options)


def tear(folder: Path, name: str, seed: int) -> Path:
    """The record of a trial as a full disk would leave it."""
    trials = read_survey(folder / "survey.yaml").trials()
    (trial,) = (t for t in trials if (t.candidate.name, t.seed) == (name, seed))
    path = folder / "trials" / trial.id / "record.json"
    text = path.read_text("utf-8")
    path.write_text(text[: len(text) // 2], "utf-8")
    return path


def judge(folder: Path) -> Results:
    """summary.json, .csv and .md of what lies in the folder now."""
    summary = judge_survey(read_survey(folder / "survey.yaml"), folder)
    write_summary(folder, summary)
    return summary


def design(
    folder: Path,
    tasks: Mapping[str, Any],
    axes: Mapping[str, Any],
    seeds: Any,
    on: str,
    rounds: Any,
) -> Survey:
    training = {"pair": "bi", "max_length": 64, "max_steps": STEPS, "steps_per_epoch": STEPS // 2}
    recipe = {"encoder": str(folder / "encoder"), "tasks": dict(tasks), "training": training}
    data = {"name": folder.name, "axes": dict(axes), "seeds": seeds, "on": on}
    data["rounds"] = list(rounds)
    return to_survey(data, to_recipe(recipe))
