"""A training step above a frozen prefix: computed anew, and with what the cache has kept.

python -m benchmarks.frozen_prefix --data DIR
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import arguments, compare, few, print_comparison, write_result
from benchmarks.training_step import Case, batch_tokens, data_name, made_ready, typical_batch
from mops.data.batches import Batch
from mops.model.network import Network
from mops.model.packing import Packer
from mops.model.pretrained import load_pretrained
from mops.store import Store
from mops.training.feature_cache import open_cache
from mops.training.optim import build_optimiser
from mops.training.prepare import Prepared
from mops.training.step import take_step

CASES = (("bi", 8), ("cross", 8))
REFERENCE = "shared"
STEPS = 5  # of each alternative in a round: a step from the cache is short


def plans(depth: int) -> tuple[str, str]:
    """All frozen; all but the last two layers frozen."""
    return "frozen+late:SIS", f"layers:{'F' * (depth - 2)}SI"


def main() -> None:
    asked = arguments(__doc__ or "").parse_args()
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for pair, size in few(CASES, asked):
            case = Case(asked.data, asked.encoder, pair, size, REFERENCE)
            data = measure(case, asked.rounds, Store(Path(folder)))
            cases[f"{pair} {size}"] = data
            print_comparison(f"{STEPS} training steps, {pair} pairs, {size} rows per task", data)
    facts = {"data": data_name(asked.data), "steps": STEPS, "cases": cases}
    print(write_result("frozen_prefix", facts, asked.out))


def measure(case: Case, rounds: int, store: Store) -> dict[str, Any]:
    ready = made_ready(case)
    batch = typical_batch(ready, case.size)
    steps = {REFERENCE: step_of(build(ready), ready, batch)}
    for plan in plans(ready.layout.encoder.depth):
        here = made_ready(replace(case, plan=plan))
        network = build(here)
        cache = open_cache(network, store)
        assert cache is not None
        for task in here.layout.tasks:
            cache.fill(task, [s for s in batch.segments if s.tasks == (task,)])
        steps[plan] = step_of(network, here, batch)
        steps[f"{plan}, cached"] = step_of(network, here, batch, cache.pack)
    found = compare(steps, rounds=rounds).to_data()
    return {**found, "tokens": batch_tokens(batch), "sequences": len(batch.segments)}


def build(ready: Prepared) -> Network:
    network = Network(ready.layout, dropout=0.1, head_dropout=0.1)
    load_pretrained(network, ready.source)
    return network


def step_of(
    network: Network, ready: Prepared, batch: Batch, pack: Packer | None = None
) -> Callable[[], None]:
    training = ready.recipe.training
    optimiser = build_optimiser(network, training)

    def run() -> None:
        for _ in range(STEPS):
            take_step(network, optimiser, batch, training, step=0, total=1, pack=pack)

    return run


if __name__ == "__main__":
    main()
