"""The first steps of adapters: they start at the identity and still learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from building import build_network, mixed_batch
from mops.config.training import Training
from mops.training.optim import build_optimizer
from stepping import take_step

TRAINING = Training(
    max_steps=2, learning_rate=1e-3, head_learning_rate=1e-3, warmup_steps=0, weight_decay=0.0
)


def parts_after_each_step(plan: str, folder: Any) -> tuple[set[str], set[str]]:
    """The parts of the adapters that moved in the first step, and in the first two."""
    network = build_network(plan, folder("bert"))
    before = {key: value.clone() for key, value in network.weights().items()}
    optimizer, batch, moved = build_optimizer(network, TRAINING), mixed_batch(network), []
    names = tuple(f"{row.name}_" for row in network.layout.plan.additions)
    for step in range(2):
        take_step(network, optimizer, batch, TRAINING, step=step, total=2)
        moved.append(
            {
                key.split("/")[0].split(".")[0].rsplit("_", 1)[1]
                for key, value in network.weights().items()
                if key.startswith(names) and not torch.equal(value, before[key])
            }
        )
    return moved[0], moved[1]


@pytest.mark.parametrize(
    ("plan", "first", "second"),
    [
        ("pals:parallel", {"up"}, {"up", "attend", "down"}),
        ("pals:parallel-weighted", {"up"}, {"up", "attend", "down", "gate"}),
        ("pals:top", {"up"}, {"up", "attend", "down"}),
        ("lora:4", {"up"}, {"up", "down"}),
        ("frozen+adapters:4", {"up"}, {"up", "down"}),
        ("embert", {"vector"}, {"vector"}),
        ("pals:parallel-gelu", {"up"}, {"up", "attend", "down"}),
        ("low-rank:4", {"up"}, {"up", "down"}),
        ("experts:2", {"up"}, {"up", "down", "router"}),
        ("lhuc", {"vector"}, {"vector"}),
    ],
)
def test_the_last_projection_learns_first_and_the_rest_follows(
    plan: str, first: set[str], second: set[str], encoder_folder: Any
) -> None:
    """The last projection starts at zero, so the parts before it have no gradient at first."""
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
