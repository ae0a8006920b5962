"""Soft sharing: the pull against autograd's gradient of the L2 terms, and what it does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from building import DEPTH, NAMES, build_network, mixed_batch, shake
from mops.config.training import Training
from mops.data.batches import Batch
from mops.errors import PlanError
from mops.model.network import Network
from mops.plans.catalog import parse_plan
from mops.plans.shapes import Reading
from mops.training.optim import build_optimizer, keep_anchors, pull
from mops.training.prepare import build_trainer, prepare
from mops.training.step import compute_losses
from mops.training.tracking import Watcher
from running import world
from stepping import take_step

PARTS = ("attention", "feedforward", "norms")
OWN = [{"part": "*", "per": ["layer", "task"]}]
TO_START = {
    "name": "start",
    "copies": OWN,
    "pull": [
        {"owner": "attention/layer01/*", "strength": 0.5, "towards": "start"},
        {"owner": "embeddings/sentiment", "strength": 2.0, "towards": "start"},
    ],
}
MIXED = {  # the first row that covers an owner counts
    "name": "mixed",
    "copies": OWN,
    "pull": [
        {"owner": "norms/layer02/*", "strength": 3.0},
        {"owner": "norms/*", "strength": 0.5},
        {"owner": "pooler/p*", "strength": 0.25, "towards": "start"},
    ],
}
TREE = {  # two tasks share a copy: two copies, not three
    "name": "tree",
    "copies": [{**OWN[0], "groups": [["paraphrase", "similarity"]]}],
    "pull": [{"owner": "feedforward*", "strength": 0.1}],
}
ADDED = {  # copies of an addition, and late layers
    "name": "added",
    "late": [{"per": ["task"]}],
    "additions": [
        {
            "name": "new",
            "kind": "bottleneck",
            "sites": ["beside_layer"],
            "size": 4,
            "per": {"down": ["layer", "task"], "up": ["task"]},
        }
    ],
    "pull": [{"owner": "new_*", "strength": 0.5}, {"owner": "late1*", "strength": 1.5}],
}


def spread(plan: Any, seed: int = 0) -> Network:
    """A network whose copies are all different."""
    network = build_network(plan, reading=Reading(pool="pooler"))
    for n, module in enumerate(network.bank.values()):
        shake(module, seed=seed + n, size=0.2)
    return network.double()


def apart(network: Network, owners: list[str], strength: float) -> Tensor:
    """strength x sum of |w - mean|^2 over the copies."""
    total = torch.zeros(()).double()
    for same in zip(*(network.bank[owner].parameters() for owner in owners), strict=True):
        mean = sum(same) / len(same)
        total = total + sum((w - mean).square().sum() for w in same)
    return strength * total


def away(network: Network, owner: str, start: dict[str, Tensor], strength: float) -> Tensor:
    """strength x |w - w0|^2."""
    return strength * sum(
        (w - start[f"{owner}.{name}"]).square().sum()
        for name, w in network.bank[owner].named_parameters()
    )


def soft_terms(network: Network, start: dict[str, Tensor]) -> Iterator[Tensor]:
    places = [f"{part}/layer{n:02d}" for part in PARTS for n in range(DEPTH)]
    for place in ("embeddings", *places, "pooler"):
        yield apart(network, [f"{place}/{task}" for task in NAMES], 0.3)


def start_terms(network: Network, start: dict[str, Tensor]) -> Iterator[Tensor]:
    yield from (away(network, f"attention/layer01/{task}", start, 0.5) for task in NAMES)
    yield away(network, "embeddings/sentiment", start, 2.0)


def mixed_terms(network: Network, start: dict[str, Tensor]) -> Iterator[Tensor]:
    for n in range(DEPTH):
        strength = 3.0 if n == 2 else 0.5
        yield apart(network, [f"norms/layer{n:02d}/{task}" for task in NAMES], strength)
    yield away(network, "pooler/paraphrase", start, 0.25)


def tree_terms(network: Network, start: dict[str, Tensor]) -> Iterator[Tensor]:
    for n in range(DEPTH):
        groups = ("sentiment", "paraphrase+similarity")
        yield apart(network, [f"feedforward/layer{n:02d}/{group}" for group in groups], 0.1)


def added_terms(network: Network, start: dict[str, Tensor]) -> Iterator[Tensor]:
    for n in range(DEPTH):
        yield apart(network, [f"new_down/layer{n:02d}/{task}" for task in NAMES], 0.5)
    yield apart(network, [f"new_up/{task}" for task in NAMES], 0.5)
    yield apart(network, [f"late1/{task}" for task in NAMES], 1.5)


@pytest.mark.parametrize(
    ("plan", "terms"),
    [
        ("soft:0.3", soft_terms),
        (TO_START, start_terms),
        (MIXED, mixed_terms),
        (TREE, tree_terms),
        (ADDED, added_terms),
    ],
    ids=["soft", "start", "mixed", "tree", "added"],
)
def test_the_gradient_is_that_of_the_l2_terms(plan: Any, terms: Any) -> None:
    network = spread(plan)
    start = keep_anchors(network)
    for n, module in enumerate(network.bank.values()):
        shake(module, seed=100 + n, size=0.1)
    everything = dict(network.named_parameters())
    found = torch.autograd.grad(
        sum(terms(network, start)), list(everything.values()), allow_unused=True
    )
    pull(network, start, Training())
    for (name, parameter), expected in zip(everything.items(), found, strict=True):
        if expected is None:
            assert parameter.grad is None, name
        else:
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-12, msg=name)


def test_it_is_added_to_the_gradient_of_the_losses() -> None:
    network, plain = spread("soft:0.3"), spread("separate")
    plain.load_state_dict(network.state_dict())
    batch = mixed_batch(network)
    for each in (network, plain):
        sum(compute_losses(each, batch).values()).backward()
    for term in soft_terms(plain, {}):
        term.backward()
    pull(network, {}, Training())
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad.to_dense(), rtol=1e-7, atol=1e-9)


# ------------------------------------------------------------------ over steps


def training_of(**more: Any) -> Training:
    plain = {"max_steps": 30, "warmup_steps": 0, "weight_decay": 0.0, "max_grad_norm": 0.0}
    rates = {"learning_rate": 3e-3, "head_learning_rate": 3e-3}
    return Training(**plain | rates | more)


def distance(network: Network) -> float:
    with torch.no_grad():
        return float(sum(soft_terms(network, {})))


def steps_of(network: Network, batch: Batch, training: Training, count: int) -> Iterator[float]:
    optimizer = build_optimizer(network, training)
    for step in range(count):
        take_step(network, optimizer, batch, training, step=step, total=count)
        yield distance(network)


def test_copies_meet_when_only_the_pull_acts() -> None:
    """Also those of tasks that are not in the step: only `sentiment` has rows here."""
    network = spread("soft:0.01").float()
    batch = mixed_batch(network)
    own = tuple(each for each in batch.segments if each.tasks == ("sentiment",))
    alone = Batch(own, {"sentiment": batch.targets["sentiment"]})
    weightless = training_of(learning_rate=1e-2, loss_weights=dict.fromkeys(NAMES, 1e-12))
    before = network.bank["attention/layer00/similarity"].output.weight.clone()  # type: ignore
    first = distance(network)
    found = [first, *steps_of(network, alone, weightless, 20)]
    assert all(later < earlier for earlier, later in pairwise(found))
    assert found[-1] < 0.8 * first
    after = network.bank["attention/layer00/similarity"].output.weight  # type: ignore
    assert not torch.equal(before, after)


def test_a_strong_pull_keeps_copies_together() -> None:
    """Copies that start as one stay together under a strong pull, and part without one."""
    ends = {}
    for plan in ("soft:1000", "soft:0.000001"):
        network = build_network(plan, reading=Reading(pool="pooler"))
        for module, first in copies_and_first(network):
            module.load_state_dict(first.state_dict())
        assert distance(network) < 1e-6
        *_, ends[plan] = steps_of(network, mixed_batch(network), training_of(), 12)
    assert ends["soft:1000"] < 0.05 * ends["soft:0.000001"]


def copies_and_first(network: Network) -> Iterator[tuple[Any, Any]]:
    """Every copy, and that of the first task."""
    for owner, module in network.bank.items():
        if not owner.startswith("head/"):
            yield module, network.bank[f"{owner.rsplit('/', 1)[0]}/{NAMES[0]}"]


# ------------------------------------------------------------------ what is kept, what is refused


def test_only_what_is_pulled_to_its_start_is_kept() -> None:
    kept = {key.split(".")[0] for key in keep_anchors(spread(TO_START))}
    assert kept == {f"attention/layer01/{task}" for task in NAMES} | {"embeddings/sentiment"}
    assert keep_anchors(spread("soft:0.1")) == {}


def test_the_start_does_not_move_with_the_weights() -> None:
    network = spread(TO_START)
    start = keep_anchors(network)
    before = {key: value.clone() for key, value in start.items()}
    shake(network, seed=1)
    assert all(torch.equal(start[key], before[key]) for key in before)


def test_a_resumed_run_pulls_to_the_first_weights(tmp_path: Path) -> None:
    """Two loops over one folder: the second goes on from moved weights, its start is the same."""
    recipe = world().recipe(TO_START, training__save_steps=3)
    ready = prepare(recipe, lambda _: None)
    first = build_trainer(tmp_path, ready)
    begun = {key: value.clone() for key, value in first.learner.anchors.items()}
    first.run(Watcher())
    again = build_trainer(tmp_path, ready)
    assert again.state.step == first.state.step > 0
    assert begun and set(begun) == set(again.learner.anchors)
    for key, value in again.learner.anchors.items():
        assert torch.equal(value, begun[key])
        owner, name = key.split(".", 1)
        assert not torch.equal(again.network.bank[owner].get_parameter(name), value)


@pytest.mark.parametrize("given", ["soft", "soft:", "soft:0", "soft:-1", "soft:x", "soft:nan"])
def test_a_strength_is_above_zero(given: str) -> None:
    with pytest.raises(PlanError, match=r"a number above 0, as soft:0\.01"):
        parse_plan(given)
