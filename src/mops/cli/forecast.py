"""What a run would be: tokens, steps, sizes and time, without torch and without training."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from mops.config.recipe import Recipe
from mops.data.dataset import Dataset
from mops.data.schedule import plan_steps, schedule_warnings, task_budgets, trained_parameters
from mops.data.tokens import TokenTable, tokenise
from mops.evaluate.cost import training_work
from mops.plans.layout import Layout
from mops.surveys.budget import matrix_speed, step_seconds

if TYPE_CHECKING:
    from mops.model.sources import EncoderSource


def forecast(recipe: Recipe, dataset: Dataset, source: EncoderSource) -> dict[str, Any]:
    layout = recipe.layout(dataset.tasks, source.shape)
    tables = {
        name: tokenise(
            source.tokenizer, [row.texts for row in splits["train"].good], layout.reading
        )
        for name, splits in dataset.splits.items()
    }
    gflops = matrix_speed()
    schedule = plan_steps({name: len(table) for name, table in tables.items()}, recipe.training)
    return {
        "tokens": {name: lengths(table, layout) for name, table in tables.items()},
        "schedule": {
            "steps": len(schedule),
            "steps_per_epoch": schedule.steps_per_epoch,
            "tasks": {name: asdict(share) for name, share in task_budgets(schedule).items()},
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


def lengths(table: TokenTable, layout: Layout) -> dict[str, Any]:
    found = table.lengths
    p50, p95 = np.percentile(found, [50, 95])
    return {
        "p50": float(p50),
        "p95": float(p95),
        "max": int(found.max()),
        "sequences": len(found),
        "cut": table.cut,
        "max_length": layout.reading.max_length,
    }
