"""`mops check`"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
import numpy as np

from mops.cli.main import echo_json
from mops.cli.options import JSON, read_recipe, recipe_options
from mops.cli.screen import OUT, print_table, print_warnings
from mops.config.recipe import Recipe
from mops.data.checks import SplitReport, TaskReport, examine
from mops.data.dataset import Dataset, read_dataset
from mops.data.schedule import plan_steps, schedule_warnings, task_budgets, trained_parameters
from mops.data.tokens import tokenise
from mops.evaluate.cost import training_work
from mops.model.sources import find_encoder
from mops.surveys.budget import matrix_speed, step_seconds
from mops.units import format_count, format_seconds


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
    recipe = read_recipe(**options)
    dataset = read_dataset(recipe)
    reports = {
        name: examine(dataset.tasks[name], splits) for name, splits in dataset.splits.items()
    }
    plan = forecast(recipe.with_labels(dataset.tasks), dataset)
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
    columns = ["split", "rows", "bad", "labels", "duplicates", "in train", "in validation"]
    print_table("", columns, [[name, *cells(split)] for name, split in report.splits.items()])
    OUT.print(
        f"tokens: median {tokens['p50']:.0f}, 95 % {tokens['p95']:.0f}, longest {tokens['max']}; "
        f"{tokens['cut']} of {tokens['sequences']:,} sequences are truncated to "
        f"{tokens['max_length']}"
    )
    if (numbers := report.splits["train"].numbers) is not None:
        OUT.print(
            f"a constant prediction has correlation 0; labels have standard deviation "
            f"{numbers.deviation:.2f}"
        )
    if report.baseline_class is not None:
        OUT.print(
            f"majority baseline: {report.baseline_class!r} has accuracy {report.baseline:.3f} on "
            "validation"
        )


def cells(split: SplitReport) -> list[str]:
    """Counts, labels and overlaps of a split; empty where nothing can overlap."""
    labels = ", ".join(f"{label}: {count:,}" for label, count in split.labels.items()) or "none"
    if (numbers := split.numbers) is not None:
        labels = f"{numbers.lowest:g} to {numbers.highest:g}, mean {numbers.mean:.2f}"
    sharing = split.rows_sharing_a_sentence_with_train
    overlaps = [
        "" if count is None else str(count)
        for count in (split.rows_in_train, split.rows_in_validation)
    ]
    overlaps[0] += "" if sharing is None else f" ({sharing} share a sentence)"
    return [f"{split.rows:,}", str(split.bad_rows), labels, str(split.duplicates), *overlaps]


def show_plan(plan: Mapping[str, Any]) -> None:
    forms = {"rows": "{:,}", "batches": "{:,}", "examples": "{:,}", "passes": "{:.2f}"}
    rows = [
        [name, *(form.format(facts[key]) for key, form in forms.items())]
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


def forecast(recipe: Recipe, dataset: Dataset) -> dict[str, Any]:
    """Tokens, steps, sizes and the estimated time of a run, without training."""
    source = find_encoder(recipe.encoder)
    layout = recipe.layout(dataset.tasks, source.shape)
    tables, tokens = {}, {}
    for name, splits in dataset.splits.items():
        texts = [row.texts for row in splits["train"].good]
        tables[name] = table = tokenise(source.tokenizer, texts, layout.reading)
        p50, p95, longest = np.percentile(table.lengths, [50, 95, 100]).tolist()
        tokens[name] = {"p50": p50, "p95": p95, "max": int(longest),
                        "sequences": len(table.lengths), "cut": table.cut,
                        "max_length": layout.reading.max_length}  # fmt: skip
    schedule = plan_steps({name: len(table) for name, table in tables.items()}, recipe.training)
    gflops = matrix_speed()
    seconds = step_seconds(training_work(layout, schedule, tables), gflops)
    return {
        "tokens": tokens,
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
        "estimate": {"seconds": seconds, "gflops": gflops},
        "warnings": list(schedule_warnings(schedule, recipe.training).values()),
    }
