"""A survey from its design to its results: train, measure costs, compare, write."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from mops.errors import RecipeError
from mops.files import holds, write_text
from mops.surveys.benchmark import measure_costs
from mops.surveys.design import Survey, read_survey
from mops.surveys.executors import LocalExecutor, RayExecutor, plan_jobs
from mops.surveys.ledger import Ledger, SurveyWatcher, Trial
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.results import Results
from mops.surveys.results.tables import write_results
from mops.training.tracking import refuse_missing_trackers

FILE = "survey.yaml"
Executor = LocalExecutor | RayExecutor
MakeExecutor = Callable[[Ledger, SurveyWatcher], Executor]


def run_survey(
    survey: Survey,
    folder: Path,
    watcher: SurveyWatcher,
    *,
    executor: MakeExecutor = LocalExecutor,
    workers: int = 1,
    keep: str = "best",
) -> Results:
    """Train all open trials, measure the costs of the candidates, compare them, write the results.

    The folder may hold an earlier, smaller survey: finished trials are not trained again.
    """
    ledger = begin(survey, folder)
    train_round(survey.trials(), ledger, executor(ledger, watcher), workers)
    drop_models(survey, ledger, keep)
    measure_costs(survey.candidates(), folder, survey.baseline, watcher)
    watcher.phase("comparing candidates")
    results = judge_survey(survey, folder)
    write_results(results)
    return results


def begin(survey: Survey, folder: Path) -> Ledger:
    """Write the design into the folder; a survey that was killed in that write starts again."""
    holds(folder, FILE, kind="survey")
    for trial in survey.trials():
        refuse_missing_trackers(trial.recipe.training)
    write_text(folder / FILE, survey.to_yaml())
    return Ledger(folder)


def train_round(
    trials: Sequence[Trial], ledger: Ledger, executor: Executor, workers: int = 1
) -> None:
    """Train those of the trials that are open. A survey may consist of several rounds."""
    ledger.register(trials)
    left = [trial for trial in trials if ledger.is_open(trial.id)]
    executor.run(plan_jobs(left, workers))


def open_survey(folder: Path) -> Survey:
    """The design of the survey in a folder."""
    if not (folder / FILE).is_file():
        raise RecipeError(f"{folder} holds no survey: there is no {FILE}")
    return read_survey(folder / FILE)


def drop_models(survey: Survey, ledger: Ledger, keep: str) -> None:
    """Delete models that are not kept; records and predictions stay."""
    for candidate in survey.candidates():
        ids = [candidate.trial(seed).id for seed in survey.seeds]
        done = [trial_id for trial_id in ids if ledger.is_finished(trial_id)]
        best = max(done, key=lambda of: ledger.record(of).train_info.best_score or 0, default="")
        kept = {"best": [best], "all": done, "none": []}[keep]
        for trial_id in done:
            shutil.rmtree(ledger.run_folder(trial_id) / "state", ignore_errors=True)
            if trial_id not in kept:
                shutil.rmtree(ledger.run_folder(trial_id) / "model", ignore_errors=True)
