"""Which runs can be trained together: all that they add to the same frozen encoder is small."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from mops.combining import SUM
from mops.data.schedule import Schedule
from mops.encoder.encoder import trunk_owners
from mops.fit.prepare import Prepared
from mops.layout import Layout


def why_not(ready: Prepared) -> str:
    """Why a run cannot be trained beside others; empty when it can."""
    return next((reason for is_so, reason in OBSTACLES if is_so(ready)), "")


def trunk_of(layout: Layout) -> tuple[str, ...]:
    """The owners of pretrained weights."""
    owners = (owner for route in layout.routes.values() for owner, _ in trunk_owners(route))
    return tuple(dict.fromkeys(owners))


def top_of(layout: Layout) -> list[str]:
    """Late layers and heads."""
    routes = layout.routes.values()
    return list(dict.fromkeys(o for route in routes for o in (*route.late, route.head)))


def learns_in_trunk(ready: Prepared) -> bool:
    return any(ready.layout.rates[owner] > 0 for owner in trunk_of(ready.layout))


def has_additions(ready: Prepared) -> bool:
    return any(stops for route in ready.layout.routes.values() for stops in route.stops)


OBSTACLES: tuple[tuple[Callable[[Prepared], bool], str], ...] = (
    (learns_in_trunk, "its encoder learns (write the plan as frozen+...)"),
    (has_additions, "its plan adds something inside the encoder"),
    (lambda r: bool(r.layout.plan.feeds), "its plan has feeds"),
    (lambda r: bool(r.layout.pulled), "its plan has pull rows that hold late layers"),
    (
        lambda r: not all(r.layout.rates[owner] > 0 for owner in top_of(r.layout)),
        "its plan freezes a late layer or a head",
    ),
    (lambda r: bool(r.recipe.training.stages), "training.stages is set"),
    (lambda r: r.recipe.training.gradients != SUM, "training.gradients is not sum"),
    (lambda r: isinstance(r.recipe.training.loss_weights, str), "its loss weights are not fixed"),
    (lambda r: r.recipe.training.augment is not None, "training.augment is set"),
    (lambda r: r.device != "cpu", "it does not run on the processor (training.device)"),
)


def family_of(ready: Prepared) -> Hashable:
    """Runs with equal keys read the same rows in the same way through the same frozen weights."""
    return id(ready.material), repr(ready.layout.reading), trunk_of(ready.layout)


def pattern_of(ready: Prepared, schedule: Schedule) -> Hashable:
    """Runs of a family with equal keys have the same tasks in every step and heads alike."""
    steps = tuple(tuple(step.items()) for step in schedule.steps)
    seen = tuple(ready.layout.head_input(task).width for task in ready.layout.tasks)
    return hash(steps), tuple(schedule.batch_sizes.items()), seen
