"""What a person sees: progress on stderr, tables on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from mops.training.tracking import Watcher

if TYPE_CHECKING:
    from mops.record import RunScores, TaskBudget
    from mops.training.step import StepFacts

WIDE = 118  # columns where there is no terminal to ask
OUT = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)
ERR = Console(stderr=True, highlight=False, markup=False)
SPLITS = ("report", "validation", "test", "train")
OVERALL = "step {step}: overall {overall:.4f} on validation"  # an evaluation of a training
PERPLEXITY = "{phase}, step {step}: held-out perplexity {perplexity:.2f}"  # of a pretraining


class ProgressBar:
    """A bar on stderr; silent when stderr is no terminal."""

    def __init__(self, title: str, total: float | None = None) -> None:
        self.title = title
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), "{task.fields[facts]}")
        quiet = not ERR.is_terminal
        self.bar = Progress(
            "{task.description}", *columns, console=ERR, transient=True, disable=quiet
        )
        self.row = self.bar.add_task(title, total=total, facts="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, **changes: Any) -> None:
        self.bar.update(self.row, **changes)


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
        self.update(total=total, completed=done, description=self.title)
        if done:
            ERR.print(f"{self.title}: resuming after step {done} of {total}")

    def step(self, step: int, facts: StepFacts) -> None:
        losses = "  ".join(f"{task} {loss:.3f}" for task, loss in facts.losses.items())
        self.update(completed=step, facts=losses)

    def evaluation(self, step: int, scores: Mapping[str, Any], is_best: bool) -> None:
        form = PERPLEXITY if "perplexity" in scores else OVERALL
        mark = " (best so far)" if is_best else ""
        ERR.print(f"{self.title}: {form.format_map({**scores, 'step': step})}{mark}")

    def phase(self, name: str) -> None:
        self.update(description=f"{self.title}: {name}")


def print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        ERR.print(f"warning: {warning}", style="yellow", soft_wrap=True)


# ------------------------------------------------------------------ results


def respond(as_json: bool, data: Any, show: Callable[..., None], *arguments: Any) -> None:
    """Print a result as JSON for a program, or show it to a person."""
    if as_json:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        show(*arguments)


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
