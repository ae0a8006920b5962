"""What a person sees: progress on stderr, tables on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from mops.record import RunScores, TaskBudget
from mops.surveys.budget import Estimator
from mops.surveys.design import Survey
from mops.surveys.ledger import Job, Ledger, SurveyWatcher, Trial
from mops.surveys.results import tables
from mops.surveys.results.recommend import Decision, recommend
from mops.surveys.results.results import Results
from mops.tables import format_seconds
from mops.training.tracking import Watcher

if TYPE_CHECKING:
    from mops.training.step import StepFacts

WIDE = 118  # columns where there is no terminal to ask
OUT = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)
ERR = Console(stderr=True, highlight=False, markup=False)
SPLITS = ("report", "validation", "test", "train")
OVERALL = "step {step}: overall {overall:.4f} on validation"  # an evaluation of a training
PERPLEXITY = "step {step}: held-out perplexity {perplexity:.2f}"  # of a pretraining


class ProgressBar(Progress):
    """A bar on stderr; silent when stderr is no terminal."""

    def __init__(self, title: str, total: float | None = None) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), "{task.fields[facts]}")
        quiet = not ERR.is_terminal
        super().__init__("{task.description}", *columns, console=ERR, transient=True, disable=quiet)
        self.title, self.row = title, self.add_task(title, total=total, facts="")

    def show(self, **changes: Any) -> None:
        self.update(self.row, **changes)


class TrainingScreen(ProgressBar, Watcher):
    """The progress of a training or a pretraining."""

    def planned(self, tasks: Mapping[str, TaskBudget], warnings: Sequence[str]) -> None:
        for name, share in tasks.items():
            ERR.print(
                f"{self.title}: {name}: planned batches {share.batches:,}, "
                f"rows {share.examples:,}, passes {share.passes:.2f}"
            )
        print_warnings(warnings)

    def begin(self, total: int, done: int) -> None:
        self.show(total=total, completed=done, description=self.title)
        if done:
            ERR.print(f"{self.title}: resuming after step {done} of {total}")

    def step(self, step: int, facts: StepFacts) -> None:
        losses = "  ".join(f"{task} {loss:.3f}" for task, loss in facts.losses.items())
        self.show(completed=step, facts=losses)

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        form = PERPLEXITY if "perplexity" in scores else OVERALL
        mark = " (best so far)" if is_best else ""
        ERR.print(f"{self.title}: {form.format_map({**scores, 'step': step})}{mark}")

    def phase(self, name: str) -> None:
        self.show(description=f"{self.title}: {name}")


class SurveyScreen(ProgressBar, SurveyWatcher):
    """Progress in estimated seconds of all trials: a bar, or lines where there is no terminal."""

    def __init__(self, survey: Survey, folder: Path) -> None:
        super().__init__(survey.name)
        estimator = Estimator()
        forecast = estimator.survey(survey).candidates
        self.estimates = {trial.name: trial.seconds for trial in forecast}
        doubts = chain.from_iterable(each.doubts for each in estimator.datasets.values())
        print_warnings(list(dict.fromkeys(doubts)))
        self.ledger, self.lock = Ledger(folder), Lock()
        self.closed: set[str] = set()  # trials that ended, or that pause until the next round
        self.seconds: dict[str, float] = {}  # estimated, by trial
        self.done: dict[str, float] = {}  # first trial of a job -> estimated seconds done

    def planned(self, trials: Sequence[Trial]) -> None:
        own = {trial.id: self.estimates[trial.candidate.name] for trial in trials}
        self.seconds |= own
        self.closed -= own.keys()
        self.done = {first: seconds for first, seconds in self.done.items() if first not in own}
        self.show(total=sum(self.seconds.values()))
        rest = format_seconds(sum(own.values()))
        self.note(f"{self.title}: {len(trials)} trainings, about {rest} of work")

    def started(self, job: Job) -> None:
        self.show(facts=job.name)

    def moved(self, job: Job, fraction: float, activity: str) -> None:
        with self.lock:
            seconds = sum(self.seconds[trial_id] for trial_id in job.ids)
            self.done[job.ids[0]] = max(fraction * seconds, self.done.get(job.ids[0], 0.0))
            self.show(completed=sum(self.done.values()), facts=f"{job.name}: {activity}")

    def ended(self, job: Job) -> None:
        """Say which trials ended, and the time left at the speed so far."""
        self.moved(job, 1.0, "done")
        total, done = sum(self.seconds.values()), sum(self.done.values())
        rest = (total - done) * self.elapsed / done
        left = f", about {format_seconds(rest)} left" if rest else ""
        for trial in job.trials:
            self.closed.add(trial.id)
            count = f"{len(self.closed)} of {len(self.seconds)} trials done"
            state = self.ledger.state(trial.id)
            self.print_event(f"{trial.name}: {state}, {count}{left}")

    def note(self, text: str) -> None:
        ERR.print(text, soft_wrap=True)

    def phase(self, name: str) -> None:
        self.show(facts=name)
        self.print_event(name)

    def print_event(self, text: str) -> None:
        if not ERR.is_terminal:
            self.note(f"[{format_seconds(self.elapsed)}] {text}")

    @property
    def elapsed(self) -> float:
        return self.tasks[0].elapsed or 0.0


def print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        ERR.print(f"warning: {warning}", style="yellow", soft_wrap=True)


def respond(as_json: bool, data: Any, show: Callable[..., None], *arguments: Any) -> None:
    """Print a result as JSON for a program, or show it to a person."""
    if as_json:
        text = json.dumps(without_nan(data), indent=2, ensure_ascii=False, allow_nan=False)
        click.echo(text)
    else:
        show(*arguments)


def without_nan(data: Any) -> Any:
    """The same with null for numbers that are not finite, which JSON does not have."""
    if isinstance(data, Mapping):
        return {key: without_nan(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_nan(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = ""
) -> None:
    """A table; columns of numbers are aligned right, None is an empty cell."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    for column, cells in zip(columns, zip(*texts, strict=True), strict=True):
        is_number = all(cell[:1].isdigit() or cell[:1] in ("", "-", "+") for cell in cells)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in texts:
        table.add_row(*row)
    OUT.print(table)
    if note:
        OUT.print(note)


def print_scores(title: str, scores: RunScores) -> None:
    """One row per task and overall score, one column per split."""
    splits = [name for name in SPLITS if any(name in split for split in scores.tasks.values())]
    rows = []
    for name, by_split in scores.tasks.items():
        main = scores.main[name]
        cells = [f"{by_split[split][main]:.3f}" if split in by_split else "" for split in splits]
        if "report" in by_split:
            cells[splits.index("report")] += f" ± {by_split['report']['stderr']:.3f}"
        rows.append([f"{name} ({main})", *cells])
    for name in ("overall", "overall_normalised"):
        values = (scores.overall[split].get(name) for split in splits)
        rows.append([name, *("" if value is None else f"{value:.3f}" for value in values)])
    note = (
        "report: validation rows, each judged by the state that the other half of them chose, "
        "± one standard error; train: a fixed sample"
    )
    print_table(title, ["score", *splits], rows, note)


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
        OUT.print(f"{tables.describe_budget(results)} {tables.describe_rows(results)}")
    print_warnings([caveat.text for caveat in results.caveats])


def print_results(results: Results) -> None:
    print_summary(results)
    print_decision(recommend(results))
    click.echo(f"results: {results.folder / 'summary.json'}")


def print_decision(decision: Decision) -> None:
    click.echo("\n".join(decision.lines) + "\n")
    for table in (tables.odds_table(decision), tables.front_table(decision)):
        if table.rows:
            print_table(table.title, table.columns, table.texts, table.note)
