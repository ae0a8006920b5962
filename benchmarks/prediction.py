"""Three tasks on many pairs: mops beside three separate models with `transformers`.

python -m benchmarks.prediction --data DIR

Both pair tasks predict each pair, sentiment predicts each of its texts; tokenisation is included.
Every round has its own pairs, so that all rounds together use each pair once. Each side runs in
its own process, as a user would run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mops
from benchmarks.harness import arguments, compare_apart, limit, print_comparison, write_result
from benchmarks.three_models import Request, ThreeModels, build_predictor, check_same_predictions
from benchmarks.training_step import data_name
from mops.data.dataset import read_rows
from mops.model.sources import find_encoder
from mops.training.machine import keep_freed_memory

PLANS = ("shared", "hybrid:3", "separate")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=5000, help="pairs")
    parser.add_argument("--plans", nargs="*", default=PLANS)
    options = parser.parse_args()
    pairs = read_pairs(options.data, options.rows)
    cases = {}
    for pair in limit(("bi", "cross"), options):
        parts = [make_request(pairs[n :: options.rounds]) for n in range(options.rounds)]
        cases[pair] = measure(options.encoder, pair, options.plans, parts)
        print_comparison(f"{len(pairs)} pairs, three tasks, {pair}", cases[pair])
    facts = {"data": data_name(options.data), "pairs": len(pairs), "cases": cases}
    print(write_result("prediction", facts, options.out))


def read_pairs(data: str, most: int) -> list[tuple[str, ...]]:
    """The texts of the paraphrase task's validation rows."""
    entry = mops.recipe(data=data).tasks["paraphrase"]
    assert entry.validation is not None
    read = read_rows(
        entry.validation, entry.task("paraphrase"), needs_label=False, on_bad_row="skip"
    )
    return [row.texts for row in read.good[:most]]


def make_request(pairs: list[tuple[str, ...]]) -> Request:
    singles = [(text,) for pair in pairs for text in pair]
    return {"sentiment": singles, "paraphrase": pairs, "similarity": pairs}


def measure(
    encoder: str, pair: str, plans: Sequence[str], parts: Sequence[Request]
) -> dict[str, Any]:
    few_rows = {task: of[:50] for task, of in parts[0].items()}
    source = find_encoder(encoder)
    for plan in plans:
        predictor = build_predictor(source, plan, pair)
        check_same_predictions(predictor, ThreeModels(source, predictor), few_rows)
    parts = [few_rows, *parts]  # the first round warms up
    runs = {"three transformers models": partial(build_theirs, encoder, pair, parts)}
    runs |= {f"mops {plan}": partial(build_ours, encoder, pair, plan, parts) for plan in plans}
    return compare_apart(runs, rounds=len(parts) - 1).to_data()


def build_theirs(encoder: str, pair: str, parts: Sequence[Request]) -> Callable[[], object]:
    source = find_encoder(encoder)
    return take_turns(ThreeModels(source, build_predictor(source, "shared", pair)).outputs, parts)


def build_ours(
    encoder: str, pair: str, plan: str, parts: Sequence[Request]
) -> Callable[[], object]:
    """As `mops predict` does it."""
    keep_freed_memory()
    return take_turns(build_predictor(find_encoder(encoder), plan, pair).predict_tasks, parts)


def take_turns(
    predict: Callable[[Request], object], parts: Sequence[Request]
) -> Callable[[], object]:
    """Each call predicts the next part."""
    remaining = iter(parts)
    return lambda: predict(next(remaining))


if __name__ == "__main__":
    main()
