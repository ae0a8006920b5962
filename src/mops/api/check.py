"""Check: a recipe and its data, validated without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mops.config.recipe import Recipe
from mops.data.batches import full_lengths, tokenise
from mops.data.checks import SplitReport, TaskReport, advise, examine
from mops.data.compose import given_recipe
from mops.data.dataset import read_dataset
from mops.data.planned import PlannedRun, planned_warnings
from mops.data.schedule import plan_steps, task_budgets, trained_parameters
from mops.evaluate.cost import training_work
from mops.model.sources import find_encoder
from mops.surveys.budget import matrix_speed, step_seconds
from mops.tables import EMPTY, Cell, Shown, Table, format_count, format_seconds

BUDGET = {"rows": "{:,}", "batches": "{:,}", "examples": "{:,}", "passes": "{:.2f}"}
TOKENS = (
    "tokens: median {p50:.0f}, 95 % {p95:.0f}, longest {max}; {cut} of {sequences:,} sequences are "
    "truncated to {max_length}"
)
SPLIT_COLUMNS = ("split", "rows", "bad", "labels", "duplicates", "in train", "in validation")


@dataclass(frozen=True, repr=False, kw_only=True)
class Checked(Shown):
    """What is known about a run before it is trained."""

    tasks: Mapping[str, TaskReport]
    notes: tuple[str, ...]  # what a reader of the scores should know about the rows
    leaks: tuple[str, ...]  # those of the notes that `strict` refuses
    tokens: Mapping[str, Mapping[str, Any]]  # by task
    schedule: Mapping[str, Any]
    plan: Mapping[str, Any]
    estimate: Mapping[str, float]  # seconds of training, GFLOP/s of this machine
    warnings: tuple[str, ...]
    advice: tuple[str, ...]  # settings that may help with these rows

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def parts(self) -> Sequence[str | Table]:
        said = (f"warning: {text}" for text in (*self.notes, *self.warnings))
        return [*self.described, *said, *self.advised]

    @property
    def advised(self) -> Iterator[str]:
        return (f"advice: {text}" for text in self.advice)

    @property
    def described(self) -> Iterator[str | Table]:
        """The tasks, the planned steps and the size of the plan, without the warnings."""
        for name, report in self.tasks.items():
            yield from describe_task(report, self.tokens[name])
        rows = tuple(
            (Cell(task), *(Cell(form.format(own[key]), own[key]) for key, form in BUDGET.items()))
            for task, own in self.schedule["tasks"].items()
        )
        yield Table("planned", "planned", ("task", "rows", "batches", "rows seen", "passes"), rows)
        yield (
            f"plan {self.plan['name']}: {format_count(self.plan['parameters'])} parameters, "
            f"{format_count(self.plan['trained'])} trained"
        )
        yield (
            f"{self.schedule['steps']:,} steps, about {format_seconds(self.estimate['seconds'])} "
            f"of training (matrix products run at {self.estimate['gflops']:.0f} GFLOP/s on this "
            "machine)"
        )


def check(recipe: Recipe | str | Path) -> Checked:
    """Read the data of a recipe, or of the one in a file, and plan its steps, without training."""
    recipe = given_recipe(recipe)
    dataset = read_dataset(recipe)
    recipe, source = recipe.with_labels(dataset.tasks), find_encoder(recipe.encoder)
    layout = recipe.layout(dataset.tasks, source.shape)
    tables, tokens = {}, {}
    for name, splits in dataset.splits.items():
        texts = [row.texts for row in splits["train"].good]
        tables[name] = table = tokenise(source.tokenizer, texts, layout.reading.of(name))
        lengths = full_lengths(source.tokenizer, texts, layout.reading.of(name), table)
        p50, p95, longest = np.percentile(lengths, [50, 95, 100]).tolist()
        tokens[name] = {"p50": p50, "p95": p95, "max": int(longest),
                        "sequences": len(lengths), "cut": table.cut,
                        "max_length": layout.reading.max_length}  # fmt: skip
    schedule = plan_steps(dataset.train_files, recipe.training)
    gflops = matrix_speed()
    seconds = step_seconds(training_work(layout, schedule, tables), gflops)
    return Checked(
        tasks={name: examine(dataset.tasks[name], own) for name, own in dataset.splits.items()},
        notes=dataset.notes,
        leaks=dataset.leaks,
        tokens=tokens,
        schedule={
            "steps": len(schedule),
            "steps_per_epoch": schedule.steps_per_epoch,
            "tasks": {name: asdict(budget) for name, budget in task_budgets(schedule).items()},
        },
        plan={
            "name": layout.plan.name,
            "parameters": layout.parameters,
            "trained": trained_parameters(layout, schedule),
        },
        estimate={"seconds": seconds, "gflops": gflops},
        warnings=tuple(planned_warnings(PlannedRun(recipe, layout, schedule))),
        advice=tuple(advise(recipe, dataset.splits)),
    )


def describe_task(report: TaskReport, tokens: Mapping[str, Any]) -> Iterator[str | Table]:
    title = f"{report.task} ({report.type})"
    rows = tuple((Cell(name), *split_cells(split)) for name, split in report.splits.items())
    yield Table(report.task, title, SPLIT_COLUMNS, rows)
    for n, sample in enumerate(report.samples, start=1):
        yield f"row {n}: {' | '.join(sample['texts'])} -> {sample['label']}"
    yield TOKENS.format(**tokens)
    if report.baseline_class is not None:
        yield (
            f"majority baseline: {report.baseline_class!r} has accuracy {report.baseline:.3f} on "
            "validation"
        )


def split_cells(split: SplitReport) -> list[Cell]:
    """Counts, labels and overlaps of a split; empty where nothing can overlap."""
    labels = ", ".join(f"{label}: {count:,}" for label, count in split.labels.items()) or "none"
    if (numbers := split.numbers) is not None:
        labels = "{lowest:g} to {highest:g}, mean {mean:.2f} ± {deviation:.2f}".format_map(numbers)
    sharing, in_train = split.rows_sharing_a_sentence_with_train, split.rows_in_train
    overlap = in_train if sharing is None else f"{in_train} ({sharing} share a sentence)"
    counts = f"{split.rows:,}", split.bad_rows, labels, split.duplicates
    cells = (*counts, overlap, split.rows_in_validation)
    return [EMPTY if cell is None else Cell(str(cell)) for cell in cells]
