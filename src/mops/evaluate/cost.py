"""Cost: weights, bytes and FLOPs that follow from layout and schedule, and cost per score.

No torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from mops.config.training import SUM
from mops.data.batches import TokenTable
from mops.data.schedule import PlannedStage, Schedule, learning_in, trained_parameters
from mops.plans.layout import Layout
from mops.plans.rows import AdapterSite
from mops.plans.shapes import EncoderShape, cut_windows

FLOAT_BYTES = 4


def tm_relative(own: tuple[float, float, float], base: tuple[float, float, float]) -> float | None:
    """Score per training time and memory, relative to the baseline (exactly 1 for itself).

    Of (score, training time in seconds, bytes of weights); None if the baseline's score is not
    positive or nothing was measured.
    """
    (score, seconds, size), (score0, seconds0, size0) = own, base
    if min(score0, seconds, size) <= 0:
        return None
    return (score / score0) * (seconds0 / seconds) * (size0 / size)


def layer_flops(encoder: EncoderShape, length: int, reach: int = 0) -> int:
    """Multiplications and additions of one sequence in one layer; `reach`: of a local one."""
    inner = encoder.inner_vectors + encoder.inner
    matrices = 4 * encoder.width**2 + encoder.width * inner
    pairs = sum((window.end - window.first) ** 2 for window in cut_windows(length, reach))
    return 2 * (length * matrices + 2 * pairs * encoder.width)  # scores and weighted sum


def adapter_flops(adapters: Sequence[AdapterSite], length: int) -> int:
    """The same in the adapters of a stage."""
    per_token = 0
    for adapter in adapters:
        attention = 2 * length * adapter.size if adapter.addition.kind == "pal" else 0
        per_token += sum(adapter.sizes.values()) + attention
    return 2 * length * per_token


class RoutePiece(NamedTuple):
    """One module on a task's route: its owners, and its forward FLOPs for a mean row."""

    stage: int  # embeddings, each layer, each site on top; one more: after pooling
    owners: tuple[str, ...]
    flops: float


def route_pieces(layout: Layout, task: str, table: TokenTable) -> Iterator[RoutePiece]:
    """From the bottom to the top: each layer and its additions, then late layers and the head."""
    route = layout.routes[task]

    def mean(flops: Callable[[int], int]) -> float:
        """Forward FLOPs of one row, the mean over the table."""
        return sum(flops(length) * n for length, n in table.counted_lengths) / len(table)

    encoder = layout.encoder
    reaches = [encoder.scope(n).reach for n in range(encoder.depth)]
    in_layer = {r: mean(partial(layer_flops, encoder, reach=r)) for r in set(reaches)}
    project = mean(lambda length: 2 * length * encoder.embedding * encoder.width)
    yield RoutePiece(0, (route.embeddings,), project)
    for n, adapters in enumerate(route.adapters):
        for layer in route.layers[n : n + 1]:  # none on top
            yield RoutePiece(n + 1, tuple(layer.values()), in_layer[reaches[n]])
        owners = tuple(chain(*(adapter.parts.values() for adapter in adapters)))
        yield RoutePiece(n + 1, owners, mean(partial(adapter_flops, adapters)))
    below = set(chain(*route.stages))
    for owner in (owner for owner in route.owners if owner not in below):
        # Poolers and late layers see each vector, heads each row: two FLOPs for each weight.
        vectors = 1 if owner.startswith("head") else table.per_row
        yield RoutePiece(len(route.stages), (owner,), 2.0 * vectors * layout.sizes[owner])


def stage_flops(
    layout: Layout,
    schedule: Schedule,
    stage: PlannedStage,
    pieces: Mapping[str, Sequence[RoutePiece]],  # task -> its route
) -> Iterator[tuple[float, float]]:
    """For each task: FLOPs of the stage's steps, and of frozen layers once for each row seen."""
    before, after = schedule.rows_before(stage.first), schedule.rows_before(stage.stop)
    learning = {owner for owner, rate in stage.rates(layout).items() if rate > 0}
    frozen, passes = frozen_stages(layout, stage), 1.0
    if stage.training.gradients != SUM:  # a backward pass for each task of a step
        tasks = sum(map(len, schedule.steps[stage.first : stage.stop]))
        passes = max(1.0, tasks / max(1, len(stage)))
    for task, route in pieces.items():
        rows = after[task] - before[task]
        per_row = step_flops([p for p in route if p.stage >= frozen], learning, passes)
        per_row *= 2 if stage.training.r_drop else 1
        once = sum(piece.flops for piece in route if piece.stage < frozen)
        yield rows * per_row, min(rows, sum(file.rows for file in schedule.files[task])) * once


def frozen_stages(layout: Layout, stage: PlannedStage) -> int:
    """Stages from the bottom up that no task trains; 0 if that is less than one layer."""
    frozen = layout.frozen_stages(stage.rates(layout))
    return frozen if frozen > 1 else 0


def step_flops(pieces: Sequence[RoutePiece], learning: set[str], passes: float) -> float:
    """Forward; once more for weights that learn, once more where something below learns."""
    total, below = 0.0, False
    for piece in pieces:
        own = not learning.isdisjoint(piece.owners)
        total += piece.flops * (1 + passes * (own + below))
        below = below or own
    return total


@dataclass(frozen=True)
class TrainingWork:
    """What a training computes; `surveys/budget.py` turns it into seconds."""

    flops: float  # of the steps
    frozen_flops: float  # of frozen layers, once for each row
    updates: int  # weights that the optimizer updates, over all steps
    steps: int
    frozen_steps: int  # those of them that begin above the encoder
    evaluation_flops: Mapping[str, float]  # task -> of a row, without what is cached
    forward_flops: Mapping[str, float]  # task -> of a row, with it

    @property
    def is_frozen(self) -> bool:
        return self.frozen_steps == self.steps


def training_work(
    layout: Layout, schedule: Schedule, tables: Mapping[str, TokenTable]
) -> TrainingWork:
    pieces = {task: list(route_pieces(layout, task, table)) for task, table in tables.items()}
    trunk = len(next(iter(layout.routes.values())).stages)
    flops = frozen_flops = 0.0
    updates = frozen_steps = 0
    for stage in schedule.stages:
        for step, once in stage_flops(layout, schedule, stage, pieces):
            flops, frozen_flops = flops + step, frozen_flops + once
        learning = learning_in(layout, schedule, stage)
        updates += len(stage) * sum(layout.sizes[owner] for owner in learning)
        frozen_steps += len(stage) * (frozen_stages(layout, stage) == trunk)
    cached = min(frozen_stages(layout, stage) for stage in schedule.stages)
    above = {task: [p for p in route if p.stage >= cached] for task, route in pieces.items()}
    return TrainingWork(
        flops=flops,
        frozen_flops=frozen_flops,
        updates=updates,
        steps=len(schedule),
        frozen_steps=frozen_steps,
        evaluation_flops={task: sum(p.flops for p in route) for task, route in above.items()},
        forward_flops={task: sum(p.flops for p in route) for task, route in pieces.items()},
    )


def analytic_costs(
    layout: Layout, schedule: Schedule, tables: Mapping[str, TokenTable]
) -> dict[str, Any]:
    """Weights, bytes and FLOPs. Weight bytes and training state are never added up."""
    trained = trained_parameters(layout, schedule)
    work = training_work(layout, schedule, tables)
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
        "flops_per_example": dict(work.forward_flops),
        "flops_per_step": work.flops / max(1, work.steps),
    }
