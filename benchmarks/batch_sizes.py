"""A training step of three tasks against the rows per task: mops beside padded batches.

python -m benchmarks.batch_sizes --data DIR
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.harness import arguments, compare_apart, limit, print_comparison, write_result
from benchmarks.training_step import (
    Case,
    batch_tokens,
    data_name,
    linear_flops,
    our_step,
    prepare_case,
    their_step,
    typical_batch,
)
from mops.training.prepare import Prepared

SIZES = (1, 2, 4, 8, 16, 32, 64)
PAIR = "bi"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    case = Case(options.data, options.encoder, PAIR, max(SIZES))
    ready = prepare_case(case)
    cases = {}
    for size in limit(SIZES, options):
        data = measure(case, ready, size, options.rounds)
        cases[str(size)] = data
        print_comparison(f"training step, {PAIR} pairs, {size} rows per task", data)
    facts = {"data": data_name(options.data), "pair": PAIR, "cases": cases}
    print(write_result("batch_sizes", facts, options.out))


def measure(case: Case, ready: Prepared, size: int, rounds: int) -> dict[str, Any]:
    batch = typical_batch(ready, size)
    folder = str(ready.source.folder)
    steps = {
        "transformers": partial(their_step, folder, dict(ready.layout.tasks), PAIR, batch),
        "mops": partial(our_step, case, batch, dropout=0.1),
    }
    flops = 3 * linear_flops(ready, batch)  # backward is twice forward
    found = compare_apart(steps, flops=dict.fromkeys(steps, flops), rounds=rounds).to_data()
    return {"tokens": batch_tokens(batch), **found}


if __name__ == "__main__":
    main()
