"""How a survey goes, on stderr: one bar for all of it, measured in estimated seconds."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from mops.cli.screen import ERR, ProgressBar, duration
from mops.surveys.budget import Estimator
from mops.surveys.ledger import Ledger

if TYPE_CHECKING:
    from mops.surveys.design import Survey
    from mops.surveys.local import Job


class SurveyScreen(ProgressBar):
    """A watcher of a survey; the remaining time follows from the work that is left."""

    def __init__(self, survey: Survey, folder: Path) -> None:
        forecast = Estimator().survey(survey)
        self.weights = {one.name: one.seconds for one in forecast.candidates}
        trials, ledger = survey.trials(), Ledger(folder)
        left = [trial for trial in trials if ledger.is_open(trial.id)]
        total = sum(self.weights[trial.candidate.name] for trial in left)
        super().__init__(survey.name, total or None)
        self.done: dict[str, float] = {}  # job -> estimated seconds
        self.guard = Lock()
        done = len(trials) - len(left)
        ERR.print(
            f"{survey.name}: {len(survey.candidates())} candidates x {len(survey.seeds)} seed(s), "
            f"{done} of {len(trials)} trials done, about {duration(total)} of work left",
            soft_wrap=True,
        )

    def weight(self, job: Job) -> float:
        return sum(self.weights[trial.candidate.name] for trial in job.trials)

    def started(self, job: Job) -> None:
        self.update(facts=job.name)

    def moved(self, job: Job, fraction: float, activity: str) -> None:
        with self.guard:
            now = fraction * self.weight(job)
            self.done[job.ids[0]] = max(now, self.done.get(job.ids[0], 0.0))
            self.update(completed=sum(self.done.values()), facts=f"{job.name}: {activity}")

    def ended(self, job: Job) -> None:
        self.moved(job, 1.0, "done")

    def note(self, text: str) -> None:
        ERR.print(text, soft_wrap=True)

    def phase(self, name: str) -> None:
        self.update(facts=f"costs: {name}")
