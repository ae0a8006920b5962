"""An exported model in 8 bits beside float32 and beside three separate models with `transformers`.

python -m benchmarks.int8 --data DIR --model BUNDLE

Many pairs and one pair, three tasks each, as in `prediction` and `latency`; tokenisation is
included. With --model the scores of a trained model are compared on its validation rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mops
from benchmarks.harness import arguments, compare_apart, limit, print_comparison, write_result
from benchmarks.prediction import (
    build_ours,
    build_theirs,
    make_request,
    read_pairs,
    take_turns,
)
from benchmarks.three_models import ENTRIES, Request, build_predictor
from benchmarks.training_step import data_name
from mops.cli.export import read_validation
from mops.export.onnx import export_bundle, export_int8, measure_change
from mops.model.sources import find_encoder
from mops.predict.bundle import load_bundle, save_bundle
from mops.training.machine import keep_freed_memory

PLAN = "shared"
REQUESTS = 8  # single pairs in a round of the second case


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=5000, help="pairs")
    parser.add_argument("--model", type=Path, help="a trained bundle, for its scores in 8 bits")
    options = parser.parse_args()
    pairs = read_pairs(options.data, options.rows)
    cases: dict[str, Any] = {}
    facts = {"data": data_name(options.data), "pairs": len(pairs), "plan": PLAN, "cases": cases}
    with TemporaryDirectory() as scratch:
        for pair in limit(("bi", "cross"), options):
            folders = write_folders(Path(scratch, pair), options.encoder, pair)
            for name, parts in split_requests(pairs, options.rounds).items():
                cases[f"{pair}, {name}"] = measure(options.encoder, pair, folders, parts)
                print_comparison(f"{name}, three tasks, {pair}", cases[f"{pair}, {name}"])
        if options.model:
            facts["scores"] = compare_scores(options.model, Path(scratch, "scored"))
    print(write_result("int8", facts, options.out))


def split_requests(pairs: Sequence[tuple[str, ...]], rounds: int) -> dict[str, list[list[Request]]]:
    """Case -> round -> its requests; the first round warms up."""
    few, middle = make_request(list(pairs[:50])), len(pairs) // 2
    by_length = sorted(pairs, key=lambda pair: len("".join(pair)))
    one = [make_request([pair]) for pair in by_length[middle:][:REQUESTS]]
    many = [[make_request(list(pairs[n::rounds]))] for n in range(rounds)]
    return {"many pairs": [[few], *many], "one pair": [one] * (rounds + 1)}


def write_folders(folder: Path, encoder: str, pair: str) -> dict[str, Path]:
    """The exported folders, by what is measured."""
    bundle = build_predictor(find_encoder(encoder), PLAN, pair).bundle
    entries = {name: entry.model_copy() for name, entry in ENTRIES.items()}
    save_bundle(folder / "bundle", bundle.network, bundle.tokenizer, entries, {})
    saved = load_bundle(folder / "bundle")
    (float32,) = export_bundle(saved, folder / "float32")
    (int8,) = export_int8(saved, folder / "int8", {}, math.inf)
    return {"mops, onnx": float32, "mops, onnx int8": int8}


def measure(
    encoder: str, pair: str, folders: dict[str, Path], parts: list[list[Request]]
) -> dict[str, Any]:
    runs: dict[str, Callable[[], Callable[[], object]]] = {
        "three transformers models": partial(one_by_one, build_theirs, (encoder, pair), parts),
        "mops": partial(one_by_one, build_ours, (encoder, pair, PLAN), parts),
    }
    for name, folder in folders.items():
        runs[name] = partial(one_by_one, build_exported, (folder,), parts)
    return compare_apart(runs, rounds=len(parts) - 1).to_data()


def one_by_one(
    build: Callable[..., Callable[[], object]], words: tuple[Any, ...], parts: list[list[Request]]
) -> Callable[[], object]:
    """A round answers one request after the other."""
    run = build(*words, [request for requests in parts for request in requests])
    sizes = iter([len(requests) for requests in parts])
    return lambda: [run() for _ in range(next(sizes))]


def build_exported(folder: Path, parts: Sequence[Request]) -> Callable[[], object]:
    keep_freed_memory()
    return take_turns(mops.load(folder).predict_tasks, parts)


def compare_scores(model: Path, out: Path) -> dict[str, Any]:
    """Task -> score -> in float32 and in 8 bits, on the validation rows."""
    bundle = load_bundle(model)
    (folder,) = export_int8(bundle, out, {}, math.inf)
    scores = measure_change(bundle, folder, read_validation(bundle, None))
    for task, own in scores.items():
        for name, (before, after) in own.items():
            print(f"{task} {name}: {before:.4f} float32, {after:.4f} int8")
    return scores


if __name__ == "__main__":
    main()
