"""Cost: what follows from a layout and a schedule alone, and cost beside score. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mops.data.schedule import PlannedStage, Schedule, rates_in, trained_parameters
from mops.data.tokens import TokenTable, row_flops
from mops.plans.layout import Layout
from mops.plans.routes import Route

FLOAT_BYTES = 4
SAME_WORK = 0.01  # FLOPs and weights that differ by less are the same work


def tm_relative(
    score: float, seconds: float, size: float, *, score0: float, seconds0: float, size0: float
) -> float:
    """Score per training time and memory, beside the baseline's, whose own is exactly 1.

    (score / score0) x (seconds0 / seconds) x (size0 / size): time of training, size in bytes of
    weights. Not a number where the baseline's score is not above 0 or nothing was measured: then
    it has no meaning.
    """
    if min(score0, seconds, size) <= 0:
        return math.nan
    return (score / score0) * (seconds0 / seconds) * (size0 / size)


# ------------------------------------------------------------------ without measuring


def analytic_costs(
    layout: Layout, schedule: Schedule, tables: Mapping[str, TokenTable]
) -> dict[str, Any]:
    """Weights, bytes and FLOPs. Weights and training state are apart, never added up."""
    trained = trained_parameters(layout, schedule)
    work = {task: list(work_of(layout, task, table)) for task, table in tables.items()}
    return {
        "parameters": layout.parameters,
        "trained_parameters": trained,
        "parameters_by_owner": dict(layout.sizes),
        "parameters_by_task": {
            task: sum(layout.sizes[owner] for owner in route.owners)
            for task, route in layout.routes.items()
        },
        "weight_bytes": layout.parameters * FLOAT_BYTES,
        "training_state_bytes": 3 * trained * FLOAT_BYTES,  # gradient and two moments
        "flops_per_example": {
            task: sum(piece.flops for piece in pieces) for task, pieces in work.items()
        },
        "flops_per_step": step_flops(layout, schedule, work),
    }


@dataclass(frozen=True)
class Work:
    """One piece of a task's way: its owners, and its FLOPs forward in a mean row."""

    stage: int  # the embeddings, each layer, each place on top; one more: after pooling
    owners: tuple[str, ...]
    flops: float


def work_of(layout: Layout, task: str, table: TokenTable) -> Iterator[Work]:
    """From the bottom to the top: a layer, what is added to it, ..., late layers, heads."""
    route, encoder = layout.routes[task], layout.encoder
    yield Work(0, (route.embeddings,), 0.0)
    for n, stops in enumerate(route.stops):
        layer = route.layers[n : n + 1]
        bare = replace(encoder, depth=len(layer))
        flops = row_flops(replace(route, layers=layer, stops=()), bare, table)
        yield Work(n + 1, tuple(owner for parts in layer for owner in parts.values()), flops)
        added = replace(route, layers=(), stops=(stops,))
        flops = row_flops(added, replace(encoder, depth=0), table)
        yield Work(n + 1, tuple(o for stop in stops for o in stop.parts.values()), flops)
    yield from work_on_top(layout, route, table.per_row)


def work_on_top(layout: Layout, route: Route, sequences: int) -> Iterator[Work]:
    """Poolers and late layers on each vector, heads on each row; two FLOPs for each weight."""
    below = {owner for stage in route.stages for owner in stage}
    for owner in (owner for owner in route.owners if owner not in below):
        times = 1 if owner.startswith("head") else sequences
        yield Work(len(route.stages), (owner,), 2.0 * times * layout.sizes[owner])


def step_flops(layout: Layout, schedule: Schedule, work: Mapping[str, Sequence[Work]]) -> float:
    """Of a mean training step, forward and backward, without what is computed once before."""
    total = 0.0
    for stage in schedule.stages:
        before, after = schedule.rows_before(stage.first), schedule.rows_before(stage.stop)
        learning = {owner for owner, rate in rates_in(layout, stage).items() if rate > 0}
        known = known_stages(layout, stage)
        for task, pieces in work.items():
            per_row = learning_flops([p for p in pieces if p.stage >= known], learning)
            total += (after[task] - before[task]) * per_row
    return total / max(1, len(schedule))


def known_stages(layout: Layout, stage: PlannedStage) -> int:
    """How many stages from the bottom up are frozen for all tasks; from one layer on it counts."""
    rates = rates_in(layout, stage)
    every = zip(*(route.stages for route in layout.routes.values()), strict=True)
    learns = [any(rates[owner] > 0 for owners in of for owner in owners) for of in every]
    frozen = (*learns, True).index(True)
    return frozen if frozen > 1 else 0


def learning_flops(pieces: Sequence[Work], learning: set[str]) -> float:
    """Forward; once more for weights that learn, once more where something below does."""
    total, below = 0.0, False
    for piece in pieces:
        own = not learning.isdisjoint(piece.owners)
        total += piece.flops * (1 + own + below)
        below = below or own
    return total


# ------------------------------------------------------------------ noise


def noise_sentences(costs: Mapping[str, Mapping[str, Any]], noise: float | None) -> list[str]:
    """A sentence for each group of candidates whose equal work took different times.

    `noise` is the share by which the baseline's own time varied; what differs by less is silent,
    and without it nothing can be said. The optimiser takes its time for every weight, so equal
    FLOPs alone are not the same work, and the sentence says that too.
    """
    if noise is None:
        return []
    found = []
    for names in alike(costs, "flops_per_step", "trained_parameters"):
        if (share := time_share(costs, names)) > noise:
            said = f"{listed(names)} do the same work; their step times differ by {share:.0%}"
            found.append(f"{said}: that is this machine's noise")
    for names in alike(costs, "flops_per_step"):
        weights = [costs[name]["trained_parameters"] for name in names]
        times = max(weights) / max(1, min(weights))
        if times > 1 + SAME_WORK and (share := time_share(costs, names)) > noise:
            said = f"{listed(names)} have equal FLOPs; their step times differ by {share:.0%}"
            why = f"this machine's noise, and up to {times:.1f} times as many weights to move"
            found.append(f"{said}: {why}")
    return found


def alike(costs: Mapping[str, Mapping[str, Any]], *keys: str) -> list[list[str]]:
    """Groups of two or more measured candidates that agree in these facts."""
    groups: list[list[str]] = []
    for name in by_seconds(costs):
        facts = costs[name]
        for group in groups:
            first = costs[group[0]]
            if all(math.isclose(first[key], facts[key], rel_tol=SAME_WORK) for key in keys):
                group.append(name)
                break
        else:
            groups.append([name])
    return [group for group in groups if len(group) > 1]


def by_seconds(costs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Those that were measured, the quickest first."""
    known = [name for name, facts in costs.items() if facts.get("step_seconds")]
    return sorted(known, key=lambda name: float(costs[name]["step_seconds"]))


def time_share(costs: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> float:
    """By how much the slowest takes longer than the quickest."""
    return float(costs[names[-1]]["step_seconds"] / costs[names[0]]["step_seconds"] - 1)


def listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
