"""Costs against built networks and sums by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from building import (
    FAMILIES,
    LONGEST,
    NAMES,
    TARGETS,
    build_network,
    forward_flops,
    mixed_segments,
    segment,
    tiny_shape,
)
from mops.config.training import Stage, Training
from mops.data.batches import Batch, TokenTable
from mops.data.schedule import Schedule, plan_steps
from mops.evaluate.cost import analytic_costs, layer_flops, route_pieces, tm_relative
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.plans.shapes import Reading
from mops.training.step import compute_losses

ROWS = {"sentiment": 4, "paraphrase": 6, "similarity": 2}  # of a batch
PLANS = ("shared", "separate", "hybrid:2", "late:SIS", "pals:parallel", "frozen+late:SI")


def table(*lengths: int, per_row: int = 1) -> TokenTable:
    """Sequences of these lengths."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.zeros(int(starts[-1]), np.int32)
    return TokenTable(ids, ids, starts, per_row)


TABLES = {
    "sentiment": table(5, 7, 9),
    "paraphrase": table(10, 10, 16),
    "similarity": table(12, 20, 4),
}


def schedule(**settings: Any) -> Schedule:
    given = {"max_steps": 6, "per_task_batch_size": ROWS, **settings}
    return plan_steps(dict.fromkeys(NAMES, 3), Training(**given))


def costs_of(plan: str, reading: Reading | None = None, **settings: Any) -> dict[str, Any]:
    network = build_network(plan, reading=reading)
    return analytic_costs(network.layout, schedule(**settings), TABLES)


def one_task(network: Network, task: str) -> Batch:
    segments = tuple(s for s in mixed_segments(network) if s.tasks == (task,))
    return Batch(segments, {task: TARGETS[task]})


# ------------------------------------------------------------------ tm_relative


def test_tm_relative_by_hand() -> None:
    """A fifth better, in half the time, twice as large: 1.2 x 2 x 0.5."""
    assert tm_relative((0.6, 100.0, 8e6), (0.5, 200.0, 4e6)) == pytest.approx(1.2)


@pytest.mark.parametrize("score", [0.1, 1 / 3, 0.7531])
def test_tm_relative_of_the_baseline_is_exactly_one(score: float) -> None:
    own = (score, 0.1 + 0.2, 90_270_000 / 7)
    assert tm_relative(own, own) == 1.0


def test_tm_relative_without_meaning_is_none() -> None:
    assert tm_relative((0.5, 1.0, 1.0), (0.0, 1.0, 1.0)) is None
    assert tm_relative((0.5, 0.0, 1.0), (0.5, 1.0, 1.0)) is None


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize("plan", PLANS)
def test_weights_are_those_of_the_network(plan: str) -> None:
    network = build_network(plan)
    costs = analytic_costs(network.layout, schedule(), TABLES)
    sizes = {owner: sum(p.numel() for p in m.parameters()) for owner, m in network.bank.items()}
    learning = sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert costs["parameters"] == sum(p.numel() for p in network.parameters())
    assert costs["parameters_by_owner"] == sizes
    assert costs["trained_parameters"] == learning
    assert costs["weight_bytes"] == sum(p.nbytes for p in network.parameters())
    assert costs["training_state_bytes"] == 3 * 4 * learning


@pytest.mark.parametrize("plan", PLANS[:-1])
def test_weights_of_a_task_are_those_that_its_loss_reaches(plan: str) -> None:
    network = build_network(plan)
    costs = analytic_costs(network.layout, schedule(), TABLES)
    for task in NAMES:
        network.zero_grad(set_to_none=True)
        compute_losses(network, one_task(network, task))[task].backward()
        reached = sum(p.numel() for p in network.parameters() if p.grad is not None)
        assert costs["parameters_by_task"][task] == reached


def test_what_learns_in_any_stage_counts_as_trained() -> None:
    frozen, free = Stage(steps=2, frozen=True), Stage(steps=2)
    all_of_it = costs_of("shared")["parameters"]
    assert costs_of("shared", stages=(frozen, free))["trained_parameters"] == all_of_it
    assert costs_of("shared", stages=(frozen,))["trained_parameters"] < all_of_it / 10


# ------------------------------------------------------------------ FLOPs


@pytest.mark.parametrize("family", FAMILIES)
def test_flops_of_the_encoder_are_those_that_torch_counts(family: str) -> None:
    """Forward, of a sequence whose length and whose windows' lengths need no padding; torch counts
    attention where it has dropout."""
    network = build_network("shared", shape=tiny_shape(family), dropout=0.1).train()
    encoder = network.layout.encoder
    pack = pack_segments([segment(LONGEST, 0, NAMES[:1], types=encoder.types)], network.layout)
    with FlopCounterMode(display=False) as counter:
        encode(network.bank, pack)
    pieces = route_pieces(network.layout, NAMES[0], table(LONGEST))
    assert counter.get_total_flops() == sum(p.flops for p in pieces if p.stage <= encoder.depth)


def test_a_local_layer_grows_with_the_length_and_not_with_its_square() -> None:
    encoder = tiny_shape("modernbert")
    near, far = (layer_flops(encoder, n, encoder.reach) for n in (1000, 8000))
    assert far == pytest.approx(8 * near, rel=0.01)
    assert layer_flops(encoder, 8000) > 10 * far


def test_flops_of_an_example_by_hand() -> None:
    """The mean over rows of the encoder's; two for each weight of a late layer and the head."""
    network = build_network("late:SI")
    layout, found = network.layout, costs_of("late:SI")["flops_per_example"]
    late = 2 * (32 * 32 + 32)
    for task, lengths in {"sentiment": (5, 7, 9), "similarity": (12, 20, 4)}.items():
        forward = [forward_flops(layout.routes[task], layout.encoder, n) for n in lengths]
        by_hand = sum(forward) / 3 + 2 * (late + layout.sizes[f"head/{task}"])
        assert found[task] == pytest.approx(by_hand, rel=1e-12)


def test_texts_read_apart_pass_late_layers_twice() -> None:
    tables = {**TABLES, "similarity": table(12, 20, 4, 4, 8, 8, per_row=2)}
    plans = [build_network(plan, reading=Reading(pair="bi")) for plan in ("shared", "late:S")]
    plain, late = (analytic_costs(n.layout, schedule(), tables)["flops_per_example"] for n in plans)
    assert late["sentiment"] - plain["sentiment"] == pytest.approx(2 * (32 * 32 + 32))
    assert late["similarity"] - plain["similarity"] == pytest.approx(2 * 2 * (32 * 32 + 32))


def test_a_step_takes_three_forward_passes_where_all_learns() -> None:
    costs = costs_of("shared")
    forward = sum(ROWS[task] * flops for task, flops in costs["flops_per_example"].items())
    assert costs["flops_per_step"] == pytest.approx(3 * forward)
    for plan in ("separate", "hybrid:2"):
        assert costs_of(plan)["flops_per_step"] == pytest.approx(costs["flops_per_step"])


def test_r_drop_doubles_the_work_of_a_step() -> None:
    once, twice = (costs_of("shared", **more)["flops_per_step"] for more in ({}, {"r_drop": 1.0}))
    assert twice == pytest.approx(2 * once)


def test_what_is_frozen_from_the_bottom_up_is_no_work_of_a_step() -> None:
    """The first late layer has nothing below that learns: one pass back, the others two."""
    network, costs = build_network("frozen+late:SI"), costs_of("frozen+late:SI")
    late, sizes = 32 * 32 + 32, network.layout.sizes
    by_hand = sum(2 * n * (2 * late + 3 * late + 3 * sizes[f"head/{t}"]) for t, n in ROWS.items())
    assert costs["flops_per_step"] == pytest.approx(by_hand)


def test_a_stage_counts_by_its_steps() -> None:
    frozen, free = Stage(steps=3, frozen=True), Stage(steps=1)
    parts = [costs_of("shared", stages=(stage,))["flops_per_step"] for stage in (frozen, free)]
    both = costs_of("shared", stages=(frozen, free))["flops_per_step"]
    assert both == pytest.approx((3 * parts[0] + parts[1]) / 4)
