"""A training step and a prediction against the length of the texts: mops beside padded batches.

python -m benchmarks.lengths

One task, random words, the same number of tokens at every length. A sequence has between half of
the length and all of it, so padding exists; `transformers` gets all sequences as one batch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import arguments, compare_apart, limit, print_comparison, write_result
from benchmarks.training_step import (
    Case,
    linear_flops,
    our_forward,
    our_step,
    prepare_case,
    their_forward,
    their_step,
)
from mops.data.batches import Batch, Segment
from mops.training.prepare import Prepared

LENGTHS = (8, 16, 32, 64, 128, 256, 512)
TOKENS = 2048  # of a batch, without padding
TASK = "sentiment"
SEED = 11711


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    case = Case(options.data, options.encoder, "bi", 8)
    longest = prepare_case(case).layout.encoder.longest
    lengths = limit([n for n in LENGTHS if n <= longest], options)
    found: dict[str, dict[str, Any]] = {"training": {}, "prediction": {}}
    for length in lengths:
        for work, data in measure(case, length, options.rounds).items():
            found[work][str(length)] = data
            print_comparison(f"{work}, up to {length} tokens", data)
    print(write_result("lengths", {"tokens": TOKENS, **found}, options.out))


def measure(case: Case, length: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Work -> comparison, on one batch of about this length."""
    ready = prepare_case(case)
    batch = random_batch(ready, length)
    lengths = [len(segment.ids) for segment in batch.segments]
    facts = {"sequences": len(lengths), "padding": 1 - np.mean(lengths) / max(lengths)}
    theirs = str(ready.source.folder), dict(ready.layout.tasks), case.pair, batch
    steps = {
        "transformers": partial(their_step, *theirs),
        "mops": partial(our_step, case, batch, dropout=0.1),
    }
    forwards = {
        "transformers": partial(their_forward, *theirs),
        "mops": partial(our_forward, case, batch),
    }
    one = linear_flops(ready, batch)
    trained = compare_apart(steps, flops=dict.fromkeys(steps, 3 * one), rounds=rounds)
    answered = compare_apart(forwards, flops=dict.fromkeys(forwards, one), rounds=rounds)
    return {
        "training": {**facts, **trained.to_data()},
        "prediction": {**facts, **answered.to_data()},
    }


def random_batch(ready: Prepared, length: int) -> Batch:
    """TOKENS tokens in sequences between half of the length and all of it."""
    draw = np.random.default_rng([SEED, length])
    segments, left = [], TOKENS
    while left > 0:
        tokens = min(int(draw.integers((length + 1) // 2, length + 1)), max(left, 2))
        ids = draw.integers(0, ready.layout.encoder.words, tokens).astype(np.int32)
        segments.append(Segment(ids, np.zeros(tokens, np.int32), (TASK,)))
        left -= tokens
    classes = len(ready.layout.tasks[TASK].labels)
    targets = draw.integers(0, classes, len(segments)).astype(np.float64)
    return Batch(tuple(segments), {TASK: targets})


if __name__ == "__main__":
    main()
