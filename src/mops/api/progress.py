"""What a person sees while something is computed: bars on stderr, and in notebooks."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.status import Status

from mops.record import TaskBudget
from mops.surveys.budget import Estimator
from mops.surveys.design import Survey
from mops.surveys.ledger import Job, Ledger, SurveyWatcher, Trial
from mops.tables import format_seconds, visible
from mops.training.tracking import Watcher

if TYPE_CHECKING:
    from mops.training.step import StepFacts


class Screen(Console):
    """A terminal that shows hidden characters of texts instead of obeying them."""

    def print(self, *objects: Any, **options: Any) -> None:
        shown = (visible(each) if isinstance(each, str) else each for each in objects)
        super().print(*shown, **options)

    def status(self, status: Any, **options: Any) -> Status:
        return super().status(escape(visible(str(status))), **options)


ERR = Screen(stderr=True, highlight=False, markup=False)
OVERALL = "step {step}: overall {overall:.4f} on validation"  # an evaluation of a training
PERPLEXITY = "step {step}: held-out perplexity {perplexity:.2f}"  # of a pretraining
REFRESH = 0.2  # seconds between drawings in a notebook


def print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        ERR.print(f"warning: {warning}", style="yellow", soft_wrap=True)


def is_watched() -> bool:
    """Whether somebody sees what is drawn: on a terminal, or in a notebook."""
    return ERR.is_terminal or ERR.is_jupyter


@contextmanager
def busy(text: str) -> Iterator[Callable[[str], None]]:
    """Says what is being done, on a terminal; the function that is yielded says what comes next."""
    if not ERR.is_terminal:
        yield lambda _: None
        return
    with ERR.status(text) as status:
        yield lambda now: status.update(escape(visible(now)))


class ProgressBar(Progress):
    """A bar on stderr or in a notebook; silent where nobody sees it."""

    def __init__(self, title: str, total: float | None = None) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), "{task.fields[facts]}")
        quiet = not ERR.is_terminal
        super().__init__("{task.description}", *columns, console=ERR, transient=True, disable=quiet)
        self.title, self.row = title, self.add_task(title, total=total, facts="")
        self.drawing: Any = None  # in a notebook
        self.drawn = 0.0  # when

    def __enter__(self) -> Self:
        if ERR.is_jupyter:
            display = importlib.import_module("IPython.display").display
            self.drawing = display(self, display_id=True)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self.drawing:
            self.drawing.update({"text/plain": ""}, raw=True)

    def show(self, **changes: Any) -> None:
        texts = {k: escape(visible(v)) for k, v in changes.items() if isinstance(v, str)}
        self.update(self.row, **changes | texts)
        if self.drawing and time.monotonic() - self.drawn > REFRESH:
            self.drawn = time.monotonic()
            self.drawing.update(self)


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
        doubts = chain.from_iterable(each.doubts for each in estimator.datasets.values())
        print_warnings(list(dict.fromkeys(doubts)))
        self.estimates = {trial.name: trial.seconds for trial in forecast}
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
        if not is_watched():
            self.note(f"[{format_seconds(self.elapsed)}] {text}")

    @property
    def elapsed(self) -> float:
        return self.tasks[0].elapsed or 0.0
