"""Three tasks on many pairs: mops beside three separate models with `transformers`.

python -m benchmarks.prediction --data DIR

Both pair tasks answer each pair, sentiment answers each of its texts; tokenising is counted. Every
round has pairs of its own, so that all rounds together see each pair once. Each side runs in a
process of its own, in turn, as a user would run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mops
from benchmarks.harness import arguments, compare_apart, few, print_comparison, write_result
from benchmarks.three_models import Asked, ThreeModels, build_predictor, check_same_answers
from benchmarks.training_step import data_name
from mops.data.examples import read_rows
from mops.model.sources import find_encoder
from mops.training.prepare import keep_memory

PLANS = ("shared", "hybrid:3", "separate")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=5000, help="pairs")
    parser.add_argument("--plans", nargs="*", default=PLANS)
    asked = parser.parse_args()
    pairs = read_pairs(asked.data, asked.rows)
    cases = {}
    for pair in few(("bi", "cross"), asked):
        parts = [question(pairs[n :: asked.rounds]) for n in range(asked.rounds)]
        cases[pair] = measure(asked.encoder, pair, asked.plans, parts)
        print_comparison(f"{len(pairs)} pairs, three tasks, {pair}", cases[pair])
    facts = {"data": data_name(asked.data), "pairs": len(pairs), "cases": cases}
    print(write_result("prediction", facts, asked.out))


def read_pairs(data: str, most: int) -> list[tuple[str, ...]]:
    """The texts of the paraphrase task's validation rows."""
    entry = mops.recipe(data=data).tasks["paraphrase"]
    assert entry.validation is not None
    read = read_rows(
        entry.validation, entry.task("paraphrase"), needs_label=False, on_bad_row="skip"
    )
    return [row.texts for row in read.good[:most]]


def question(pairs: list[tuple[str, ...]]) -> Asked:
    singles = [(text,) for pair in pairs for text in pair]
    return {"sentiment": singles, "paraphrase": pairs, "similarity": pairs}


def measure(
    encoder: str, pair: str, plans: Sequence[str], parts: Sequence[Asked]
) -> dict[str, Any]:
    few_rows = {task: of[:50] for task, of in parts[0].items()}
    source = find_encoder(encoder)
    for plan in plans:
        predictor = build_predictor(source, plan, pair)
        check_same_answers(predictor, ThreeModels(source, predictor), few_rows)
    parts = [few_rows, *parts]  # the first round warms up
    runs = {"three transformers models": partial(build_theirs, encoder, pair, parts)}
    runs |= {f"mops {plan}": partial(build_ours, encoder, pair, plan, parts) for plan in plans}
    return compare_apart(runs, rounds=len(parts) - 1).to_data()


def build_theirs(encoder: str, pair: str, parts: Sequence[Asked]) -> Callable[[], object]:
    source = find_encoder(encoder)
    return in_turn(ThreeModels(source, build_predictor(source, "shared", pair)).outputs, parts)


def build_ours(encoder: str, pair: str, plan: str, parts: Sequence[Asked]) -> Callable[[], object]:
    """As `mops predict` does it."""
    keep_memory()
    return in_turn(build_predictor(find_encoder(encoder), plan, pair).answers, parts)


def in_turn(answer: Callable[[Asked], object], parts: Sequence[Asked]) -> Callable[[], object]:
    """Each call answers the next part."""
    left = iter(parts)
    return lambda: answer(next(left))


if __name__ == "__main__":
    main()
