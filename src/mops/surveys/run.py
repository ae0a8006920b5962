"""A survey from its design to its results: train, measure costs, compare, write."""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mops.errors import RecipeError
from mops.evaluate.joint import Joint
from mops.files import holds, write_text
from mops.surveys.benchmark import measure_costs
from mops.surveys.budget import Estimator
from mops.surveys.design import Survey, read_survey
from mops.surveys.executors import LocalExecutor, RayExecutor, plan_jobs
from mops.surveys.ledger import Ledger, SurveyWatcher, Trial
from mops.surveys.race import Standing, next_round
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import WORTH, recommend
from mops.surveys.results.results import Results
from mops.training.tracking import refuse_missing_trackers

FILE = "survey.yaml"
RESERVE = 0.1  # of the time of a race, for the cost pass
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
    if survey.budget:
        survey = run_race(survey, ledger, executor(ledger, watcher), watcher, workers)
    else:
        train_round(survey.trials(), ledger, executor(ledger, watcher), workers)
    drop_models(survey, ledger, keep)
    finished = {t.candidate.name for t in survey.trials() if ledger.is_finished(t.id)}
    measured = [c for c in survey.candidates() if c.name in {*finished, survey.baseline}]
    measure_costs(measured, folder, survey.baseline, watcher)
    watcher.phase("comparing candidates")
    results = judge_survey(survey, folder)
    results.write()
    return results


def run_race(
    survey: Survey, ledger: Ledger, executor: Executor, watcher: SurveyWatcher, workers: int
) -> Survey:
    """Train round by round until the choice is settled or the time is spent."""
    estimates = estimate_trials(survey)
    while True:
        if survey.rounds:
            entry = survey.rounds[-1]
            watcher.phase(f"round {len(survey.rounds)}: {entry.why}")
            train_round(survey.trials_of(entry), ledger, executor, workers, entry.until)
        results = judge_survey(survey, ledger.folder)
        now = race_standing(survey, ledger, results, estimates, workers)

        def choose(_: Joint, results: Results = results) -> str:
            return str(recommend(results).candidate)

        following = next_round(now, choose, WORTH)
        if following is None:
            return survey
        survey = survey.with_round(following)
        write_text(ledger.folder / FILE, survey.to_yaml())


def race_standing(
    survey: Survey,
    ledger: Ledger,
    results: Results,
    estimates: Mapping[str, float],
    workers: int,
) -> Standing:
    """What the finished and paused trainings say; estimated times are scaled by measured ones."""
    assert survey.budget is not None
    spent, expected = 0.0, 0.0
    scores: dict[str, float] = {}
    for trial in survey.trials():
        name, pause = trial.candidate.name, ledger.pause(trial.id)
        fraction = 1.0 if ledger.is_finished(trial.id) else pause["reached"]
        scores[name] = max(scores.get(name, -math.inf), pause.get("score") or -math.inf)
        spent += fraction and race_seconds(trial, ledger)
        expected += fraction * estimates[name]
    ratio = spent / expected if spent and expected else workers  # which share the cores
    return Standing(
        costs={name: ratio * seconds for name, seconds in estimates.items()},
        left=(1 - RESERVE) * survey.budget * workers - spent,
        baseline=survey.baseline,
        rounds=survey.rounds,
        scores=scores,
        joint=results.joint()["overall"] if results.groups else None,
    )


def estimate_trials(survey: Survey) -> dict[str, float]:
    """Candidate -> seconds of one training."""
    return {trial.name: trial.seconds for trial in Estimator().survey(survey).candidates}


def race_seconds(trial: Trial, ledger: Ledger) -> float:
    """Wall time that a training has taken so far."""
    if ledger.is_finished(trial.id):
        return ledger.record(trial.id).train_info.run_seconds
    return float(ledger.pause(trial.id).get("seconds") or 0.0)


def begin(survey: Survey, folder: Path) -> Ledger:
    """Write the design into the folder; a survey that was killed in that write starts again."""
    holds(folder, FILE, kind="survey")
    for candidate in survey.candidates():
        refuse_missing_trackers(candidate.recipe.training)
    write_text(folder / FILE, survey.to_yaml())
    return Ledger(folder)


def continued(survey: Survey, folder: Path) -> Survey:
    """The survey with the steps and rounds of the same one in the folder, if it was begun there.

    A budget in time becomes a number of steps that depends on the speed of the machine at that
    moment; a survey that goes on keeps the number that it began with.
    """
    if not (folder / FILE).is_file():
        return survey
    stored = open_survey(folder)
    chosen = {"steps", "evaluations", "rounds", "budget"}
    if stored.model_dump(exclude=chosen) != survey.model_dump(exclude=chosen):
        return survey
    return stored.model_copy(update={"budget": survey.budget})


def train_round(
    trials: Sequence[Trial],
    ledger: Ledger,
    executor: Executor,
    workers: int = 1,
    until: float = 1.0,
) -> None:
    """Train those of the trials that are open, to a fraction of their steps.

    A survey may consist of several rounds.
    """
    ledger.register(trials)
    for trial in trials:
        if ledger.pause(trial.id)["until"] != until:
            ledger.note_pause(trial.id, until=until)
    left = [trial for trial in trials if ledger.is_open(trial.id)]
    executor.watcher.planned(left)
    executor.run(plan_jobs(left, workers))


def open_survey(folder: Path) -> Survey:
    """The design of the survey in a folder."""
    if not (folder / FILE).is_file():
        raise RecipeError(f"{folder} holds no survey: there is no {FILE}")
    return read_survey(folder / FILE)


def drop_models(survey: Survey, ledger: Ledger, keep: str) -> None:
    """Delete models that are not kept; records and predictions stay."""
    for candidate in survey.candidates():
        own = (t.id for t in survey.trials() if t.candidate.name == candidate.name)
        done = [trial_id for trial_id in own if ledger.is_finished(trial_id)]
        best = max(done, key=lambda of: ledger.record(of).train_info.best_score or 0, default="")
        kept = {"best": [best], "all": done, "none": []}[keep]
        for trial_id in done:
            shutil.rmtree(ledger.run_folder(trial_id) / "state", ignore_errors=True)
            if trial_id not in kept:
                shutil.rmtree(ledger.run_folder(trial_id) / "model", ignore_errors=True)
