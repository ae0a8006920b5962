"""A survey on the screen: its progress on stderr, its forecast and its results on stdout."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from threading import Lock

from mops.cli.main import echo_json
from mops.cli.screen import ERR, OUT, ProgressBar, print_table, print_warnings
from mops.surveys.budget import Estimator
from mops.surveys.design import Survey
from mops.surveys.ledger import Job, Ledger, SurveyWatcher
from mops.surveys.results import tables
from mops.surveys.results.recommend import Decision
from mops.surveys.results.results import Results
from mops.units import format_count, format_seconds


class JobScreen(ProgressBar, SurveyWatcher):
    """A survey watcher: a progress bar, or a line per event where there is no terminal."""

    def __init__(self, title: str, total: float | None = None) -> None:
        super().__init__(title, total)
        self.start = time.monotonic()

    def started(self, job: Job) -> None:
        self.update(facts=job.name)

    def moved(self, job: Job, fraction: float, activity: str) -> None:
        self.update(facts=f"{job.name}: {activity}")

    def ended(self, job: Job) -> None:
        self.moved(job, 1.0, "done")

    def note(self, text: str) -> None:
        ERR.print(text, soft_wrap=True)

    def phase(self, name: str) -> None:
        self.update(facts=name)
        self.print_event(name)

    def print_event(self, text: str) -> None:
        if not ERR.is_terminal:
            ERR.print(f"[{format_seconds(time.monotonic() - self.start)}] {text}", soft_wrap=True)


class SurveyScreen(JobScreen):
    """Measures progress in estimated seconds of all trials."""

    def __init__(self, survey: Survey, folder: Path) -> None:
        forecast = Estimator().survey(survey)
        self.seconds = {trial.name: trial.seconds for trial in forecast.candidates}
        self.ledger, self.trials = Ledger(folder), survey.trials()
        self.open = [trial.id for trial in self.trials if self.ledger.is_open(trial.id)]
        left = [trial.candidate.name for trial in self.trials if trial.id in self.open]
        self.total = sum(self.seconds[name] for name in left)
        super().__init__(survey.name, self.total or None)
        self.done: dict[str, float] = {}  # first trial of a job -> estimated seconds done
        self.lock = Lock()
        ERR.print(
            f"{survey.name}: {len(survey.candidates())} candidates x {len(survey.seeds)} seed(s), "
            f"{len(self.trials) - len(self.open)} of {len(self.trials)} trials done, about "
            f"{format_seconds(self.total)} of work left",
            soft_wrap=True,
        )

    def moved(self, job: Job, fraction: float, activity: str) -> None:
        with self.lock:
            seconds = sum(self.seconds[trial.candidate.name] for trial in job.trials)
            self.done[job.ids[0]] = max(fraction * seconds, self.done.get(job.ids[0], 0.0))
            self.update(completed=sum(self.done.values()), facts=f"{job.name}: {activity}")
            for trial in job.trials:
                if trial.id in self.open and not self.ledger.is_open(trial.id):
                    self.open.remove(trial.id)
                    self.print_event(f"{trial.name}: {self.ledger.state(trial.id)}, {self.left()}")

    def left(self) -> str:
        """Finished trials, and the time left at the speed so far."""
        done, elapsed = sum(self.done.values()), time.monotonic() - self.start
        rest = format_seconds((self.total - done) * elapsed / done) if done else "an unknown time"
        finished = f"{len(self.trials) - len(self.open)} of {len(self.trials)} trials done"
        return finished + (f", about {rest} left" if self.open else "")


# ------------------------------------------------------------------ tables


def print_forecast(survey: Survey, as_json: bool) -> None:
    """The candidates with their sizes and the estimated time, before anything is trained."""
    forecast, trials = Estimator().survey(survey), survey.trials()
    if as_json:
        echo_json(
            {
                "survey": survey.to_data(),
                "candidates": [asdict(trial) for trial in forecast.candidates],
                "trials": [{"id": trial.id, "name": trial.name} for trial in trials],
                "encode_seconds": forecast.encode_seconds,
                "seconds": forecast.seconds,
            }
        )
        return
    rows = [
        [one.name, f"{one.steps:,}", format_count(one.parameters), format_count(one.trained),
         format_seconds(one.seconds)]
        for one in forecast.candidates
    ]  # fmt: skip
    columns = ["candidate", "steps", "parameters", "trained", "a trial"]
    print_table(f"{survey.name}: {survey.source or 'a survey'}", columns, rows)
    once = forecast.encode_seconds
    OUT.print(
        f"{len(trials)} trials ({len(rows)} candidates x {len(survey.seeds)} seed(s)), about "
        f"{format_seconds(forecast.seconds)} one after the other"
        + (f", of which {format_seconds(once)} to encode texts once" if once else "")
        + f"; compared with {survey.baseline}; scored on {survey.on}",
        soft_wrap=True,
    )


def print_summary(results: Results) -> None:
    """Scores, differences, gains and costs so far, and the trials that are missing."""
    for title, table in {
        f"{results.name}: scores": tables.score_table(results),
        "differences": tables.difference_table(results),
        "gain of each task over a model of its own": tables.gain_table(results),
        "costs": tables.cost_table(results),
        "trials without a result": tables.missing_table(results),
    }.items():
        if table.rows:
            print_table(title, table.columns, table.texts, table.note)
            OUT.print()
    if results.candidates:
        OUT.print(tables.describe_rows(results))
    print_warnings([caveat.text for caveat in results.caveats])


def print_decision(decision: Decision) -> None:
    for line in decision.lines:
        OUT.print(line, soft_wrap=True)
    OUT.print()
    front = tables.front_table(decision)
    print_table(front.title, front.columns, front.texts, front.note)
