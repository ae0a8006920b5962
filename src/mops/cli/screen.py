"""What a person sees: progress on stderr, tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from mops.training.tracking import Watcher

if TYPE_CHECKING:
    from mops.data.schedule import TaskBudget
    from mops.record import RunScores
    from mops.training.step import StepFacts

WIDE = 118  # columns where there is no terminal to ask
OUT = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)
ERR = Console(stderr=True, highlight=False, markup=False)
SPLITS = ("report", "validation", "test", "train")


class ProgressBar:
    """A bar on stderr; silent when stderr is no terminal."""

    def __init__(self, title: str, total: float | None = None) -> None:
        count = "{task.completed:.0f}/{task.total:.0f}" if total else "{task.completed:,.0f}"
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(count),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}"),
            console=ERR,
            transient=True,
            disable=not ERR.is_terminal,
        )
        self.row: TaskID = self.bar.add_task(title, total=total, facts="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, **changes: Any) -> None:
        self.bar.update(self.row, **changes)


class TrainingScreen(ProgressBar, Watcher):
    """The progress of a training."""

    def __init__(self, title: str) -> None:
        super().__init__(title, total=1)
        self.title = title

    def planned(self, tasks: Mapping[str, TaskBudget], warnings: Sequence[str]) -> None:
        for name, share in tasks.items():
            ERR.print(
                f"{self.title}: {name}: planned batches {share.batches:,}, "
                f"rows {share.examples:,}, passes {share.passes:.2f}"
            )
        print_warnings(warnings)

    def begin(self, total: int, done: int) -> None:
        self.update(total=total, completed=done, description=self.title)
        if done:
            ERR.print(f"{self.title}: resuming after step {done} of {total}")

    def step(self, step: int, facts: StepFacts) -> None:
        losses = "  ".join(f"{task} {loss:.3f}" for task, loss in facts.losses.items())
        self.update(completed=step, facts=losses)

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        mark = " (best so far)" if is_best else ""
        ERR.print(f"{self.title}: {self.describe(step, scores)}{mark}")

    def describe(self, step: int, scores: Mapping[str, Any]) -> str:
        return f"step {step}: overall {scores['overall']:.4f} on selection"

    def phase(self, name: str) -> None:
        self.update(description=f"{self.title}: {name}")


class PretrainingScreen(TrainingScreen):
    """The progress of a pretraining."""

    def describe(self, step: int, scores: Mapping[str, Any]) -> str:
        return f"{scores['phase']}, step {step}: held-out perplexity {scores['perplexity']:.2f}"


def print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        ERR.print(f"warning: {warning}", style="yellow", soft_wrap=True)


# ------------------------------------------------------------------ results


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> None:
    """A table; columns of numbers are aligned right."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        is_number = all(cell[:1].isdigit() or cell[:1] in ("", "-", "+") for cell in cells)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
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
        "report: the half of validation that was not used for selection, ± one standard error; "
        "train: a fixed sample"
    )
    print_table(title, ["score", *splits], rows, note)
