"""One request, one pair: both pair tasks and the sentiment of each text, beside three models.

python -m benchmarks.latency --data DIR

The pair with the median number of characters; tokenising is counted.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.harness import arguments, compare, few, print_comparison, write_result
from benchmarks.prediction import PLANS, question, read_pairs
from benchmarks.three_models import Asked, ThreeModels, build_predictor, check_same_answers
from benchmarks.training_step import data_name
from mops.model.sources import EncoderSource, find_encoder

LOOKED_AT = 501  # pairs


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.set_defaults(rounds=60)
    asked = parser.parse_args()
    source = find_encoder(asked.encoder)
    pairs = sorted(read_pairs(asked.data, LOOKED_AT), key=lambda pair: len("".join(pair)))
    request = question(pairs[len(pairs) // 2 :][:1])
    cases = {}
    for pair in few(("bi", "cross"), asked):
        cases[pair] = measure(source, pair, request, asked.rounds)
        print_comparison(f"one pair, three tasks, {pair}", cases[pair])
    facts = {"data": data_name(asked.data), "cases": cases}
    print(write_result("latency", facts, asked.out))


def measure(source: EncoderSource, pair: str, asked: Asked, rounds: int) -> dict[str, Any]:
    predictors = {plan: build_predictor(source, plan, pair) for plan in PLANS}
    theirs = ThreeModels(source, predictors["shared"])
    check_same_answers(predictors["shared"], theirs, asked)
    runs = {"three transformers models": partial(theirs.outputs, asked)}
    runs |= {f"mops {plan}": partial(p.answers, asked) for plan, p in predictors.items()}
    return compare(runs, rounds=rounds, warmup=5).to_data()


if __name__ == "__main__":
    main()
