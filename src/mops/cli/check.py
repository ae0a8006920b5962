"""`mops check`"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON, read_recipe, recipe_options
from mops.cli.screen import OUT, print_table, print_warnings
from mops.units import format_count, format_seconds

if TYPE_CHECKING:
    from mops.config.recipe import Recipe
    from mops.data.checks import SplitReport, TaskReport
    from mops.data.dataset import Dataset
    from mops.data.tokens import TokenTable
    from mops.model.sources import EncoderSource


@click.command()
@recipe_options
@JSON
def command(as_json: bool, **options: Any) -> None:
    """Validate a recipe and its data without training.

    Shows for each task three parsed rows, counts and label balance per split, duplicates, overlap
    between splits, token lengths, truncation and the majority baseline; then the planned steps
    and passes, the size of the plan and an estimate of the training time.

    \b
    Example:
      mops check --data sample
    """
    from mops.data.checks import examine
    from mops.data.dataset import read_dataset
    from mops.model.sources import find_encoder

    recipe = read_recipe(**options)
    dataset = read_dataset(recipe)
    recipe = recipe.with_labels(dataset.tasks)
    reports = {
        name: examine(dataset.tasks[name], splits) for name, splits in dataset.splits.items()
    }
    plan = forecast(recipe, dataset, find_encoder(recipe.encoder))
    if as_json:
        tasks = {name: asdict(report) for name, report in reports.items()}
        echo_json({"tasks": tasks, "notes": dataset.notes(), **plan})
        return
    for name, report in reports.items():
        show_task(report, plan["tokens"][name])
    show_plan(plan)
    print_warnings([*dataset.notes(), *plan["warnings"]])


def show_task(report: TaskReport, tokens: Mapping[str, Any]) -> None:
    OUT.rule(f"{report.task} ({report.type})", align="left")
    for n, sample in enumerate(report.samples, start=1):
        OUT.print(f"row {n}: {' | '.join(sample.texts)} -> {sample.label}")
    rows = [
        [
            name,
            f"{split.rows:,}",
            f"{split.bad_rows}",
            balance(split),
            f"{split.duplicates}",
            overlap(split),
            "" if split.rows_in_validation is None else f"{split.rows_in_validation}",
        ]
        for name, split in report.splits.items()
    ]
    columns = ["split", "rows", "bad", "labels", "duplicates", "in train", "in validation"]
    print_table("", columns, rows)
    OUT.print(
        f"tokens: median {tokens['p50']:.0f}, 95 % {tokens['p95']:.0f}, longest {tokens['max']}; "
        f"{tokens['cut']} of {tokens['sequences']:,} sequences are truncated to "
        f"{tokens['max_length']}"
    )
    numbers = report.splits["train"].numbers
    if numbers is not None:
        OUT.print(
            f"a constant prediction has correlation 0; labels have standard deviation "
            f"{numbers.deviation:.2f}"
        )
    if report.baseline_class is not None:
        OUT.print(
            f"majority baseline: {report.baseline_class!r} has accuracy {report.baseline:.3f} on "
            "validation"
        )


def balance(split: SplitReport) -> str:
    if split.numbers is not None:
        numbers = split.numbers
        return f"{numbers.lowest:g} to {numbers.highest:g}, mean {numbers.mean:.2f}"
    return ", ".join(f"{label}: {count:,}" for label, count in split.labels.items()) or "none"


def overlap(split: SplitReport) -> str:
    if split.rows_in_train is None:
        return ""
    sharing = split.rows_sharing_a_sentence_with_train
    shared = "" if sharing is None else f" ({sharing} share a sentence)"
    return f"{split.rows_in_train}{shared}"


def show_plan(plan: Mapping[str, Any]) -> None:
    rows = [
        [
            name,
            f"{facts['rows']:,}",
            f"{facts['batches']:,}",
            f"{facts['examples']:,}",
            f"{facts['passes']:.2f}",
        ]
        for name, facts in plan["schedule"]["tasks"].items()
    ]
    print_table("planned", ["task", "rows", "batches", "rows seen", "passes"], rows)
    size, time = plan["plan"], plan["estimate"]
    OUT.print(
        f"plan {size['name']}: {format_count(size['parameters'])} parameters, "
        f"{format_count(size['trained'])} trained"
    )
    OUT.print(
        f"{plan['schedule']['steps']:,} steps, about {format_seconds(time['seconds'])} of training "
        f"(matrix products run at {time['gflops']:.0f} GFLOP/s on this machine)"
    )


def forecast(recipe: Recipe, dataset: Dataset, source: EncoderSource) -> dict[str, Any]:
    """Tokens, steps, sizes and the estimated time of a run, without training."""
    from mops.data.schedule import plan_steps, schedule_warnings, task_budgets, trained_parameters
    from mops.data.tokens import tokenise
    from mops.evaluate.cost import training_work
    from mops.surveys.budget import matrix_speed, step_seconds

    layout = recipe.layout(dataset.tasks, source.shape)
    texts = {n: [row.texts for row in of["train"].good] for n, of in dataset.splits.items()}
    tables = {n: tokenise(source.tokenizer, rows, layout.reading) for n, rows in texts.items()}
    schedule = plan_steps({name: len(table) for name, table in tables.items()}, recipe.training)
    gflops = matrix_speed()
    return {
        "tokens": {n: describe_lengths(t, layout.reading.max_length) for n, t in tables.items()},
        "schedule": {
            "steps": len(schedule),
            "steps_per_epoch": schedule.steps_per_epoch,
            "tasks": {name: asdict(budget) for name, budget in task_budgets(schedule).items()},
        },
        "plan": {
            "name": layout.plan.name,
            "parameters": layout.parameters,
            "trained": trained_parameters(layout, schedule),
        },
        "estimate": {
            "seconds": step_seconds(training_work(layout, schedule, tables), gflops),
            "gflops": gflops,
        },
        "warnings": list(schedule_warnings(schedule, recipe.training).values()),
    }


def describe_lengths(table: TokenTable, max_length: int) -> dict[str, Any]:
    import numpy as np

    p50, p95, longest = np.percentile(table.lengths, [50, 95, 100]).tolist()
    return {
        "p50": p50,
        "p95": p95,
        "max": int(longest),
        "sequences": len(table.lengths),
        "cut": table.cut,
        "max_length": max_length,
    }
