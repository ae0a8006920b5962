"""An ensemble trains each network as `take_step` trains it alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from building import THREE_TASKS, as_plan, segment, tiny_shape
from mops.config.training import Training
from mops.data.batches import Batch
from mops.data.schedule import PlannedStage
from mops.model.encoder import encode
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.plans.layout import lay_out
from mops.tasks import Task
from mops.training.ensemble import Ensemble, Member
from mops.training.optim import build_optimizer
from stepping import take_step

REGIMES = ("SSS", "SSI", "SIS", "ISS", "SII", "ISI", "IIS", "III")
GROUPED = ("late:ISS/sentiment+paraphrase", "late:SS/sentiment+similarity", "late:I", "shared")
SIZES = {"sentiment": 4, "paraphrase": 3, "similarity": 5}  # rows of a batch
HEADS: dict[str, dict[str, Any]] = {
    "linear": {"pair": "cross"},
    "cosine": {"pair": "bi", "head": {"similarity": {"kind": "cosine", "project": True}}},
    "learned cosine": {
        "pair": "bi",
        "features": ["concat", "sum"],
        "head": {"similarity": {"kind": "cosine", "scale": "learned", "norm": True}},
    },
    "mlp": {
        "pair": "bi",
        "pool": "pooler",
        "head": {"kind": "mlp", "depth": 2, "width": 12, "norm": True, "activation": "gelu"},
    },
}
WEIGHTED = (
    Task(**{**vars(THREE_TASKS[0]), "class_weights": (1.0, 2.0, 0.5, 1.0, 3.0)}),
    Task(**{**vars(THREE_TASKS[1]), "class_weights": (1.0, 4.0)}),
    THREE_TASKS[2],
)


def training(n: int, **more: Any) -> Training:
    """Settings that differ from network to network in all that may differ."""
    weights = {"sentiment": 1.0 + n / 4, "paraphrase": 0.5, "similarity": 2.0 / (n + 1)}
    decays = ("none", "linear", "cosine", "one-cycle")
    given = {
        "seed": n, "head_learning_rate": 0.003 * (n + 1), "loss_weights": weights,
        "weight_decay": 0.1 * n, "lr_scheduler_type": decays[n % 4],
        "max_grad_norm": (0.0, 0.5, 5.0)[n % 3], "per_task_batch_size": SIZES,
    }  # fmt: skip
    return Training.model_validate(given | more)


def build(plan: str, how: Training, tasks: tuple[Task, ...], dtype: torch.dtype) -> Network:
    """A frozen tiny encoder, the same for every network, with late layers and heads of its own."""
    reading = how.reading({task.name: task for task in tasks})
    layout = lay_out(as_plan(f"frozen+{plan}"), tasks, tiny_shape(depth=1), reading)
    network = Network(layout, dropout=0.1, head_dropout=how.head_dropout, seed=how.seed)
    trunk = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for owner, _, parameter in network.owner_parameters():
            if layout.rates[owner] == 0:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=trunk))
    return network.to(dtype)


def draw_batch(network: Network, seed: int, step: int, asked: tuple[str, ...]) -> Batch:
    """Rows of each task; which ones follows from the seed, as in a run."""
    draw = np.random.default_rng([seed, step])
    layout, segments, targets = network.layout, [], {}
    for name in asked:
        task, rows = layout.tasks[name], SIZES[name]
        for _ in range(rows * (1 + layout.reading.texts_apart(task.is_pair))):
            segments.append(segment(int(draw.integers(3, 12)), int(draw.integers(1000)), (name,)))
        high = 5.0 if task.range else len(task.labels)
        values = draw.random(rows) * high
        targets[name] = values if task.range else np.floor(values)
    return Batch(tuple(segments), targets, scale={name: 0.5 + len(name) % 3 for name in asked})


def as_vectors(networks: list[Network], batches: list[Batch]) -> tuple[Any, Any, Any]:
    """The same batches as frozen vectors, targets and factors on the losses."""
    vectors: dict[str, list[torch.Tensor]] = {}
    for network, batch in zip(networks, batches, strict=True):
        pack = pack_segments(batch.segments, network.eval().layout)
        with torch.no_grad():
            pooled = network.pool(encode(network.bank, pack), pack)
            for owner in next(iter(network.layout.routes.values())).pooler:
                pooled = network.bank[owner](pooled)
        for task, places in pack.task_segments.items():
            vectors.setdefault(task, []).append(pooled[places])
    targets = {task: np.stack([batch.targets[task] for batch in batches]) for task in vectors}
    return (
        {task: torch.stack(own) for task, own in vectors.items()},
        {task: torch.tensor(own, dtype=torch.float32) for task, own in targets.items()},
        batches[0].scale,
    )


def losses_of(
    plans: list[str],
    dtype: torch.dtype,
    *,
    steps: int,
    tasks: tuple[Task, ...] = THREE_TASKS,
    asked: tuple[tuple[str, ...], ...] = (tuple(SIZES),),
    **more: Any,
) -> tuple[torch.Tensor, torch.Tensor, list[Network], list[Network]]:
    """Losses and gradient norms of all steps, alone and stacked; and the networks at the end."""
    hows = [training(n, **more) for n in range(len(plans))]
    pairs = list(zip(plans, hows, strict=True))
    alone, stacked = ([build(plan, how, tasks, dtype) for plan, how in pairs] for _ in range(2))
    optimizers = [build_optimizer(net, how) for net, how in zip(alone, hows, strict=True)]
    ensemble = Ensemble(
        [
            Member(net, build_optimizer(net, how), PlannedStage(0, steps, how))
            for net, how in zip(stacked, hows, strict=True)
        ]
    )
    ours, expected = [], []
    for step in range(steps):
        now = asked[step % len(asked)]
        batches = [
            draw_batch(net, how.seed, step, now) for net, how in zip(alone, hows, strict=True)
        ]
        facts = ensemble.take_step(*as_vectors(stacked, batches), step)
        single = [
            take_step(net, optimizer, batch, how, step=step, total=steps)
            for net, optimizer, batch, how in zip(alone, optimizers, batches, hows, strict=True)
        ]
        for found, given in ((ours, facts), (expected, single)):
            found.append(
                [[f.loss, f.gradient_norm, *(f.losses.get(t, 0) for t in SIZES)] for f in given]
            )
    kind = torch.float64
    return torch.tensor(ours, dtype=kind), torch.tensor(expected, dtype=kind), stacked, alone


def furthest(ours: list[Network], theirs: list[Network]) -> float:
    """The largest difference of any weight."""
    return max(
        float((one.weights()[name] - weight).abs().max())
        for one, other in zip(ours, theirs, strict=True)
        for name, weight in other.weights().items()
    )


@pytest.mark.parametrize(("pair", "regimes"), [("bi", REGIMES[:4]), ("cross", REGIMES[4:])])
def test_losses_equal_those_of_each_network_alone(pair: str, regimes: tuple[str, ...]) -> None:
    plans = [f"late:{regime}" for regime in regimes]
    ours, expected, *_ = losses_of(plans, torch.float32, steps=30, pair=pair, head_dropout=0.0)
    assert expected[:, :, 0].std(0).min() > 1e-3  # something was learnt
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_weights_in_double_precision() -> None:
    plans = ["late:SIS", "late:ISS/sentiment+paraphrase"]
    ours, expected, stacked, alone = losses_of(
        plans, torch.float64, steps=30, head_dropout=0.0, **HEADS["cosine"]
    )
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert furthest(stacked, alone) < 1e-9


@pytest.mark.parametrize("head", HEADS)
def test_every_head_with_dropout_and_class_weights(head: str) -> None:
    """Each network draws the masks that it would draw alone."""
    more = {"head_dropout": 0.3, "tasks": WEIGHTED, **HEADS[head]}
    ours, expected, stacked, alone = losses_of([*GROUPED], torch.float64, steps=6, **more)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert furthest(stacked, alone) < 1e-9


def test_tasks_that_take_turns_leave_the_others_alone() -> None:
    """Owners without a gradient in a step neither move nor decay, as with torch's optimizer."""
    turns = (("sentiment",), ("similarity", "sentiment"), ("paraphrase",), tuple(SIZES))
    plans = ["late:SIS", "late:III", "late:SS/sentiment+similarity"]
    _, _, stacked, alone = losses_of(plans, torch.float64, steps=12, asked=turns, head_dropout=0.2)
    assert furthest(stacked, alone) < 1e-9
