"""The founding paper's frozen experiments as three batched stages: regimes, rates, loss weights.

python -m benchmarks.frozen_survey --data DIR

Eight late regimes; the four best beside the baseline III with five learning rates each; the best
regime and rate with six loss weightings: 34 networks. As in the paper: rate 1e-3, no schedule of
rates, no decay, no clipping, head dropout 0.3, ten epochs of 1000 steps, batches of 8, texts of a
pair apart, the similarity as a cosine behind a linear layer. Not as there: mean pooling, and a
paraphrase loss that has a gradient, on the difference and the product of the two vectors.

The texts are encoded once, on all cores. Then every core has a process of its own, on one thread,
that trains its part of a stage's networks as one batch. All times are wall times.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import mops
from benchmarks.harness import arguments, limit, write_result
from benchmarks.training_step import data_name
from mops.config.recipe import Recipe
from mops.data.batches import tokenise_cached
from mops.predict.inference import find_distinct
from mops.training.batched import frozen_features
from mops.training.machine import own_cores
from mops.training.prepare import build_trainer, prepare

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
WARM, SLICE = 3, 40  # steps before, and steps of the one-by-one way that are measured
QUICK_STEPS = 5
SEED = 11711

Choice = tuple[str, float, tuple[float, float, float]]  # regime, rate, weights


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps-per-epoch", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=own_cores(), help="processes; default: cores")
    parser.add_argument("--runs", help="folder of the runs; default: one that is removed")
    options = parser.parse_args()
    if options.quick:
        options.epochs, options.steps_per_epoch, options.jobs = 1, QUICK_STEPS, 1
    with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
        os.environ["MOPS_CACHE"] = f"{scratch}/cache"  # empty: the encoding counts
        survey = Survey(options, Path(options.runs or scratch))
        result = survey.run()
    facts = {"data": data_name(options.data), **result}
    print(write_result("frozen_survey", facts, options.out))


@dataclass(frozen=True)
class Setting:
    """What all networks have in common."""

    data: str
    encoder: str
    epochs: int
    steps_per_epoch: int

    def recipe(self, choice: Choice, threads: int | None = 1) -> Recipe:
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
            "num_train_epochs": self.epochs,
            "steps_per_epoch": self.steps_per_epoch,
            "per_task_batch_size": 8,
            "loss_weights": weights,
            "seed": SEED,
            "threads": threads,
        }
        return mops.recipe(
            data=self.data,
            encoder=self.encoder,
            plan=f"frozen+late:{regime}",
            tasks=TASKS,
            set={f"training.{key}": value for key, value in settings.items()},
        )


def train_part(setting: Setting, choices: Sequence[Choice], outs: Sequence[Path]) -> None:
    """In a process of its own."""
    mops.train_many([setting.recipe(choice) for choice in choices], outs)


class Survey:
    """Three stages, each from the results of the ones before; texts are encoded once for all."""

    def __init__(self, options: Any, out: Path) -> None:
        self.setting = Setting(
            options.data, options.encoder, options.epochs, options.steps_per_epoch
        )
        self.jobs, self.out, self.limit = options.jobs, out, partial(limit, options=options)
        self.found: dict[Choice, mops.Run] = {}

    def run(self) -> dict[str, Any]:
        started = time.perf_counter()
        sequences = self.encode()
        encoding = time.perf_counter() - started
        stages = dict(self.stages())
        seconds = time.perf_counter() - started
        best = self.ranked()[0]
        networks = sum(len(stage["networks"]) for stage in stages.values())
        steps = self.setting.epochs * self.setting.steps_per_epoch
        return {
            "networks": networks,
            "processes": self.jobs,
            "steps": steps,
            "sequences": sequences,
            "encoding_seconds": encoding,
            "seconds": seconds,
            "best": {"choice": best, **facts_of(self.found[best])},
            "stages": stages,
            "one_by_one": self.one_by_one(networks * steps, seconds),
        }

    def encode(self) -> int:
        """All texts through the frozen encoder into the cache; how many sequences there are."""
        ready = prepare(self.setting.recipe((BASELINE, 1e-3, EVENLY), threads=None), len)
        features, encoded = frozen_features(ready), 0
        for task, splits in ready.dataset.splits.items():
            rows = {split: [row.texts for row in read.rows] for split, read in splits.items()}
            tokens = {
                split: tokenise_cached(ready.source.tokenizer, texts, ready.layout.reading)
                for split, texts in rows.items()
            }
            encoded += len(features.pooled(task, find_distinct(tokens, slice(None))[0]))
        return encoded

    def stages(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield (
            "regimes",
            self.stage("regimes", [(regime, 1e-3, EVENLY) for regime in self.limit(REGIMES)]),
        )
        draw = np.random.default_rng(SEED)
        others = [choice for choice in self.ranked() if choice[0] != BASELINE][:BEST]
        trials = [
            (regime, float(10 ** draw.uniform(LOWEST, HIGHEST)), EVENLY)
            for regime, _, _ in others
            for _ in self.limit(range(RATES))
        ]
        yield "learning_rates", self.stage("learning_rates", trials)
        regime, rate, _ = self.ranked()[0]
        weighted = [(regime, rate, weights) for weights in self.limit(WEIGHTS)]
        yield "loss_weights", self.stage("loss_weights", weighted)

    def stage(self, name: str, choices: Sequence[Choice]) -> dict[str, Any]:
        outs = [self.out / name / str(n) for n in range(len(choices))]
        started = time.perf_counter()
        self.train(choices, outs)
        seconds = time.perf_counter() - started
        runs = {c: finished_run(out) for c, out in zip(choices, outs, strict=True)}
        done = {choice: run for choice, run in runs.items() if run is not None}
        self.found |= done
        training = sum(run.record.train_info.train_seconds for run in done.values()) / self.jobs
        print(f"{name}: {len(choices)} networks, {seconds:.0f} s, training {training:.0f} s")
        return {
            "seconds": seconds,
            "training_seconds": training,
            "milliseconds_per_network_step": 1e3 * training / sum_steps(done.values()),
            "networks": [{"choice": choice, **facts_of(run)} for choice, run in runs.items()],
        }

    def train(self, choices: Sequence[Choice], outs: Sequence[Path]) -> None:
        if self.jobs == 1:
            train_part(self.setting, choices, outs)
            return
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn")) as pool:
            parts = [slice(n, None, self.jobs) for n in range(self.jobs)]
            waiting = [pool.submit(train_part, self.setting, choices[p], outs[p]) for p in parts]
            for part in waiting:
                part.result()

    def ranked(self) -> list[Choice]:
        """The best first, by the rows that pick a state."""
        return sorted(
            self.found,
            key=lambda choice: self.found[choice].record.train_info.best_score or 0.0,
            reverse=True,
        )

    def one_by_one(self, network_steps: int, seconds: float) -> dict[str, Any]:
        """Steps of one network that encodes its texts in every step, on all cores; multiplied."""
        ready = prepare(self.setting.recipe(("SIS", 1e-3, EVENLY), threads=None), len)
        with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
            trainer = build_trainer(Path(scratch), ready)
            steps = min(SLICE, len(trainer.schedule) - WARM)
            for step in range(WARM + steps):
                trainer.note_step(trainer.take_step(trainer.objective.make_batch(step)))
            step_seconds = sum(trainer.state.step_seconds[WARM:]) / steps
        whole = step_seconds * network_steps
        return {
            "about": "training steps only, extrapolated from a slice of one network's steps, whose "
            "frozen encoder runs in eval mode in every step on all cores",
            "measured_steps": steps,
            "seconds_per_step": step_seconds,
            "seconds": whole,
            "speedup": whole / seconds,
        }


def finished_run(folder: Path) -> mops.Run | None:
    record = folder / "record.json"
    return mops.Run(folder, mops.read_record(record)) if record.is_file() else None


def sum_steps(runs: Any) -> int:
    return sum(run.record.train_info.steps for run in runs)


def facts_of(run: mops.Run | None) -> dict[str, Any]:
    if run is None:
        return {"failed": True}
    overall, tasks, main = run.scores.overall, run.scores.tasks, run.scores.main
    return {
        "selection": run.record.train_info.best_score,
        "report": overall["report"]["overall"],
        "validation": {name: tasks[name]["validation"][main[name]] for name in tasks},
        "best_step": run.record.train_info.best_step,
        "batched": run.record.train_info.batched,
    }


if __name__ == "__main__":
    main()
