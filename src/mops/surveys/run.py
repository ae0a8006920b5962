"""A survey from its design to its judged result."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from mops.errors import RecipeError
from mops.files import write_text
from mops.surveys.benchmark.timing import measure_costs
from mops.surveys.design import Survey, read_survey
from mops.surveys.ledger import Ledger
from mops.surveys.local import Job, Local, SurveyWatcher, plan_jobs
from mops.surveys.results.standings import Summary
from mops.surveys.results.summary import summarise
from mops.surveys.results.summary_files import write_summary
from mops.training.tracking import refuse_missing_trackers

FILE = "survey.yaml"
KEEP = ("best", "all", "none")  # models: one per candidate, of its best seed; all; none
Engine = Callable[[Ledger, Sequence[Job], SurveyWatcher], None]


def run_survey(
    survey: Survey,
    folder: Path,
    watcher: SurveyWatcher,
    *,
    engine: Engine | None = None,
    workers: int = 1,
    keep: str = "best",
) -> Summary:
    """Train what is not trained yet, measure what it costs, judge it, write it down.

    A folder may hold an earlier, smaller survey: what is finished there is not trained again.
    """
    ledger = begin(survey, folder)
    left = [trial for trial in survey.trials() if ledger.is_open(trial.id)]
    (engine or run_local(workers))(ledger, plan_jobs(left, workers), watcher)
    tidy(survey, ledger, keep)
    measure_costs(survey.candidates(), folder, survey.baseline, watcher)
    summary = summarise(survey, folder)
    write_summary(folder, summary)
    return summary


def run_local(workers: int) -> Engine:
    def run(ledger: Ledger, jobs: Sequence[Job], watcher: SurveyWatcher) -> None:
        Local(ledger, watcher, workers).run(jobs)

    return run


def begin(survey: Survey, folder: Path) -> Ledger:
    """The folder with the design written down."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not holds(folder)):
        raise RecipeError(
            f"{folder} is not empty and holds no survey; name a new folder with --out"
        )
    ledger, trials = Ledger(folder), survey.trials()
    for trial in trials:
        refuse_missing_trackers(trial.recipe.training)
    write_text(folder / FILE, survey.to_yaml())
    ledger.enter(trials)
    return ledger


def holds(folder: Path) -> bool:
    return (folder / FILE).is_file()


def open_survey(folder: Path) -> Survey:
    """The design of the survey in a folder."""
    if not holds(folder):
        raise RecipeError(f"{folder} holds no survey: there is no {FILE}")
    return read_survey(folder / FILE)


def tidy(survey: Survey, ledger: Ledger, keep: str) -> None:
    """Drop the weights of models that nobody will ask for; records and predictions stay."""
    for candidate in survey.candidates():
        ids = [candidate.trial(seed).id for seed in survey.seeds]
        done = [trial_id for trial_id in ids if ledger.is_finished(trial_id)]
        best = max(done, key=lambda of: ledger.record(of).train_info.best_score or 0, default="")
        kept = {"best": [best], "all": done, "none": []}[keep]
        for trial_id in done:
            shutil.rmtree(ledger.run_folder(trial_id) / "state", ignore_errors=True)
            if trial_id not in kept:
                ledger.drop_model(trial_id)
