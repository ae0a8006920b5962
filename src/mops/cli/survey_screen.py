"""A survey on the screen: its progress on stderr, its forecast and its results on stdout."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock

import click

from mops.cli.screen import ERR, OUT, ProgressBar, print_table, print_warnings, respond
from mops.surveys.budget import Estimator, Forecast
from mops.surveys.design import Survey
from mops.surveys.ledger import Job, Ledger, SurveyWatcher, Trial
from mops.surveys.results import tables
from mops.surveys.results.recommend import Decision
from mops.surveys.results.results import Results
from mops.tables import format_count, format_seconds


class SurveyScreen(ProgressBar, SurveyWatcher):
    """Progress in estimated seconds of all trials: a bar, or lines where there is no terminal."""

    def __init__(self, survey: Survey, folder: Path) -> None:
        super().__init__(survey.name)
        forecast = Estimator().survey(survey).candidates
        self.estimates = {trial.name: trial.seconds for trial in forecast}
        self.ledger, self.lock = Ledger(folder), Lock()
        self.open: list[str] = []
        self.seconds: dict[str, float] = {}
        self.done: dict[str, float] = {}  # first trial of a job -> estimated seconds done

    def planned(self, trials: Sequence[Trial]) -> None:
        """Another round begins."""
        own = {trial.id: self.estimates[trial.candidate.name] for trial in trials}
        self.seconds |= own
        self.open += own
        self.update(total=sum(self.seconds.values()))
        rest = format_seconds(sum(own.values()))
        self.note(f"{self.title}: {len(trials)} trainings, about {rest} of work")

    def started(self, job: Job) -> None:
        self.update(facts=job.name)

    def moved(self, job: Job, fraction: float, activity: str) -> None:
        with self.lock:
            seconds = sum(self.seconds[trial_id] for trial_id in job.ids)
            self.done[job.ids[0]] = max(fraction * seconds, self.done.get(job.ids[0], 0.0))
            self.update(completed=sum(self.done.values()), facts=f"{job.name}: {activity}")
            for trial in job.trials:
                if trial.id in self.open and not self.ledger.is_open(trial.id):
                    self.open.remove(trial.id)
                    self.print_event(f"{trial.name}: {self.ledger.state(trial.id)}, {self.left()}")

    def ended(self, job: Job) -> None:
        self.moved(job, 1.0, "done")

    def left(self) -> str:
        """Finished trials, and the time left at the speed so far."""
        count, done = len(self.seconds), sum(self.done.values())
        finished = f"{count - len(self.open)} of {count} trials done"
        if not self.open:
            return finished
        rest = (sum(self.seconds.values()) - done) * self.elapsed
        return (
            f"{finished}, about {format_seconds(rest / done) if done else 'an unknown time'} left"
        )

    def note(self, text: str) -> None:
        ERR.print(text, soft_wrap=True)

    def phase(self, name: str) -> None:
        self.update(facts=name)
        self.print_event(name)

    def print_event(self, text: str) -> None:
        if not ERR.is_terminal:
            self.note(f"[{format_seconds(self.elapsed)}] {text}")

    @property
    def elapsed(self) -> float:
        return self.bar.tasks[0].elapsed or 0.0


# ------------------------------------------------------------------ tables


def print_forecast(survey: Survey, as_json: bool) -> None:
    """The candidates with their sizes and the estimated time, before anything is trained."""
    forecast = Estimator().survey(survey)
    facts = {
        "survey": survey.to_data(),
        "candidates": [asdict(estimate) for estimate in forecast.candidates],
        "trials": [{"id": trial.id, "name": trial.name} for trial in survey.trials()],
        "encode_seconds": forecast.encode_seconds,
        "seconds": forecast.seconds,
    }
    respond(as_json, facts, show_forecast, survey, forecast)


def show_forecast(survey: Survey, forecast: Forecast) -> None:
    rows = [
        [trial.name, f"{trial.steps:,}", format_count(trial.parameters),
         format_count(trial.trained), format_seconds(trial.seconds)]
        for trial in forecast.candidates
    ]  # fmt: skip
    columns = ["candidate", "steps", "parameters", "trained", "a trial"]
    print_table(f"{survey.name}: {survey.source or 'a survey'}", columns, rows)
    once = forecast.encode_seconds
    click.echo(
        f"{len(survey.trials())} trials ({len(rows)} candidates x {len(survey.seeds)} seed(s)), "
        f"about {format_seconds(forecast.seconds)} one after the other"
        + (f", of which {format_seconds(once)} to encode texts once" if once else "")
        + f"; compared with {survey.baseline}; scored on {survey.on}"
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
    click.echo("\n".join(decision.lines) + "\n")
    for table in (tables.odds_table(decision), tables.front_table(decision)):
        if table.rows:
            print_table(table.title, table.columns, table.texts, table.note)
