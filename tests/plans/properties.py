"""What must hold for every plan: each property is a function that fails with a reason."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from building import (
    ENTRIES,
    LONGEST,
    build_network,
    hidden_of,
    mixed_batch,
    mixed_segments,
    outputs_of,
    shake,
    tiny_shape,
    tiny_tokenizer,
)
from mops.config.training import Training
from mops.data.batches import Batch
from mops.model.blocks import ACTIVATIONS
from mops.model.network import Network
from mops.plans.catalog import read_plan
from mops.plans.rows import SharingPlan
from mops.plans.shapes import HeadShape, Reading
from mops.predict.bundle import load_bundle, save_bundle
from mops.training.optim import build_optimizer, keep_anchors
from mops.training.step import compute_losses
from mops.yaml_io import format_yaml, parse_yaml
from stepping import take_step

READING = Reading(
    pair="bi",
    pool="pooler",
    max_length=LONGEST,
    heads={
        "sentiment": HeadShape(kind="mlp", depth=2, width=12, norm=True),
        "similarity": HeadShape(kind="cosine", project=True, scale="learned"),
    },
)
FED = replace(READING, heads={**READING.heads, "similarity": HeadShape()})  # no feed into a cosine
TRAINING = Training(
    max_steps=3, weight_decay=0.5, learning_rate=1e-2, head_learning_rate=1e-2, warmup_steps=0
)
SHARED_FUNCTIONS = tuple(ACTIVATIONS.values())  # without weights and without a mode


def reading_for(plan: SharingPlan) -> Reading:
    return FED if plan.feeds else READING


def build(plan: SharingPlan, family: str, **options: Any) -> Network:
    return build_network(plan, shape=tiny_shape(family), reading=reading_for(plan), **options)


def moved_network(plan: SharingPlan, family: str) -> Network:
    """Additions start at identity, where some of their parts have no effect yet."""
    network = build(plan, family)
    for owner in network.layout.sizes:
        if owner.startswith(tuple(f"{addition.name}_" for addition in plan.additions)):
            shake(network.bank[owner], seed=2, size=0.2)
    return network


def has_a_copy_per_layer(network: Network) -> bool:
    """No owner serves two layers, so each can start as the weights of its own layer."""
    layers = defaultdict(set)
    for route in network.layout.routes.values():
        for n, layer in enumerate(route.layers):
            for owner in layer.values():
                layers[owner].add(n)
    return all(len(served) == 1 for served in layers.values())


def counts_are_those_of_the_built_network(plan: SharingPlan, family: str) -> None:
    """sizes[o] of the plan = numel of everything the bank holds under o, for all o, and no more."""
    network = build(plan, family)
    built: dict[str, int] = defaultdict(int)
    for owner, _, parameter in network.owner_parameters():
        built[owner] += parameter.numel()
    assert dict(network.layout.sizes) == dict(built)
    assert network.layout.parameters == sum(p.numel() for p in network.parameters())
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert network.layout.trained == trained


def no_two_names_share_memory(plan: SharingPlan, family: str) -> None:
    """The storages of all tensors of the checkpoint are disjoint."""
    weights = build(plan, family).weights()
    places = {tensor.untyped_storage().data_ptr() for tensor in weights.values()}
    assert len(places) == len(weights)


def an_owner_changes_exactly_the_tasks_routed_through_it(plan: SharingPlan, family: str) -> None:
    """Moving the weights of o changes the outputs of t, bit by bit, if and only if o is on t's
    route."""
    network = moved_network(plan, family)
    segments = mixed_segments(network, lengths=(3, 8))
    before = outputs_of(network, segments)
    for owner, users in network.layout.users.items():
        kept = {key: value.clone() for key, value in network.bank[owner].state_dict().items()}
        shake(network.bank[owner], seed=1, size=0.5)
        after = outputs_of(network, segments)
        changed = tuple(t for t in network.layout.tasks if not torch.equal(before[t], after[t]))
        assert changed == users, owner
        network.bank[owner].load_state_dict(kept)


def a_loss_reaches_exactly_its_route(plan: SharingPlan, family: str) -> None:
    """In a batch of all tasks the gradient of one task's loss is zero on owners off its route and
    on frozen ones, and not zero on all others; in a batch of one task the others have none."""
    network = moved_network(plan, family)
    layout, batch = network.layout, mixed_batch(network)
    losses = compute_losses(network, batch)
    for task in layout.tasks:
        learning = {owner for owner in layout.routes[task].trained if layout.rates[owner] > 0}
        own = tuple(segment for segment in batch.segments if segment.tasks == (task,))
        alone = compute_losses(network, Batch(own, {task: batch.targets[task]}))
        for loss, is_reached in ((losses[task], torch.any), (alone[task], lambda _: True)):
            network.zero_grad(set_to_none=True)
            if loss.requires_grad:
                loss.backward(retain_graph=True)
            gradients = ((owner, p.grad) for owner, _, p in network.owner_parameters())
            assert {
                o for o, g in gradients if g is not None and is_reached(g.to_dense())
            } == learning, task


def frozen_owners_never_move(plan: SharingPlan, family: str) -> None:
    """Over three steps with weight decay and dropout a frozen owner keeps its bits, has no
    optimizer state and stays in eval mode; every other owner moves."""
    network = build(plan, family, dropout=0.1)
    rates = network.layout.rates
    if not any(rates.values()):
        return
    before = {key: value.clone() for key, value in network.weights().items()}
    optimizer, start = build_optimizer(network, TRAINING), keep_anchors(network)
    batch = mixed_batch(network)
    for step in range(3):
        take_step(network, optimizer, batch, TRAINING, step=step, total=3, anchors=start)
    moved = {
        key.split(".")[0]
        for key, value in network.weights().items()
        if not torch.equal(value, before[key])
    }
    assert moved == {owner for owner, rate in rates.items() if rate > 0}
    states = {owner for owner, _, p in network.owner_parameters() if p in optimizer.state}
    assert states == moved
    network.train()
    for owner, module in network.bank.items():
        modes = {inner.training for inner in module.modules() if inner not in SHARED_FUNCTIONS}
        assert modes == {rates[owner] > 0}, owner


def frozen_parts_give_the_same_in_training(plan: SharingPlan, family: str) -> None:
    """Where the whole trunk is frozen, training mode changes no hidden state (no dropout)."""
    network = build(plan, family, dropout=0.5)
    segments = mixed_segments(network)
    trunk = [owner for r in network.layout.routes.values() for s in r.stages for owner in s]
    if any(network.layout.rates[owner] for owner in trunk):
        return
    quiet = hidden_of(network, segments, "similarity")
    network.train()
    assert all(map(torch.equal, quiet, hidden_of(network, segments, "similarity")))


def plan_to_yaml_to_plan_is_equal(plan: SharingPlan, family: str) -> None:
    """read_plan(YAML text of the plan) == plan."""
    assert read_plan(parse_yaml(format_yaml(plan.to_data()))) == plan


def a_bundle_answers_the_same_from_disk(plan: SharingPlan, family: str, folder: object) -> None:
    """save, load, answer: bit-equal outputs; equal plan, tasks, reading and rates."""
    network = build(plan, family, seed=5)
    segments = mixed_segments(network)
    save_bundle(folder, network, tiny_tokenizer(), ENTRIES, {})  # type: ignore[arg-type]
    bundle = load_bundle(folder)  # type: ignore[arg-type]
    assert bundle.layout == network.layout
    before, after = outputs_of(network, segments), outputs_of(bundle.network, segments)
    for task in before:
        assert torch.equal(before[task], after[task]), task


def hidden_states_start_as_those_of_the_encoder(
    network: Network, expected: dict[str, list[Tensor]]
) -> None:
    """With pretrained weights, every token of every task's segments is what it gives."""
    segments = mixed_segments(network)
    for task, states in expected.items():
        for ours, theirs in zip(hidden_of(network, segments, task), states, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


PROPERTIES = (
    counts_are_those_of_the_built_network,
    no_two_names_share_memory,
    an_owner_changes_exactly_the_tasks_routed_through_it,
    a_loss_reaches_exactly_its_route,
    frozen_owners_never_move,
    frozen_parts_give_the_same_in_training,
    plan_to_yaml_to_plan_is_equal,
)
