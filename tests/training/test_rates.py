"""Optimiser and schedules against the papers' rule, transformers and torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from building import DEPTH, NAMES, build_network, mixed_batch
from mops.config.training import Training
from mops.data.batches import Batch
from mops.data.schedule import PlannedStage
from mops.errors import PlanError
from mops.plans.rows import Copies, Rate, SharingPlan
from mops.plans.shapes import HeadShape, Reading
from mops.training.optim import (
    build_optimizer,
    clip,
    dense_gradients,
    owner_rates,
    rate_factor,
)
from mops.training.step import compute_losses
from stepping import take_step

POOLER = Reading(pool="pooler")


def training(**values: Any) -> Training:
    return Training(**{"max_steps": 20, "warmup_steps": 0, "lr_scheduler_type": "none"} | values)


# ------------------------------------------------------------------ AdamW


def papers_update(
    theta: torch.Tensor, gradients: list[torch.Tensor], rate: float, decay: float, epsilon: float
) -> torch.Tensor:
    """The founding paper's AdamW, 'efficient version'.

    alpha_t = alpha sqrt(1 - beta2^t) / (1 - beta1^t); theta' = theta - alpha_t m / (sqrt(v) + eps);
    theta = theta' - alpha w theta'
    """
    beta1, beta2 = 0.9, 0.999
    theta, m, v = theta.double(), torch.zeros(()), torch.zeros(())
    for t, gradient in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * gradient.double()
        v = beta2 * v + (1 - beta2) * gradient.double() ** 2
        alpha = rate * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        theta = theta - alpha * m / (v.sqrt() + epsilon)
        theta = theta - rate * decay * theta
    return theta


def test_adamw_is_the_papers_rule() -> None:
    """Over 20 steps with gradients of many sizes, for every weight of the network.

    The two differ only in epsilon, which torch multiplies by sqrt(1 - beta2^t): no gradient here
    is so near to zero that it matters.
    """
    network = build_network("late:I", reading=POOLER).double()
    how = training(learning_rate=1e-3, head_learning_rate=1.5e-3, weight_decay=0.01)
    optimizer = build_optimizer(network, how)
    parameters = list(network.owner_parameters())
    starts = [p.detach().clone() for _, _, p in parameters]
    gradients: list[list[torch.Tensor]] = [[] for _ in parameters]
    draw = torch.Generator().manual_seed(0)
    for step in range(20):
        for seen, (_, _, p) in zip(gradients, parameters, strict=True):
            drawn = torch.randn(p.shape, generator=draw, dtype=p.dtype)
            p.grad = (drawn + 0.5 * drawn.sign()) * 10 ** (step % 3)
            seen.append(p.grad.clone())
        optimizer.step()
    for start, seen, (owner, name, p) in zip(starts, gradients, parameters, strict=True):
        rate = 1.5e-3 if owner.startswith(("late", "head")) else 1e-3
        decay = 0.0 if "bias" in name or "norm" in owner or "norm" in name else 0.01
        expected = papers_update(start, seen, rate, decay, how.adam_epsilon)
        torch.testing.assert_close(p.detach(), expected, rtol=0, atol=1e-6)


def test_no_decay_on_biases_and_norms_and_on_the_line_of_a_cosine() -> None:
    head = HeadShape(kind="cosine", scale="learned", norm=True, project=True)
    network = build_network("shared", reading=Reading(pair="bi", heads={"similarity": head}))
    optimizer = build_optimizer(network, training(weight_decay=0.3))
    decays = {p: g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    without = {
        f"{owner}.{name}" for owner, name, p in network.owner_parameters() if decays[p] == 0.0
    }
    expected = {f"{o}.{n}" for o, n, _ in network.owner_parameters() if n.endswith("bias")}
    expected |= {
        f"{owner}.{name}.weight"
        for owner, module in network.bank.items()
        for name, inner in module.named_modules()
        if isinstance(inner, nn.LayerNorm)
    }
    assert without == expected | {"head/similarity.line"}
    assert set(decays.values()) == {0.0, 0.3}
    assert len(decays) == len(list(network.parameters()))


# ------------------------------------------------------------------ rates of owners


def test_rates_of_owners() -> None:
    """(encoder or head rate) x factor x layer_decay^(steps from the top)."""
    plan = SharingPlan(
        name="x",
        copies=(Copies(part="*", layers=(2, -1), per=("layer", "task")),),
        rates=(
            Rate(owner="attention/*", factor=0.5),
            Rate(owner="norms/layer00", factor=0.0),
            Rate(owner="head/sentiment", factor=3.0),
            Rate(owner="*", factor=1.0),
        ),
    )
    layout = build_network(plan, reading=POOLER).layout
    how = training(learning_rate=1e-4, head_learning_rate=1e-2, layer_decay=0.8)
    expected = {"embeddings": 1e-4 * 0.8**DEPTH, "pooler": 1e-4}
    for layer in range(DEPTH):
        for task in NAMES:
            tail = f"layer{layer:02d}" + (f"/{task}" if layer >= 2 else "")
            rate = 1e-4 * 0.8 ** (DEPTH - 1 - layer)
            expected[f"feedforward/{tail}"] = rate
            expected[f"attention/{tail}"] = 0.5 * rate
            expected[f"norms/{tail}"] = 0.0 if layer == 0 else rate
    expected |= {f"head/{task}": 3e-2 if task == "sentiment" else 1e-2 for task in NAMES}
    found = owner_rates(layout, how, layout.rates)
    assert set(found) == set(expected) == set(layout.sizes)
    assert all(found[owner] == pytest.approx(rate) for owner, rate in expected.items())


def test_optimizer_gives_each_owner_its_rate() -> None:
    network = build_network("frozen+late:SI", reading=POOLER)
    how = training(layer_decay=0.5)
    optimizer = build_optimizer(network, how)
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    for owner, _, parameter in network.owner_parameters():
        assert (
            rates.get(id(parameter), 0.0)
            == owner_rates(network.layout, how, network.layout.rates)[owner]
        )


def test_a_step_uses_the_rate_of_the_schedule() -> None:
    network = build_network("shared")
    how = training(lr_scheduler_type="linear", warmup_steps=2, max_steps=10)
    optimizer = build_optimizer(network, how)
    for step in (0, 1, 2, 9):
        take_step(network, optimizer, mixed_batch(network), how, step=step, total=10)
        for group in optimizer.param_groups:
            assert group["lr"] == group["base"] * rate_factor(PlannedStage(0, 10, how), step)


def test_a_plan_in_which_nothing_learns_is_refused_in_one_line() -> None:
    plan = SharingPlan(name="still", rates=(Rate(owner="*", factor=0.0),))
    with pytest.raises(PlanError, match="'still'"):
        build_optimizer(build_network(plan), training())


# ------------------------------------------------------------------ schedules


def factors(name: str, warmup: float, total: int) -> list[float]:
    how = training(lr_scheduler_type=name, warmup_steps=warmup)
    return [rate_factor(PlannedStage(0, total, how), step) for step in range(total)]


def theirs(scheduler: torch.optim.lr_scheduler.LRScheduler, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(scheduler.get_last_lr()[0])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=1.0)


@pytest.mark.parametrize("warmup", [0, 1, 30])
@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_linear_and_cosine_are_those_of_transformers(name: str, warmup: int) -> None:
    """Ours rises from 1/(w+1), so that no step is lost: transformers' rise shifted by one step."""
    import transformers

    build = getattr(transformers, f"get_{name}_schedule_with_warmup")
    ours = factors(name, warmup, 100)
    assert ours[warmup:] == pytest.approx(theirs(build(sgd(), warmup, 100), 100)[warmup:])
    rise = theirs(build(sgd(), warmup + 1, 101), 101)[1 : warmup + 1]
    assert ours[:warmup] == pytest.approx(rise)
    assert min(ours) > 0


def test_none_is_constant_after_the_warm_up() -> None:
    assert factors("none", 0, 5) == [1.0] * 5
    assert factors("none", 3, 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_one_cycle_is_that_of_torch() -> None:
    """The same start, peak and end; the same curve up to the shift of a step."""
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        sgd(), max_lr=1.0, total_steps=2000, cycle_momentum=False
    )
    expected = theirs(cycle, 1999)
    ours = factors("one-cycle", 0.3, 2000)
    assert max(abs(a - b) for a, b in zip(ours, expected, strict=False)) < 0.005
    assert ours[0] == pytest.approx(1 / 25, abs=1e-4)
    assert max(ours) == ours[600] == 1.0
    assert ours[-1] == pytest.approx(1 / 25e4, abs=1e-5)


@pytest.mark.parametrize(
    ("given", "total", "steps"),
    [(0, 100, 0), (0.1, 100, 10), (0.06, 50, 3), (1, 100, 1), (30, 100, 30), (0.999, 10, 10)],
)
def test_warm_up_is_a_number_or_a_share(given: float, total: int, steps: int) -> None:
    assert sum(factor < 1 for factor in factors("none", given, total)) == steps


@pytest.mark.parametrize("name", ["none", "linear", "cosine", "one-cycle"])
def test_a_run_of_one_step_learns(name: str) -> None:
    for warmup in (0, 0.1, 1, 5):
        assert 0 < factors(name, warmup, 1)[0] <= 1


# ------------------------------------------------------------------ clipping and weights of losses


def gradients(network: Any) -> torch.Tensor:
    return torch.cat(
        [p.grad.to_dense().flatten() for p in network.parameters() if p.grad is not None]
    )


@pytest.mark.parametrize("most", [0.0, 0.5, 1e9])
def test_clipping(most: float) -> None:
    """All gradients together are scaled to at most this norm; 0 only measures."""
    network = build_network("hybrid:2")
    sum(compute_losses(network, mixed_batch(network)).values()).backward()
    before = gradients(network).clone()
    norm = clip(network.parameters(), most)
    assert float(norm) == pytest.approx(float(before.norm()), rel=1e-5)
    assert float(norm) > 0.5
    factor = 0.5 / float(norm) if most == 0.5 else 1.0
    torch.testing.assert_close(gradients(network), before * factor, rtol=1e-4, atol=1e-7)


def test_gradients_of_words_are_rows_and_dense_for_the_optimizer_alone() -> None:
    """Two batches one after the other: nothing of the first is left in the second's gradient."""
    network = build_network("shared")
    word = network.bank["embeddings"].word.weight
    whole = mixed_batch(network)
    part = Batch(whole.segments[:4], {"sentiment": whole.targets["sentiment"]})
    for batch in (whole, part):
        network.zero_grad(set_to_none=True)
        sum(compute_losses(network, batch).values()).backward()
        assert word.grad.is_sparse
        expected = word.grad.coalesce().to_dense()  # each row summed once
        with dense_gradients(network):
            assert torch.equal(word.grad, expected)
        assert torch.equal(word.grad.to_dense(), expected)


def test_loss_of_a_step_is_the_weighted_sum() -> None:
    network = build_network("shared")
    batch = mixed_batch(network)
    losses = {task: float(x.detach()) for task, x in compute_losses(network, batch).items()}
    how = training(loss_weights={"sentiment": 0.0, "similarity": 2.0})
    facts = take_step(network, build_optimizer(network, how), batch, how, step=0, total=20)
    assert facts.losses == pytest.approx(losses)
    assert facts.loss == pytest.approx(losses["paraphrase"] + 2 * losses["similarity"])


def test_a_step_is_a_function_of_seed_and_number() -> None:
    """Dropout follows from seed and step alone, so a resumed run repeats the same step."""

    def weights_after(step: int, seed: int) -> torch.Tensor:
        network = build_network("shared", dropout=0.2, seed=1)
        how = training(seed=seed, learning_rate=1e-2)
        torch.manual_seed(99)
        for owner, _, p in network.owner_parameters():
            if not owner.startswith("head"):
                p.data.normal_(0, 0.1)
        torch.rand(step + seed)
        take_step(
            network, build_optimizer(network, how), mixed_batch(network), how, step=step, total=9
        )
        return torch.cat([p.detach().flatten() for p in network.parameters()])

    assert torch.equal(weights_after(3, 5), weights_after(3, 5))
    assert not torch.equal(weights_after(3, 5), weights_after(4, 5))
    assert not torch.equal(weights_after(3, 5), weights_after(3, 6))
