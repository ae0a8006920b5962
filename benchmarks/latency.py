"""One request, one pair: both pair tasks and the sentiment of each text, beside three models.

python -m benchmarks.latency --data DIR

The pair with the median number of characters; tokenisation is included.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.harness import arguments, compare, limit, print_comparison, write_result
from benchmarks.prediction import PLANS, make_request, read_pairs
from benchmarks.three_models import Request, ThreeModels, build_predictor, check_same_predictions
from benchmarks.training_step import data_name
from mops.model.sources import EncoderSource, find_encoder

CANDIDATES = 501  # pairs


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.set_defaults(rounds=60)
    options = parser.parse_args()
    source = find_encoder(options.encoder)
    pairs = sorted(read_pairs(options.data, CANDIDATES), key=lambda pair: len("".join(pair)))
    request = make_request(pairs[len(pairs) // 2 :][:1])
    cases = {}
    for pair in limit(("bi", "cross"), options):
        cases[pair] = measure(source, pair, request, options.rounds)
        print_comparison(f"one pair, three tasks, {pair}", cases[pair])
    facts = {"data": data_name(options.data), "cases": cases}
    print(write_result("latency", facts, options.out))


def measure(source: EncoderSource, pair: str, request: Request, rounds: int) -> dict[str, Any]:
    predictors = {plan: build_predictor(source, plan, pair) for plan in PLANS}
    theirs = ThreeModels(source, predictors["shared"])
    check_same_predictions(predictors["shared"], theirs, request)
    runs = {"three transformers models": partial(theirs.outputs, request)}
    runs |= {f"mops {plan}": partial(p.predict_tasks, request) for plan, p in predictors.items()}
    return compare(runs, rounds=rounds, warmup=5).to_data()


if __name__ == "__main__":
    main()
