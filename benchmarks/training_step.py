"""A training step of three tasks: mops beside `transformers` in a plain loop.

python -m benchmarks.training_step --data DIR
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import mops
from benchmarks.harness import arguments, compare_apart, limit, print_comparison, write_result
from benchmarks.reference import Reference, reference_step
from mops.data.batches import Batch
from mops.data.schedule import PlannedStage
from mops.evaluate.cost import layer_flops
from mops.model.network import Network
from mops.model.packing import pack_segments
from mops.model.pretrained import load_pretrained
from mops.tasks import Task
from mops.training.losses import Fixed
from mops.training.machine import has_bfloat16
from mops.training.optim import build_optimizer
from mops.training.prepare import Prepared, build_objective, choose_precision, prepare
from mops.training.step import Learner, take_step

TASKS = ("sentiment", "paraphrase", "similarity")
CASES = (("bi", 8), ("cross", 8), ("bi", 32), ("cross", 32))
DRAWN = 51  # batches, of which the one with the median number of tokens is measured


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--cases", nargs="*", help="as `bi 8`; default: all")
    options = parser.parse_args()
    cases = {}
    for pair, size in limit(CASES, options):
        if options.cases and f"{pair} {size}" not in options.cases:
            continue
        data = measure(options.data, options.encoder, pair, size, options.rounds)
        cases[f"{pair} {size}"] = data
        print_comparison(f"training step, {pair} pairs, {size} rows per task", data)
    print(
        write_result(
            "training_step", {"data": data_name(options.data), "cases": cases}, options.out
        )
    )


def data_name(data: str) -> str:
    return "sample" if data == "sample" else data.rstrip("/").rpartition("/")[2]


def measure(data: str, encoder: str, pair: str, size: int, rounds: int) -> dict[str, Any]:
    case = Case(data, encoder, pair, size)
    ready = prepare_case(case)
    batch = typical_batch(ready, size)
    folder = str(ready.source.folder)
    steps = {
        "transformers": partial(their_step, folder, dict(ready.layout.tasks), pair, batch),
        "mops": partial(our_step, case, batch, dropout=0.1),
        "mops without dropout": partial(our_step, case, batch, dropout=0.0),
    }
    if has_bfloat16("cpu"):
        theirs = partial(their_step, folder, dict(ready.layout.tasks), pair, batch, is_half=True)
        steps["transformers, bfloat16"] = theirs
        steps["mops, bfloat16"] = partial(our_step, case, batch, dropout=0.1, bf16=True)
    flops = 3 * linear_flops(ready, batch)  # backward is twice forward
    found = compare_apart(steps, flops=dict.fromkeys(steps, flops), rounds=rounds).to_data()
    return {**found, "tokens": batch_tokens(batch)}


@dataclass(frozen=True)
class Case:
    data: str
    encoder: str
    pair: str
    size: int
    plan: str = "shared"


def prepare_case(case: Case) -> Prepared:
    settings = {
        "training.pair": case.pair,
        "training.per_task_batch_size": case.size,
        "training.threads": 1,
        "training.max_steps": DRAWN,
        "training.pool": "mean",
        "training.features": ["difference", "product"],
    }
    recipe = mops.recipe(
        data=case.data, encoder=case.encoder, plan=case.plan, tasks=TASKS, set=settings
    )
    return prepare(recipe, lambda _: None)


def typical_batch(ready: Prepared, size: int) -> Batch:
    objective = build_objective(ready)
    places = objective.schedule.places
    drawn = [
        objective.take({task: places(task, size * n, size) for task in objective.data})
        for n in range(DRAWN)
    ]
    return sorted(drawn, key=batch_tokens)[DRAWN // 2]


def batch_tokens(batch: Batch) -> int:
    return sum(len(segment.ids) for segment in batch.segments)


def linear_flops(ready: Prepared, batch: Batch) -> float:
    """Forward, matrix products of the linear layers only, real tokens only."""
    encoder = ready.layout.encoder
    layer = layer_flops(encoder, 1) - 4 * encoder.width  # without attention
    return float(batch_tokens(batch) * encoder.depth * layer)


def our_step(case: Case, batch: Batch, dropout: float, bf16: bool = False) -> Callable[[], object]:
    ready = prepare_case(case)
    training = ready.recipe.training.model_copy(update={"bf16": bf16})
    network = Network(ready.layout, dropout=dropout, head_dropout=dropout)
    load_pretrained(network, ready.source)
    choose_precision(network, training)
    weighting = Fixed({task: training.weight(task) for task in network.layout.tasks})
    learner = Learner(network, build_optimizer(network, training), weighting)
    return lambda: take_step(learner, batch, PlannedStage(0, 1, training), 0)


def their_step(
    folder: str, tasks: dict[str, Task], pair: str, batch: Batch, is_half: bool = False
) -> Callable[[], object]:
    model = Reference(folder, tasks, pair)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)

    def step() -> object:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            return reference_step(model, optimizer, batch)

    return step


def our_forward(case: Case, batch: Batch) -> Callable[[], object]:
    """The outputs of all tasks: packing, encoder, heads."""
    ready = prepare_case(case)
    network = Network(ready.layout).eval()
    load_pretrained(network, ready.source)

    def forward() -> object:
        with torch.inference_mode():
            return network(pack_segments(batch.segments, network.layout))

    return forward


def their_forward(
    folder: str, tasks: dict[str, Task], pair: str, batch: Batch
) -> Callable[[], object]:
    """The same with padded batches, a task at a time."""
    model = Reference(folder, tasks, pair).eval()
    segments = {task: [s for s in batch.segments if task in s.tasks] for task in batch.targets}

    def forward() -> object:
        with torch.inference_mode():
            return [model(task, of) for task, of in segments.items()]

    return forward


if __name__ == "__main__":
    main()
