"""What a run would be: tokens, steps, sizes and time, without torch and without training."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from mops.data.budgets import doubts, learning_in, shares, trained_parameters
from mops.data.material import Material, layout_of
from mops.data.schedule import Schedule, plan_steps
from mops.data.tokens import TokenTable, row_flops, tokenise
from mops.layout import Layout
from mops.recipes import Recipe

if TYPE_CHECKING:
    from mops.encoder.sources import EncoderSource

# Of the machine's matrix products a training step reaches about this share, measured with MiniLM
# at 8 rows of each of three tasks on two cores.
SHARE_OF_PEAK = 0.6


def forecast(recipe: Recipe, material: Material, source: EncoderSource) -> dict[str, Any]:
    layout = layout_of(recipe, material, source.shape)
    tables = {
        name: tokenise(
            source.tokenizer, [row.texts for row in splits["train"].good], layout.reading
        )
        for name, splits in material.splits.items()
    }
    schedule = plan_steps({name: len(table) for name, table in tables.items()}, recipe.training)
    return {
        "tokens": {name: lengths(table, layout) for name, table in tables.items()},
        "schedule": {
            "steps": len(schedule),
            "steps_per_epoch": schedule.steps_per_epoch,
            "tasks": {name: asdict(share) for name, share in shares(schedule).items()},
        },
        "plan": {
            "name": layout.plan.name,
            "parameters": layout.parameters,
            "trained": trained_parameters(layout, schedule),
        },
        "estimate": estimate(layout, schedule, tables),
        "warnings": list(doubts(schedule, recipe.training).values()),
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


def estimate(layout: Layout, schedule: Schedule, tables: dict[str, TokenTable]) -> dict[str, float]:
    """Time of the training steps: their matrix products at the speed this machine shows now."""
    per_row = {
        name: row_flops(layout.routes[name], layout.encoder, table)
        for name, table in tables.items()
    }
    flops = 0.0
    for stage in schedule.stages:
        backward = backward_passes(layout, learning_in(layout, schedule, stage))
        before, after = schedule.rows_before(stage.first), schedule.rows_before(stage.stop)
        flops += sum((after[n] - before[n]) * per_row[n] for n in tables) * (1 + backward)
    gflops = matrix_speed()
    return {"seconds": flops / (gflops * 1e9 * SHARE_OF_PEAK), "gflops": gflops}


def backward_passes(layout: Layout, learning: list[str]) -> float:
    """In forward passes: for the weights and for what is below them; only below, if all is frozen.

    Nothing at all where no owner that the tokens pass learns.
    """
    if any(owner.startswith(("attention", "feedforward")) for owner in learning):
        return 2.0
    passed = {o for route in layout.routes.values() for stage in route.stages for o in stage}
    return 1.0 if passed & set(learning) else 0.0


def matrix_speed() -> float:
    """GFLOP/s of a matrix product of the size that a step has."""
    left = np.ones((512, 384), np.float32)
    right = np.ones((384, 1536), np.float32)
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - started)
    return 2 * 512 * 384 * 1536 / best / 1e9
