"""Additions in a pack: company changes no bits, many tasks may ask one text; how they start."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from building import (
    asking_together_changes_nothing,
    build_network,
    company_changes_nothing,
    mixed_batch,
    shake,
)
from mops.config.training import Training
from mops.model.network import Network
from mops.plans.shapes import Reading
from mops.training.optim import build_optimizer
from stepping import take_step

ADDING = ("pals:parallel", "pals:both-same", "lora:8", "adapters:64", "embert", "bitfit")
OPEN_TOP = {  # a plan whose tasks part only after the last layer
    "name": "tops",
    "additions": [
        {
            "name": "top",
            "kind": "pal",
            "sites": ["on_top"],
            "depth": 2,
            "per": {"down": [], "attend": ["layer", "task"], "up": [], "gate": ["task"]},
            "groups": [["sentiment", "paraphrase"]],
        }
    ],
}
over_plans = pytest.mark.parametrize(
    "plan", [*ADDING, "progressive", OPEN_TOP], ids=lambda plan: str(plan)[:20]
)


def moved(plan: Any, folder: Any, reading: Reading | None = None) -> Network:
    network = build_network(plan, folder("bert"), reading=reading)
    names = tuple(f"{row.name}_" for row in network.layout.plan.additions)
    for n, (owner, module) in enumerate(network.bank.items()):
        if names and owner.startswith(names):
            shake(module, seed=n, size=0.3)
    return network


@over_plans
def test_company_never_changes_a_segment(plan: Any, encoder_folder: Any) -> None:
    """The outputs of a segment alone = its outputs among any others, bit by bit."""
    network = moved(plan, encoder_folder)
    company_changes_nothing(network)


@over_plans
def test_a_text_that_many_tasks_ask_gets_what_each_alone_gets(
    plan: Any, encoder_folder: Any
) -> None:
    network = moved(plan, encoder_folder)
    asking_together_changes_nothing(network)


# ------------------------------------------------------------------ the first steps


TRAINING = Training(
    max_steps=2, learning_rate=1e-3, head_learning_rate=1e-3, warmup_steps=0, weight_decay=0.0
)


def parts_after_each_step(plan: str, folder: Any) -> tuple[set[str], set[str]]:
    """Which parts of the additions moved in the first step, and which in the first two."""
    network = build_network(plan, folder("bert"))
    before = {key: value.clone() for key, value in network.weights().items()}
    optimizer, batch, found = build_optimizer(network, TRAINING), mixed_batch(network), []
    names = tuple(f"{row.name}_" for row in network.layout.plan.additions)
    for step in range(2):
        take_step(network, optimizer, batch, TRAINING, step=step, total=2)
        found.append(
            {
                key.split("/")[0].split(".")[0].rsplit("_", 1)[1]
                for key, value in network.weights().items()
                if key.startswith(names) and not torch.equal(value, before[key])
            }
        )
    return found[0], found[1]


@pytest.mark.parametrize(
    ("plan", "first", "second"),
    [
        ("pals:parallel", {"up"}, {"up", "attend", "down"}),
        ("pals:parallel-weighted", {"up"}, {"up", "attend", "down", "gate"}),
        ("pals:top", {"up"}, {"up", "attend", "down"}),
        ("lora:4", {"up"}, {"up", "down"}),
        ("frozen+adapters:4", {"up"}, {"up", "down"}),
        ("embert", {"vector"}, {"vector"}),
    ],
)
def test_what_is_zero_moves_first_and_the_rest_follows(
    plan: str, first: set[str], second: set[str], encoder_folder: Any
) -> None:
    """The last projection starts at zero, so what is before it learns from the second step on."""
    assert parts_after_each_step(plan, encoder_folder) == (first, second)


@pytest.mark.parametrize("bound", [0.0, 2.0])
def test_a_gate_never_starts_at_zero(bound: float) -> None:
    per = {"down": ["task"], "up": ["task"], "gate": ["layer"]}
    row = {"name": "new", "kind": "bottleneck", "sites": ["beside_layer"], "per": per}
    network = build_network({"name": "gated", "additions": [{**row, "bound": bound}]})
    gates = [m for owner, m in network.bank.items() if owner.startswith("new_gate")]
    assert len(gates) == network.layout.encoder.depth
    for gate in gates:
        torch.testing.assert_close(gate(torch.ones(3)), torch.ones(3))
