"""The founding paper's frozen experiments as three batched stages: regimes, rates, loss weights.

python -m benchmarks.frozen_survey --data DIR

Eight late regimes; the four best beside the baseline III with five learning rates each; the best
regime and rate with six loss weightings: 34 networks. As in the paper: rate 1e-3, no schedule of
rates, no decay, no clipping, head dropout 0.3, ten epochs of 1000 steps, batches of 8, texts of a
pair apart, the similarity as a cosine behind a linear layer. Not as there: mean pooling, and a
paraphrase loss that has a gradient, on the difference and the product of the two vectors.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mops
from benchmarks.harness import arguments, few, write_result
from benchmarks.training_step import data_name
from mops.data.tokens import TokenTable
from mops.fit.loop import Silent
from mops.fit.prepare import prepare
from mops.fit.run import build_loop
from mops.many import family
from mops.many.vectors import Features, pooled_vectors
from mops.recipes import Recipe

TASKS = ("sentiment", "paraphrase", "similarity")
BASELINE = "III"
REGIMES = ("SSS", "SSI", "SIS", "ISS", "SII", "ISI", "IIS", BASELINE)
BEST, RATES, LOWEST, HIGHEST = 4, 5, -7.0, -1.0  # powers of ten
# of paraphrase, sentiment and similarity
WEIGHTS = (
    (0.4, 0.4, 0.2), (0.4, 0.2, 0.4), (0.2, 0.4, 0.4),
    (0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.25, 0.25, 0.5),
)  # fmt: skip
EVENLY = (1 / 3, 1 / 3, 1 / 3)
SLICE = 40  # steps of the one-by-one way that are measured
QUICK_STEPS = 5
SEED = 11711

Choice = tuple[str, float, tuple[float, float, float]]  # regime, rate, weights


class Clock:
    """Wall time of what a function does, over all of its calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*given)
            finally:
                self.seconds += time.perf_counter() - started

        return call


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps-per-epoch", type=int, default=1000)
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--runs", help="folder of the runs; default: one that is removed")
    asked = parser.parse_args()
    if asked.quick:
        asked.epochs, asked.steps_per_epoch, asked.threads = 1, QUICK_STEPS, 1
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
        survey = Survey(asked, Path(asked.runs or scratch))
        result = survey.run()
    result["one_by_one"] = survey.one_by_one(result)
    facts = {"data": data_name(asked.data), **result}
    print(write_result("frozen_survey", facts, asked.out))


class Survey:
    """Three stages, each from the results of the ones before; texts are encoded once for all."""

    def __init__(self, asked: Any, out: Path) -> None:
        self.asked, self.out = asked, out
        self.encoding, self.evaluating = Clock(), Clock()
        trunk = family.frozen_network(prepare(self.recipe((BASELINE, 1e-3, EVENLY)), len))
        self.features = remembered(self.encoding.timed(pooled_vectors(trunk)))
        family.known_scores = self.evaluating.timed(family.known_scores)
        self.found: dict[Choice, mops.Run] = {}

    def recipe(self, choice: Choice) -> Recipe:
        regime, rate, (paraphrase, sentiment, similarity) = choice
        weights = {"paraphrase": paraphrase, "sentiment": sentiment, "similarity": similarity}
        settings = {
            "pair": "bi",
            "head": {"similarity": {"kind": "cosine", "project": True}},
            "head_learning_rate": rate,
            "lr_scheduler_type": "none",
            "warmup_steps": 0,
            "weight_decay": 0,
            "max_grad_norm": 0,
            "head_dropout": 0.3,
            "num_train_epochs": self.asked.epochs,
            "steps_per_epoch": self.asked.steps_per_epoch,
            "per_task_batch_size": 8,
            "loss_weights": weights,
            "seed": SEED,
            "threads": self.asked.threads,
        }
        return mops.recipe(
            data=self.asked.data,
            encoder=self.asked.encoder,
            plan=f"frozen+late:{regime}",
            tasks=TASKS,
            set={f"training.{key}": value for key, value in settings.items()},
        )

    def run(self) -> dict[str, Any]:
        regimes = [(regime, 1e-3, EVENLY) for regime in few(REGIMES, self.asked)]
        stages = {"regimes": self.stage("regimes", regimes)}
        draw = np.random.default_rng(SEED)
        others = [choice for choice in self.ranked() if choice[0] != BASELINE][:BEST]
        trials = [
            (regime, float(10 ** draw.uniform(LOWEST, HIGHEST)), EVENLY)
            for regime, _, _ in others
            for _ in few(range(RATES), self.asked)
        ]
        stages["learning_rates"] = self.stage("learning_rates", trials)
        regime, rate, _ = self.ranked()[0]
        weighted = [(regime, rate, weights) for weights in few(WEIGHTS, self.asked)]
        stages["loss_weights"] = self.stage("loss_weights", weighted)
        return {
            "networks": sum(len(stage["networks"]) for stage in stages.values()),
            "threads": torch.get_num_threads(),
            "steps": self.asked.epochs * self.asked.steps_per_epoch,
            "encoding_seconds": self.encoding.seconds,
            "training_seconds": sum(stage["training_seconds"] for stage in stages.values()),
            "seconds": sum(stage["seconds"] for stage in stages.values()),
            "best": {"choice": self.ranked()[0], **facts_of(self.found[self.ranked()[0]])},
            "stages": stages,
        }

    def stage(self, name: str, choices: Sequence[Choice]) -> dict[str, Any]:
        encoded, evaluated = self.encoding.seconds, self.evaluating.seconds
        started = time.perf_counter()
        outs = [self.out / name / str(n) for n in range(len(choices))]
        runs = mops.train_many([self.recipe(c) for c in choices], outs, Silent(), self.features)
        seconds = time.perf_counter() - started
        done = {c: run for c, run in zip(choices, runs, strict=True) if isinstance(run, mops.Run)}
        self.found |= done
        training = sum(run.record.train_info["train_seconds"] for run in done.values())
        networks = [
            {"choice": choice, **facts_of(run)} for choice, run in zip(choices, runs, strict=True)
        ]
        print(f"{name}: {len(choices)} networks, {seconds:.0f} s, training {training:.0f} s")
        return {
            "seconds": seconds,
            "encoding_seconds": self.encoding.seconds - encoded,
            "training_seconds": training,
            "evaluation_seconds": self.evaluating.seconds - evaluated,
            "milliseconds_per_network_step": 1e3 * training / sum_steps(done.values()),
            "networks": networks,
        }

    def ranked(self) -> list[Choice]:
        """The best first, by the rows that pick a state."""
        return sorted(
            self.found,
            key=lambda choice: self.found[choice].scores["overall"]["selection"]["overall"],
            reverse=True,
        )

    def one_by_one(self, result: dict[str, Any]) -> dict[str, Any]:
        """Steps of `mops.train`, which encodes its texts in every step; the rest is multiplied."""
        ready = prepare(self.recipe(("SIS", 1e-3, EVENLY)), len)
        with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
            loop = build_loop(Path(scratch), ready)
            for _ in range(3):
                loop.one_step(loop.make_batch(loop.progress.step), Silent())
            before = loop.progress.seconds
            for _ in range(min(SLICE, len(loop.schedule) - 3)):
                loop.one_step(loop.make_batch(loop.progress.step), Silent())
            measured = loop.progress.step - 3
            step = (loop.progress.seconds - before) / measured
        whole = step * result["networks"] * result["steps"]
        return {
            "about": "training only, extrapolated from a slice of steps of one network, whose "
            "frozen encoder runs in eval mode in every step",
            "measured_steps": measured,
            "seconds_per_step": step,
            "training_seconds": whole,
            "speedup_of_training": whole / result["training_seconds"],
            "speedup_with_encoding": whole
            / (result["training_seconds"] + result["encoding_seconds"]),
        }


def sum_steps(runs: Any) -> int:
    return sum(run.record.train_info["steps"] for run in runs)


def facts_of(run: mops.Run | mops.MopsError) -> dict[str, Any]:
    if isinstance(run, mops.MopsError):
        return {"failed": str(run)}
    overall, tasks = run.scores["overall"], run.scores["tasks"]
    main = run.scores["main"]
    return {
        "selection": overall["selection"]["overall"],
        "report": overall["report"]["overall"],
        "validation": {name: tasks[name]["validation"][main[name]] for name in tasks},
        "best_step": run.record.train_info["best_step"],
        "batched": run.record.train_info["batched"],
    }


def remembered(features: Features) -> Features:
    """The same sequences in a later stage are not encoded again."""
    known: dict[tuple[str, bytes], Any] = {}

    def look(task: str, table: TokenTable) -> Any:
        key = task, table.ids.tobytes() + table.starts.tobytes()
        if key not in known:
            known[key] = features(task, table)
        return known[key]

    return look


if __name__ == "__main__":
    main()
