"""A training step above a frozen prefix, with and without the cache of its outputs.

python -m benchmarks.frozen_prefix --data DIR
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import arguments, compare, limit, print_comparison, write_result
from benchmarks.training_step import Case, batch_tokens, data_name, prepare_case, typical_batch
from mops.data.batches import Batch
from mops.data.schedule import PlannedStage
from mops.model.network import Network
from mops.model.packing import Packer
from mops.model.pretrained import load_pretrained
from mops.store import Store
from mops.training.feature_cache import open_cache
from mops.training.losses import Fixed
from mops.training.optim import build_optimizer
from mops.training.prepare import Prepared
from mops.training.step import Learner, compute_losses, take_step

CASES = (("bi", 8), ("cross", 8))
REFERENCE = "shared"
STEPS = 5  # of each alternative in a round: a step from the cache is short


def plans(depth: int) -> tuple[str, str]:
    """All frozen; all but the last two layers frozen."""
    return "frozen+late:SIS", f"layers:{'F' * (depth - 2)}SI"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for pair, size in limit(CASES, options):
            case = Case(options.data, options.encoder, pair, size, REFERENCE)
            data = measure(case, options.rounds, Store(Path(folder)))
            cases[f"{pair} {size}"] = data
            print_comparison(f"{STEPS} training steps, {pair} pairs, {size} rows per task", data)
    facts = {"data": data_name(options.data), "steps": STEPS, "cases": cases}
    print(write_result("frozen_prefix", facts, options.out))


def measure(case: Case, rounds: int, store: Store) -> dict[str, Any]:
    ready = prepare_case(case)
    batch = typical_batch(ready, case.size)
    steps = {REFERENCE: make_step(build(ready), ready, batch)}
    for plan in plans(ready.layout.encoder.depth):
        here = prepare_case(replace(case, plan=plan))
        network = build(here)
        cache = open_cache(network, store)
        assert cache is not None
        for task in here.layout.tasks:
            cache.fill(task, [s for s in batch.segments if s.tasks == (task,)])
        steps[plan] = make_step(network, here, batch)
        steps[f"{plan}, cached"] = make_step(network, here, batch, cache.pack)
    found = compare(steps, rounds=rounds).to_data()
    return {**found, "tokens": batch_tokens(batch), "sequences": len(batch.segments)}


def build(ready: Prepared) -> Network:
    network = Network(ready.layout, dropout=0.1, head_dropout=0.1)
    load_pretrained(network, ready.source)
    return network


def make_step(
    network: Network, ready: Prepared, batch: Batch, pack: Packer | None = None
) -> Callable[[], None]:
    training = ready.recipe.training
    weighting = Fixed({task: training.weight(task) for task in network.layout.tasks})
    learner = Learner(network, build_optimizer(network, training), weighting)
    losses = partial(compute_losses, pack=pack)

    def run() -> None:
        for _ in range(STEPS):
            take_step(learner, batch, PlannedStage(0, 1, training), 0, losses)

    return run


if __name__ == "__main__":
    main()
