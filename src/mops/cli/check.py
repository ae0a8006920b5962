"""`mops check`"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
import numpy as np

from mops.cli.options import JSON, STRICT, read_recipe, refuse_leaks, training_options
from mops.cli.screen import OUT, print_table, print_warnings, respond
from mops.config.recipe import Recipe
from mops.data.batches import full_lengths, tokenise
from mops.data.checks import SplitReport, TaskReport, examine
from mops.data.dataset import Dataset, read_dataset
from mops.data.planned import PlannedRun, planned_warnings
from mops.data.schedule import plan_steps, task_budgets, trained_parameters
from mops.evaluate.cost import training_work
from mops.model.sources import find_encoder
from mops.surveys.budget import matrix_speed, step_seconds
from mops.tables import format_count, format_seconds

BUDGET = {"rows": "{:,}", "batches": "{:,}", "examples": "{:,}", "passes": "{:.2f}"}
TOKENS = (
    "tokens: median {p50:.0f}, 95 % {p95:.0f}, longest {max}; {cut} of {sequences:,} sequences are "
    "truncated to {max_length}"
)


@click.command()
@training_options
@STRICT
@JSON
def command(strict: bool, as_json: bool, **options: Any) -> None:
    """Validate a recipe and its data without training.

    Shows for each task three parsed rows, counts and label balance per split, duplicates, overlap
    between splits, token lengths, truncation and the majority baseline; then the planned steps
    and passes, the size of the plan and an estimate of the training time. Warnings name leaks
    between splits and between tasks, and labels that look wrong.

    \b
    Example:
      mops check --data sample
    """
    recipe = read_recipe(**options, default="good")
    dataset = read_dataset(recipe)
    reports = {
        name: examine(dataset.tasks[name], splits) for name, splits in dataset.splits.items()
    }
    plan = forecast(recipe.with_labels(dataset.tasks), dataset)
    tasks = {name: asdict(report) for name, report in reports.items()}
    facts = {"tasks": tasks, "notes": dataset.notes, "leaks": dataset.leaks, **plan}
    respond(as_json, facts, show, reports, facts)
    if strict:
        refuse_leaks(dataset.leaks)


def show(reports: Mapping[str, TaskReport], facts: Mapping[str, Any]) -> None:
    for name, report in reports.items():
        show_task(report, facts["tokens"][name])
    schedule, size, time = facts["schedule"], facts["plan"], facts["estimate"]
    rows = [
        [task, *(form.format(budget[key]) for key, form in BUDGET.items())]
        for task, budget in schedule["tasks"].items()
    ]
    print_table("planned", ["task", "rows", "batches", "rows seen", "passes"], rows)
    OUT.print(
        f"plan {size['name']}: {format_count(size['parameters'])} parameters, "
        f"{format_count(size['trained'])} trained"
    )
    OUT.print(
        f"{schedule['steps']:,} steps, about {format_seconds(time['seconds'])} of training "
        f"(matrix products run at {time['gflops']:.0f} GFLOP/s on this machine)"
    )
    print_warnings([*facts["notes"], *facts["warnings"]])


def show_task(report: TaskReport, tokens: Mapping[str, Any]) -> None:
    OUT.rule(f"{report.task} ({report.type})", align="left")
    for n, sample in enumerate(report.samples, start=1):
        OUT.print(f"row {n}: {' | '.join(sample['texts'])} -> {sample['label']}")
    columns = ["split", "rows", "bad", "labels", "duplicates", "in train", "in validation"]
    print_table("", columns, [[name, *cells(split)] for name, split in report.splits.items()])
    OUT.print(TOKENS.format(**tokens))
    if report.baseline_class is not None:
        OUT.print(
            f"majority baseline: {report.baseline_class!r} has accuracy {report.baseline:.3f} on "
            "validation"
        )


def cells(split: SplitReport) -> list[object]:
    """Counts, labels and overlaps of a split; empty where nothing can overlap."""
    labels = ", ".join(f"{label}: {count:,}" for label, count in split.labels.items()) or "none"
    if (numbers := split.numbers) is not None:
        labels = "{lowest:g} to {highest:g}, mean {mean:.2f} ± {deviation:.2f}".format_map(numbers)
    sharing, in_train = split.rows_sharing_a_sentence_with_train, split.rows_in_train
    overlap = in_train if sharing is None else f"{in_train} ({sharing} share a sentence)"
    counts = f"{split.rows:,}", split.bad_rows, labels, split.duplicates
    return [*counts, overlap, split.rows_in_validation]


def forecast(recipe: Recipe, dataset: Dataset) -> dict[str, Any]:
    """Tokens, steps, sizes and the estimated time of a run, without training."""
    source = find_encoder(recipe.encoder)
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
        "warnings": planned_warnings(PlannedRun(recipe, layout, schedule)),
    }
