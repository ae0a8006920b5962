"""The cost of one more task: 1, 3, 8 and 32 classifications of the same texts with `shared`.

In the last case every row has the labels of five tasks, which one pass through the encoder teaches.

python -m benchmarks.many_tasks --data DIR
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import arguments, compare, limit, print_comparison, write_result
from benchmarks.prediction import read_pairs
from benchmarks.three_models import build_predictor
from benchmarks.training_step import data_name
from mops.config.training import TaskEntry, Training
from mops.data.batches import TaskData, make_batch, tokenise
from mops.data.schedule import PlannedStage
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.model.sources import EncoderSource, find_encoder
from mops.predict.bundle import Predictor
from mops.training.losses import Fixed
from mops.training.optim import build_optimizer
from mops.training.step import Learner, take_step

COUNTS = (1, 3, 8, 32)
CLASSES = 5
LABELS = 5  # of a row that several tasks read
STEP_ROWS = 32  # of all tasks together: with more tasks each has fewer


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=500, help="texts of the long prediction")
    options = parser.parse_args()
    source = find_encoder(options.encoder)
    texts = [pair[0] for pair in read_pairs(options.data, options.rows)]
    predictors = {count: make_predictor(source, count) for count in COUNTS}
    cases = {
        "one text": (prediction_runs(predictors, texts[:1]), 10 * options.rounds),
        f"{len(texts)} texts": (prediction_runs(predictors, texts), options.rounds),
        "training step": (step_runs(source, texts), options.rounds),
        "training step, rows with all labels": (whole_row_runs(source, texts), options.rounds),
    }
    found: dict[str, Any] = {}
    for title, (runs, rounds) in limit(list(cases.items()), options):
        found[title] = compare(runs, rounds=rounds).to_data()
        print_comparison(title, found[title])
    facts = {"data": data_name(options.data), "cases": found}
    print(write_result("many_tasks", facts, options.out))


def make_entries(count: int) -> dict[str, TaskEntry]:
    labels = tuple(range(CLASSES))
    entry = TaskEntry(type="classification", text="text", label="label", labels=labels)
    return {f"task{number}": entry for number in range(count)}


def make_predictor(source: EncoderSource, count: int) -> Predictor:
    tasks = [entry.task(name) for name, entry in make_entries(count).items()]
    return build_predictor(source, "shared", "cross", tasks)


def prediction_runs(
    predictors: dict[int, Predictor], texts: list[str]
) -> dict[str, Callable[[], object]]:
    """Every task predicts every text."""
    return {
        f"{count} tasks": partial(predictor.predict_tasks, dict.fromkeys(predictor.tasks, texts))
        for count, predictor in predictors.items()
    }


def step_runs(source: EncoderSource, texts: list[str]) -> dict[str, Callable[[], object]]:
    """A step on the same rows, divided among the tasks."""
    return {f"{count} tasks": step_run(source, texts[:STEP_ROWS], count) for count in COUNTS}


def whole_row_runs(source: EncoderSource, texts: list[str]) -> dict[str, Callable[[], object]]:
    """A step in which every task takes every row."""
    rows = texts[:STEP_ROWS]
    return {f"{count} tasks": step_run(source, rows, count, every=1) for count in (1, LABELS)}


def step_run(
    source: EncoderSource, texts: list[str], count: int, every: int = 0
) -> Callable[[], object]:
    """`every`: a task takes each n-th row; default: the tasks divide them."""
    predictor = make_predictor(source, count)
    tasks, training = predictor.bundle.layout.tasks, Training()
    bundle = predictor.bundle
    tokens = tokenise(bundle.tokenizer, [(text,) for text in texts], bundle.layout.reading)
    targets = np.arange(len(texts)) % CLASSES * 1.0
    data = {name: TaskData(task, tokens, targets) for name, task in tasks.items()}
    batch = make_batch(
        data,
        {
            name: range(len(texts))[n * (not every) :: every or count]
            for n, name in enumerate(tasks)
        },
    )
    network = Network(predictor.bundle.layout, dropout=0.1, head_dropout=0.1)
    load_pretrained(network, source)
    weighting = Fixed({task: training.weight(task) for task in network.layout.tasks})
    learner = Learner(network, build_optimizer(network, training), weighting)
    return lambda: take_step(learner, batch, PlannedStage(0, 1, training), 0)


if __name__ == "__main__":
    main()
